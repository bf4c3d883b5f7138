"""What every parser stands on: plain values of SDK objects, deltas, merging, who sells a model.

A parser is fed the chunks of a stream as they come and keeps everything that was received, so that
at any moment it can tell the delta of the last chunk, the message so far and what a broken stream
left. The deltas of a stream, put together, are its message: nothing is in one that is not in the
other.

Whatever a caller feeds becomes plain JSON that the event store can keep. SDK objects are asked for
their fields (those which were set, as the provider sent them). What JSON cannot express becomes
text rather than an error: recording never breaks the product's own loop. Pieces of an object become
one: texts grow, lists too, by ``index`` where their items have one; numbers, names and ids are
replaced. A piece costs what it is long, however much there is already.

Prices depend on the seller, and many servers offer the same models, so a name that several of them
use tells nothing: no seller is better than a wrong one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Protocol

from eventstore.events import AssistantMessage, PartialToolCall, TokenUsage, ToolCallDelta
from eventstore.events.base import JsonObject
from eventstore.events.values import LlmErrorKind

__all__ = [
    "Delta",
    "Growing",
    "Partial",
    "StreamError",
    "StreamParser",
    "as_chunk",
    "attribute",
    "plain",
    "seller_of",
    "told",
    "whole",
    "word",
]


_SELLERS = (
    ("deepseek", re.compile(r"deepseek-(chat|reasoner)\b")),
    ("x-ai", re.compile(r"grok-")),
    ("openai", re.compile(r"(chatgpt|codex|computer-use|gpt|o\d)-|o\d$")),
)
_OPEN_WEIGHTS = "gpt-oss"

_DEEPEST = 100
"""Levels of nesting that every JSON reader on the way to the database accepts."""

_LONGEST_REPR = 1_000
_LARGEST_INT_BITS = 1_024

_NAMES = frozenset({"format", "id", "index", "name", "role", "signature", "type"})
"""Fields whose text is a whole, and no piece of a longer one."""


def seller_of(model: str | None) -> str | None:
    """Return the seller whose models alone go by such a name."""
    if model is None or model.startswith(_OPEN_WEIGHTS):
        return None
    return next((seller for seller, name in _SELLERS if name.match(model)), None)


def as_chunk(chunk: Any) -> Any:
    """Return a chunk as plain JSON, be it an SDK's object, a dict or a line of an event stream.

    None stands for a line that says nothing, and ``[DONE]`` for itself. A stream of Bedrock's
    InvokeModel has a model's own chunks as bytes.
    """
    value = plain(chunk)
    match value:
        case {"chunk": {"bytes": str(inner)}}:
            value = inner
    return plain(_from_line(value)) if isinstance(value, str) else value


def _from_line(text: str) -> Any:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith((":", "event:", "id:"))]
    data = "\n".join(line.removeprefix("data:").strip() for line in lines)
    if data in ("", "[DONE]"):
        return data or None
    try:
        value = json.loads(data) if data.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    return text if value is None else value


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of a foreign object, or None where it has none or cannot give it."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def word(value: Any, name: str) -> str:
    """Return an attribute of a foreign object that is a text, or an empty one."""
    try:
        found = getattr(value, name, None)
        return str.__str__(found) if isinstance(found, str) else ""
    except Exception:
        return ""


def plain(value: Any) -> Any:
    """Return a value as plain JSON: cycles cut, what is not JSON as text."""
    return _plain(value, ())


def _plain(value: Any, path: tuple[int, ...]) -> Any:
    # By exact type first: that is nearly every value of nearly every chunk.
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is not dict and kind is not list:
        # Objects of a caller may raise whatever they like when they are looked at.
        try:
            scalar = _scalar(value)
        except Exception:
            return _described(value)
        if scalar is not None:
            return scalar
    if len(path) >= _DEEPEST or id(value) in path:
        return _described(value)
    return _container(value, (*path, id(value)))


def _scalar(value: Any) -> Any:
    if isinstance(value, Enum):
        return _scalar(value.value)
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _LARGEST_INT_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return value.isoformat() if isinstance(value, date | datetime) else None


def _container(value: Any, path: tuple[int, ...]) -> Any:
    try:
        if isinstance(value, Mapping):
            return {
                key if type(key) is str else _key(key): _plain(item, path)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, path) for item in value]
        fields = _fields(value)
    except Exception:
        fields = None
    return _described(value) if fields is None else _plain(fields, path)


def _fields(value: Any) -> Any:
    if isinstance(value, type):
        return None
    dump = attribute(value, "model_dump")
    if not callable(dump):
        dump = attribute(value, "to_dict")
        return dump() if callable(dump) else None
    try:
        return dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except Exception:
        return dump()


def _key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else _described(key)


def _described(value: Any) -> str:
    try:
        return repr(value)[:_LONGEST_REPR]
    except Exception:
        return f"<{type(value).__name__}>"


@dataclass(frozen=True, slots=True)
class Delta:
    """What one chunk added; false when that is nothing.

    ``index`` of a tool-call delta is the place of the call among the message's calls, whatever
    number the provider gave it. ``raw`` holds, as plain JSON, what has no other place here.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    raw: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.refusal or self.tool_calls or self.raw)


