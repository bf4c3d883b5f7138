"""History sinks: files of document 001 in addition to the log, line by line.

A sink receives every line once it is durable in the log. A failing sink never fails a turn: the
failure is reported once, the sink receives nothing more, and the next opening of the conversation
completes its file.
"""

from __future__ import annotations

import json
import os
import re
from html import escape
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent_eventstore.agents.agent_turns import Listener
from agent_eventstore.agents.history_lines import HistoryLines, session_before
from agent_eventstore.conversation import Conversation
from eventstore import EventStore, RecordedEvent
from eventstore.events import JsonObject
from eventstore.telemetry.log import get_logger

__all__ = ["HistorySink", "JsonlHistorySink", "LegacyXmlSink", "SessionSinks"]

_log = get_logger("agent_eventstore")

_START = '<?xml version="1.0" encoding="UTF-8"?>\n<history session={}>\n'
_END = b"</history>\n"
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@runtime_checkable
class HistorySink(Protocol):
    """Receives the lines of sessions.

    A sink with ``count(session_id)``, which returns how many lines of a session it has, receives
    the rest of a killed session when its conversation is opened again.
    """

    def append(self, event: JsonObject) -> None:
        """Receive a line."""

    def flush(self) -> None:
        """Make the received lines durable; called at the end of turns and sessions."""


class _Files:
    """A file for each session, named after its id, in a folder that is created when needed."""

    suffix = ""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._written: set[Path] = set()

    def path(self, session_id: str) -> Path:
        """Return the file of a session."""
        if re.fullmatch(r"[\w.-]{1,200}", session_id) is None or session_id.startswith("."):
            raise ValueError(f"the session id {session_id!r} cannot be a file name")
        return self.folder / f"{session_id}{self.suffix}"

    def flush(self) -> None:
        """Sync the files to disk."""
        written, self._written = self._written, set()
        for path in written:
            with path.open("rb") as file:
                os.fsync(file.fileno())


class JsonlHistorySink(_Files):
    """Writes ``<folder>/<session id>.jsonl``, a line of JSON for each event of document 001.

    Args:
        folder: The folder of the files; ``history`` by default.
    """

    suffix = ".jsonl"

    def __init__(self, folder: str | Path = "history") -> None:
        super().__init__(folder)

    def append(self, event: JsonObject) -> None:
        """Append a line to the session's file."""
        path = self.path(str(event["session_id"]))
        self.folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        self._written.add(path)

    def count(self, session_id: str) -> int:
        """Return the number of whole lines; a line that was cut off is removed."""
        path = self.path(session_id)
        if not path.exists():
            return 0
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
        return content.count(b"\n")


class LegacyXmlSink(_Files):
    """Writes ``<folder>/<session id>.xml``: the same events as elements, well-formed after each.

    Args:
        folder: The folder of the files; ``history`` by default.
    """

    suffix = ".xml"

    def __init__(self, folder: str | Path = "history") -> None:
        super().__init__(folder)

    def append(self, event: JsonObject) -> None:
        """Write an element before the end of the session's file."""
        session_id = str(event["session_id"])
        path = self.path(session_id)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(_START.format(_attribute(session_id)).encode() + _END)
        with path.open("r+b") as file:
            file.seek(-len(_END), os.SEEK_END)
            file.write(_element(event).encode() + b"\n" + _END)
        self._written.add(path)

    def count(self, session_id: str) -> int:
        """Return the number of whole elements; an element that was cut off is removed."""
        path = self.path(session_id)
        if not path.exists():
            return 0
        lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n") and line != _END]
        start = _START.format(_attribute(session_id)).encode().splitlines(keepends=True)
        if whole[: len(start)] != start:
            path.unlink()
            return 0
        path.write_bytes(b"".join(whole) + _END)
        return len(whole) - len(start)


def _element(event: JsonObject) -> str:
    """Return a line as an element on one line."""
    fields: JsonObject = {key: event[key] for key in ("ts", "turn", "step") if key in event}
    meta = dict(event.get("meta") or {})
    if "tool" in meta:
        fields["tool"] = meta.pop("tool")
    if meta:
        fields["meta"] = json.dumps(meta, ensure_ascii=False)
    attributes = "".join(
        f" {key}={_attribute(str(value))}" for key, value in fields.items() if value is not None
    )
    kind, content = event["type"], event.get("content")
    if not content:
        return f"<{kind}{attributes}/>"
    return f"<{kind}{attributes}>{_xml(content)}</{kind}>"


def _xml(text: str) -> str:
    """Return a text on one line, escaped for an element or an attribute."""
    written = escape(_NO_XML.sub("\ufffd", text))
    return written.replace("\n", "&#10;").replace("\r", "&#13;").replace("\t", "&#9;")


def _attribute(text: str) -> str:
    return f'"{_xml(text)}"'


class SessionSinks:
    """Sends the log's lines to the sinks of a session, after completing a killed session before it.

    Args:
        store: The log.
        conversation: The conversation, just opened.
        sinks: The sinks.
        tell: Called if a sink fails.
    """

    def __init__(
        self,
        store: EventStore,
        conversation: Conversation,
        sinks: tuple[HistorySink, ...],
        tell: Listener,
    ) -> None:
        self._store, self._conversation_id, self._tell = store, conversation.id, tell
        self._sinks = list(sinks)
        self._lines = HistoryLines(store, conversation.session_id)
        self._at = conversation.version - 1
        if sinks and conversation.recovery is not None:
            self._complete(session_before(store, conversation.id, conversation.version))

    def follow(self) -> None:
        """Send new lines to the sinks."""
        if not self._sinks:
            return
        for event in self._store.read(self._conversation_id, after=self._at):
            self._at = event.version
            ended = event.type in ("turn_end", "session_end")
            lines = list(self._lines.of(event))
            for sink in list(self._sinks):
                self._append(sink, lines, flush=ended)

    def _complete(self, events: list[RecordedEvent]) -> None:
        """Send the sinks the missing lines of the previous session."""
        session_id = events[0].meta.session_id if events else None
        if session_id is None:
            return
        made = HistoryLines(self._store, session_id)
        lines = [line for event in events for line in made.of(event)]
        for sink in list(self._sinks):
            count = getattr(sink, "count", None)
            if count is None:
                continue
            try:
                known = count(session_id)
            except Exception as error:
                self._drop(sink, error)
            else:
                self._append(sink, lines[known:], flush=True)

    def _append(self, sink: HistorySink, lines: list[JsonObject], *, flush: bool) -> None:
        try:
            for line in lines:
                sink.append(line)
            if lines and flush:
                sink.flush()
        except Exception as error:  # of any kind: the log has the turn, and the turn continues
            self._drop(sink, error)

    def _drop(self, sink: HistorySink, error: Exception) -> None:
        self._sinks.remove(sink)
        why = f"{type(error).__name__}: {error}"
        _log.warning("history sink failed", sink=type(sink).__name__, error=why)
        rest = (
            "the next opening writes the rest"
            if hasattr(sink, "count")
            else "it receives nothing more"
        )
        self._tell("note", f"{type(sink).__name__} failed ({why}): {rest}")
