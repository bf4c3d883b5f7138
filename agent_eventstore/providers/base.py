"""The base of all parsers: SDK objects as plain JSON, deltas, merging, the seller of a model.

A parser is fed the chunks of a stream and keeps everything it receives. At any moment it can return
the delta of the last chunk, the message so far, and what a broken stream left. The deltas of a
stream add up to its message exactly.

Everything fed becomes plain JSON that the event store can store. SDK objects are dumped with the
fields that were set, as the provider sent them. Values that JSON cannot express become text instead
of raising, because recording must not break the product's own loop. Pieces of an object are merged:
texts are concatenated, lists too (by ``index`` if their items have one), and numbers, names and ids
are replaced. Adding a piece costs time in proportion to its own length only.

Prices depend on the seller, and many servers offer the same models. A model name that several
sellers use therefore has no seller: none is better than a wrong one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
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
"""The nesting depth that every JSON reader on the way to the database accepts."""

_LONGEST_REPR = 1_000
_LARGEST_INT_BITS = 1_024

_NAMES = frozenset(
    {"format", "id", "index", "name", "role", "signature", "thought_signature", "type"}
)
"""Fields whose text is always complete, never a piece of a longer text."""


def seller_of(model: str | None) -> str | None:
    """Return the seller that a model name identifies, or None if several sellers use such names."""
    if model is None or model.startswith(_OPEN_WEIGHTS):
        return None
    return next((seller for seller, name in _SELLERS if name.match(model)), None)


def as_chunk(chunk: Any) -> Any:
    """Return a chunk (an SDK object, a dict or a line of an event stream) as plain JSON.

    Return None for a line without data, and ``[DONE]`` unchanged. Chunks of Bedrock's InvokeModel
    are unwrapped: they hold the model's own chunks as bytes.
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
    """Return an attribute of a foreign object, or None if it is missing or raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def word(value: Any, name: str) -> str:
    """Return a text attribute of a foreign object, or an empty text."""
    try:
        found = getattr(value, name, None)
        return str.__str__(found) if isinstance(found, str) else ""
    except Exception:
        return ""


def plain(value: Any) -> Any:
    """Return a value as plain JSON; cycles are cut, and other values become text."""
    return _plain(value, ())


def _plain(value: Any, path: tuple[int, ...]) -> Any:
    # Check the exact type first: it decides nearly every value of nearly every chunk.
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is not dict and kind is not list:
        # A caller's objects may raise anything when they are inspected.
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
    if not callable(dump):
        names = [each.name for each in fields(value)] if is_dataclass(value) else ()
        return {name: attribute(value, name) for name in names} or None
    if getattr(dump, "__name__", "") == "to_dict":
        return dump()
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
    """What one chunk added; false if nothing.

    The ``index`` of a tool-call delta is the call's position among the message's calls, not the
    provider's number. ``raw`` holds everything that has no field here, as plain JSON.
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
    """What has been received, in the form recorded with a failed call."""

    text: str
    reasoning: str
    tool_calls: tuple[PartialToolCall, ...]
    usage: TokenUsage | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that arrived as a chunk of the stream; ``raw`` is the provider's own object."""

    kind: LlmErrorKind
    message: str
    retryable: bool
    raw: Any = None


class StreamParser(Protocol):
    """Parses the chunks of one model call."""

    @property
    def unknown(self) -> bool:
        """Whether the specification is still undetected after all chunks so far."""

    @property
    def finished(self) -> bool:
        """Whether the provider has marked the answer complete; usage may still follow."""

    @property
    def error(self) -> StreamError | None:
        """The first error in the stream."""

    def feed(self, chunk: Any) -> Delta:
        """Take a chunk, an SDK object or a dict, and return what it added.

        Never raises: an unknown chunk, or a value that is no chunk, is returned in the delta's
        ``raw``.
        """

    def message(self, **fields: Any) -> AssistantMessage:
        """Return what has been received as the final payload; ``fields`` override its own."""

    def partial(self) -> Partial:
        """Return what has been received as the partial answer of a failed call."""


def told(fields: JsonObject, known: frozenset[str]) -> JsonObject:
    """Return the fields that are not known and not empty."""
    return {
        key: value
        for key, value in fields.items()
        if key not in known and value is not None and value not in ("", [], {})
    }


def whole(value: Any) -> Any:
    """Return a value as plain JSON, resolving a growing one to its current value."""
    return value.value() if isinstance(value, _Grown) else value


class _Grown:
    """A value built from pieces, which are never modified."""

    def value(self) -> Any:
        """Return the value as plain JSON."""
        raise NotImplementedError


class Growing(_Grown):
    """An object that grows by merging pieces."""

    def __init__(self, start: JsonObject | None = None) -> None:
        self._fields: dict[str, Any] = dict(start or {})

    def __bool__(self) -> bool:
        """Whether it has any field."""
        return bool(self._fields)

    def add(self, piece: JsonObject) -> None:
        """Merge a piece."""
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
    """Return the index and type that identify an item in its list; without index, None first."""
    if not isinstance(item, dict):
        return None, None
    index, kind = item.get("index"), item.get("type")
    hashable = (str, int, float, type(None))
    return (
        index if isinstance(index, hashable) else repr(index),
        kind if isinstance(kind, hashable) else repr(kind),
    )
