"""How much of a foreign file its reader understands, found out before anything is written.

Whatever its format, a file of a conversation holds objects with an author and a text. They are
looked for without regard to the format, and compared with the events that the reader makes: a
user's text must be in an event of a user, any other text in some event. A reader of a format that a
file only resembles leaves most of them out, which nobody would notice afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.transcript import Transcript
from eventstore import NewEvent
from eventstore.events import UnknownEvent, UserMessage
from eventstore.events.codec import encode, loads_json
from eventstore.events.own import UNINTERPRETED

__all__ = ["Coverage", "coverage_of"]

# What is looked at: of the events much more than of the texts, which must be among them.
_MOST_TEXTS, _MOST_CHARACTERS = 500, 1_000_000
_MOST_EVENTS, _MOST_IN_EVENTS = 8_000, 32_000_000
_LEAST = 0.5
_DEEPEST = 40
_AUTHORS = ("role", "sender", "author", "from", "speaker", "type", "kind")
_TEXTS = (
    *("content", "text", "parts", "message", "markdown", "body", "value", "data", "kwargs"),
    *("items", "response"),
)
_USER = frozenset({"user", "human", "prompter", "customer", "humanmessage"})
_MODEL = frozenset({"assistant", "ai", "model", "bot", "gpt", "chatbot", "agent", "aimessage"})
_RESULTS = frozenset({"tool_result", "tool-result", "function_call_output", "tool", "function"})
_OF_RESULTS = frozenset({"content", "result", "output", "run"})
_LEAST_RESULT = 12  # characters; shorter ones may be a status
_COMPARED = 160  # characters of a text
_BLANK = re.compile(r"\s+")


@dataclass(slots=True)
class Share:
    """How many texts of a kind a file has, and how many of them are in the events."""

    texts: int = 0
    understood: int = 0

    def __str__(self) -> str:
        """Return both numbers in words."""
        return f"{self.understood:,} of {self.texts:,}"


@dataclass(slots=True)
class Coverage:
    """What a reader makes of a file.

    Attributes:
        users: Texts of users; understood if a message of a user has them.
        models: Texts of models; understood if any event has them.
        results: Results of tools; likewise.
        messages: The events that the reader makes, without those that it does not understand.
        unknown: The messages that the reader keeps as they came, without understanding them.
        conversations: The conversations of the file that the reader does not refuse itself.
    """

    users: Share = field(default_factory=Share)
    models: Share = field(default_factory=Share)
    results: Share = field(default_factory=Share)
    messages: int = 0
    unknown: int = 0
    conversations: int = 0

    @property
    def is_certain(self) -> bool:
        """Whether at least half of each kind is understood."""
        shares = (self.users, self.models, self.results)
        whole = all(each.understood >= _LEAST * each.texts for each in shares)
        return whole and self.unknown <= self.messages

    def __str__(self) -> str:
        """Return the counts in words."""
        kinds = (("users", self.users), ("models", self.models), ("tools", self.results))
        counts = ", ".join(f"{share} texts of {name}" for name, share in kinds if share.texts)
        unknown = f"; not understood: {self.unknown:,} messages" if self.unknown else ""
        return f"understood: {counts or 'nothing'}{unknown}"


def coverage_of(values: Iterable[Any], read: Iterable[Transcript | ImportFailed]) -> Coverage:
    """Return what a reader makes of a file.

    Args:
        values: The file's JSON values.
        read: What the reader makes of the same file.
    """
    found, of_users, of_all = Coverage(), list[str](), list[str]()
    size = 0
    for event in islice(_events(read, found), _MOST_EVENTS):
        if size > _MOST_IN_EVENTS:
            break
        data = event.data
        if isinstance(data, UnknownEvent):
            found.unknown += data.type in UNINTERPRETED
            continue
        found.messages += 1
        text = _compared(" ".join(_strings(loads_json(encode(data)))))
        of_all.append(text)
        size += len(text)
        if isinstance(data, UserMessage):
            of_users.append(text)
    user_text, whole_text = "\n".join(of_users), "\n".join(of_all)
    seen: set[tuple[str, str]] = set()
    pieces = (each for value in values for each in _messages(value, 0))
    size = 0
    for kind, text in islice(pieces, _MOST_TEXTS):
        size += len(text)
        if size > _MOST_CHARACTERS and seen:
            break
        piece = _compared(text)[:_COMPARED]
        if piece and (kind, piece) not in seen:
            seen.add((kind, piece))
            share = getattr(found, kind)
            share.texts += 1
            share.understood += piece in (user_text if kind == "users" else whole_text)
    return found


def _events(read: Iterable[Transcript | ImportFailed], found: Coverage) -> Iterator[NewEvent]:
    for each in read:
        if isinstance(each, Transcript):
            found.conversations += 1
            items = each.events if each.stream is None else each.stream.read({})
            yield from (item for item in items if isinstance(item, NewEvent))


def _messages(value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of everything that looks like a message or a result."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list | tuple):
        for each in value:
            yield from _messages(each, depth + 1)
    elif isinstance(value, Mapping):
        fields = {str(key).lower(): each for key, each in value.items()}
        author = _author_of(fields)
        if author == "results":
            texts = (text for text in _strings(value) if " " in text)
            yield from ((author, text) for text in texts if len(text) >= _LEAST_RESULT)
            return
        if author is not None:
            for key in _TEXTS:
                yield from ((author, text) for text in _texts(fields.get(key), 0))
        for key, each in fields.items():
            named = _kind_of(key) if isinstance(each, Mapping) else None
            if named is not None:  # The key is the author.
                yield from ((named, text) for text in _texts(each, 0))
            if isinstance(each, list | tuple | Mapping):
                yield from _messages(each, depth + 1)


def _kind_of(author: str) -> str | None:
    name = author.lower()
    if name in _USER:
        return "users"
    return "models" if name in _MODEL else None


def _author_of(fields: Mapping[str, Any]) -> str | None:
    """Return who wrote an object, as a field of `Coverage`; None if it does not say."""
    if isinstance(by_user := fields.get("iscreatedbyuser"), bool):
        return "users" if by_user else "models"
    for key in _AUTHORS:
        author = fields.get(key)
        if isinstance(author, Mapping):
            names = (author.get(name) for name in ("role", "label", "Label", "name"))
            author = next((name for name in names if isinstance(name, str)), None)
        if isinstance(author, str):
            if author.lower() in _RESULTS and fields.keys() & {
                "content",
                "result",
                "output",
                "run",
            }:
                return "results"
            if (kind := _kind_of(author)) is not None:
                return kind
    return None


def _texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts of a message, not those of messages, calls and results within it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple) and depth < _DEEPEST:
        for each in value:
            yield from _texts(each, depth + 1)
    elif isinstance(value, Mapping) and depth < _DEEPEST:
        fields = {str(key).lower(): each for key, each in value.items()}
        if _author_of(fields) is None:
            kind = fields.get("type")
            if not isinstance(kind, str) or kind.lower().endswith("text"):
                for key in _TEXTS:
                    yield from _texts(fields.get(key), depth + 1)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key != "raw":
                yield from _strings(each)


def _compared(text: str) -> str:
    return _BLANK.sub(" ", text).strip()