@dataclass(frozen=True, slots=True)
class Partial:
    """What has been received, in the form in which a failure of the call is recorded."""

    text: str
    reasoning: str
    tool_calls: tuple[PartialToolCall, ...]
    usage: TokenUsage | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that came as a chunk of the stream; ``raw`` is the provider's object as it came."""

    kind: LlmErrorKind
    message: str
    retryable: bool
    raw: Any = None


class StreamParser(Protocol):
    """Takes the chunks of one model call."""

    @property
    def unknown(self) -> bool:
        """Whether nothing that was fed has told which specification this is."""

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is complete; usage may still follow."""

    @property
    def error(self) -> StreamError | None:
        """The first error that came in the stream."""

    def feed(self, chunk: Any) -> Delta:
        """Take a chunk, an SDK's object or a dict, and return what it added.

        Never raises: a chunk that nobody knows, and what is not a chunk at all, comes back in the
        delta's ``raw``.
        """

    def message(self, **fields: Any) -> AssistantMessage:
        """Return what has been received as the final payload; ``fields`` come before its own."""

    def partial(self) -> Partial:
        """Return what has been received as the remains of a call that failed."""


def told(fields: JsonObject, known: frozenset[str]) -> JsonObject:
    """Return the fields that are not among the known ones and say something."""
    return {
        key: value
        for key, value in fields.items()
        if key not in known and value is not None and value not in ("", [], {})
    }


def whole(value: Any) -> Any:
    """Return a JSON value as it is, and of one that grows what it has come to."""
    return value.value() if isinstance(value, _Grown) else value


class _Grown:
    """A value that has been added to; what it was made of is never changed."""

    def value(self) -> Any:
        """Return it as plain JSON."""
        raise NotImplementedError


class Growing(_Grown):
    """An object to which pieces are added."""

    def __init__(self, start: JsonObject | None = None) -> None:
        self._fields: dict[str, Any] = dict(start or {})

    def __bool__(self) -> bool:
        """Whether it has any field."""
        return bool(self._fields)

    def add(self, piece: JsonObject) -> None:
        """Add a piece."""
        for key, value in piece.items():
            old = self._fields.get(key)
            self._fields[key] = value if key in _NAMES else _joined(old, value)

    def value(self) -> JsonObject:
        """Return the object as plain JSON."""
        return {key: whole(value) for key, value in self._fields.items()}


class _Text(_Grown):
    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def value(self) -> str:
        return "".join(self.pieces)


class _Items(_Grown):
    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = list(items)
        self._places: dict[tuple[Hashable, Hashable], int] = {}
        for place, item in enumerate(self._items):
            self._places.setdefault(_named(item), place)

    def add(self, item: Any) -> None:
        name = _named(item)
        place = None if name[0] is None else self._places.get(name)
        if place is None:
            self._places.setdefault(name, len(self._items))
            self._items.append(item)
            return
        held = self._items[place]
        if not isinstance(held, Growing):
            held = self._items[place] = Growing(held)
        held.add(item)

    def value(self) -> list[Any]:
        return [whole(item) for item in self._items]


def _joined(old: Any, new: Any) -> Any:
    if isinstance(new, str) and isinstance(old, str | _Text):
        if isinstance(old, str):
            return _Text(old, new)
        old.pieces.append(new)
        return old
    if isinstance(new, dict) and isinstance(old, dict | Growing):
        grown = Growing(old) if isinstance(old, dict) else old
        grown.add(new)
        return grown
    if isinstance(new, list) and isinstance(old, list | _Items | None):
        items = old if isinstance(old, _Items) else _Items(old or ())
        for item in new:
            items.add(item)
        return items
    return old if new is None else new


def _named(item: Any) -> tuple[Hashable, Hashable]:
    """Return by what an item is known in its list; the first is None if by nothing."""
    if not isinstance(item, dict):
        return None, None
    index, kind = item.get("index"), item.get("type")
    hashable = (str, int, float, type(None))
    return (
        index if isinstance(index, hashable) else repr(index),
        kind if isinstance(kind, hashable) else repr(kind),
    )
