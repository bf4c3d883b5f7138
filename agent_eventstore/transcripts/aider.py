"""aider's history of chats, ``.aider.chat.history.md``.

Each start of aider is a conversation. A line after ``####`` is the user's, and lines that follow
each other are one message; a line after ``>``, outside of code, is aider's own, and all other lines
are the model's. The file has no more than that: what a user and a model write in the same way
cannot be told from it. Lines of aider's own are passed over, and counted, but for the model's name.
There is no export to this format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.openai_messages import transcript_of
from agent_eventstore.transcripts.record_source import Source
from agent_eventstore.transcripts.transcript import Transcript, identify

__all__ = ["FILE", "FORMAT", "is_history", "read", "recognises"]

FORMAT = "aider"
FILE = ".aider.chat.history.md"
"""The name that aider gives it, in the folder in which it runs."""

Message = dict[str, Any]

_START = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*$")
_MODEL = re.compile(r"> (?:Main )?[Mm]odel: (\S+)")
_USER, _OWN, _FENCE = "####", ">", re.compile(r"\s*(`{3,}|~{3,})")
_LONGEST = 64 * 1024 * 1024


def is_history(path: Path) -> bool:
    """Whether a file begins as such a history does; it is not JSON."""
    with path.open("rb") as file:
        head = file.read(4_096).decode("utf-8", "replace")
    return _START.match(head.lstrip("\ufeff\r\n ").partition("\n")[0]) is not None


def recognises(_: Any) -> bool:
    """Whether a JSON value is of this format: none is."""
    return False


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Iterate over the file's chats; one in which nobody wrote anything is left out."""
    if not is_history(source.path):
        yield source.failed(1, "it does not begin with the start of a chat of aider")
        return
    if source.path.stat().st_size > _LONGEST:
        yield source.failed(None, f"the file has more than {_LONGEST:,} bytes")
        return
    chat, empty = _Chat(1, ""), Counter[str]()
    text = source.path.read_text("utf-8", "replace")
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if start := _START.match(line):
            yield from chat.transcript(source, empty)
            chat = _Chat(number, start[1])
        else:
            chat.add(line.removesuffix("\r"))
    yield from chat.transcript(source, empty)


@dataclass(slots=True)
class _Chat:
    """A chat, as far as its lines are read."""

    line: int
    started_at: str
    messages: list[Message] = field(default_factory=list)
    model: str | None = None
    passed_over: Counter[str] = field(default_factory=Counter)
    fence: str = ""
    last: str = ""

    def add(self, line: str) -> None:
        """Add a line to the message to which it belongs."""
        if self.last == "assistant" and (fence := _FENCE.match(line)):
            if not self.fence:
                self.fence = fence[1]
            elif fence[1].startswith(self.fence):
                self.fence = ""
        if not self.fence and (line == _USER or line.startswith(f"{_USER} ")):
            self._append("user", line[len(_USER) + 1 :].rstrip())  # aider adds two spaces
        elif not self.fence and line.startswith(_OWN):
            self.passed_over["line of aider itself"] += 1
            self.last = ""
            if found := _MODEL.match(line):
                self.model = found[1]
        elif line.strip() or self.last == "assistant":
            self._append("assistant", line)
        else:
            self.last = ""

    def _append(self, role: str, line: str) -> None:
        if self.last == role:
            self.messages[-1]["content"] += f"\n{line}"
        else:
            named = {"model": self.model} if role == "assistant" and self.model else {}
            self.messages.append({"role": role, "content": line, **named})
            self.fence = ""
        self.last = role

    def transcript(self, source: Source, empty: Counter[str]) -> Iterator[Transcript]:
        """Yield the conversation, if there is one; its first words and its time identify it."""
        for message in self.messages:
            message["content"] = message["content"].strip("\r\n").rstrip()
        if not self.messages:
            empty += self.passed_over
            return
        rest = {"created_at": self.started_at}
        first = self.messages[0]["content"]
        origin = identify(FORMAT, None, (self.started_at, first))
        passed_over = self.passed_over + empty
        empty.clear()
        yield transcript_of(source, self.messages, rest, self.line, origin, passed_over)
