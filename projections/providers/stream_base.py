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

import codecs
import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal, Protocol

from eventstore.events import AssistantMessage, PartialToolCall, TokenUsage, ToolCallDelta
from eventstore.events.base import JsonObject
from eventstore.events.values import LlmErrorKind

__all__ = [
    "Brackets",
    "Delta",
    "EventLines",
    "Growing",
    "Partial",
    "StreamError",
    "StreamParser",
    "Unread",
    "as_chunk",
    "attribute",
    "is_text",
    "joined",
    "plain",
    "seller_of",
    "unknown_fields",
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
    """Return a chunk (an SDK object, a dict or an event of an event stream) as plain JSON.

    Return None for text without data, ``[DONE]`` unchanged, and text that is not one event as it
    is. Chunks of Bedrock's InvokeModel are unwrapped: they hold the model's own chunks as bytes.
    """
    value = plain(chunk)
    match value:
        case {"chunk": {"bytes": str(inner)}}:
            value = inner
    if not isinstance(value, str):
        return value
    lines = EventLines()
    found = [*lines.feed(value), *lines.end()]
    if not found:
        return None
    return found[0] if len(found) == 1 and not isinstance(found[0], Unread) else value


_MARKS = re.compile(r"[{}\[\]]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_CLOSED = re.compile(r'(?:[^"]|"(?:[^"\\]|\\.)*+")*+', re.DOTALL)
"""All before a string that has not ended."""


class Brackets:
    """Scans JSON in pieces, each of them once, for the end of its first object or list.

    Attributes:
        closed: Whether the first bracket has been closed.
        quoted: Whether the text so far ends within a string.
    """

    __slots__ = ("_depth", "_escaped", "closed", "quoted")

    def __init__(self) -> None:
        self.closed = self.quoted = False
        self._depth = 0
        self._escaped = ""

    def look(self, piece: str) -> None:
        """Take the next piece."""
        text = ('"' if self.quoted else "") + self._escaped + piece
        known = _CLOSED.match(text)
        end = known.end() if known is not None else 0
        rest, self.quoted = text[end + 1 :], end < len(text)
        self._escaped = "\\" if self.quoted and (len(rest) - len(rest.rstrip("\\"))) % 2 else ""
        outside = _STRING.sub("", text[:end])
        opened, ended = (sum(map(outside.count, marks)) for marks in ("{[", "}]"))
        if ended < max(self._depth, 1):  # counted at once, however deep it is
            self._depth += opened - ended
            return
        for mark in _MARKS.finditer(outside):
            self._depth += 1 if mark[0] in "{[" else -1
            if self._depth <= 0:
                self.closed = True
                return


_LINE_END = re.compile(r"\r\n|\n|\r")
"""The line ends of server-sent events; `str.splitlines` has more, which a string may contain."""
_FIELDS = ("data", "event", "id", "retry")
_FIELD = re.compile(rf"({'|'.join(_FIELDS)}):")
_DONE = "[DONE]"


class Unread(str):
    """Text of an event stream that is neither JSON nor a field of the stream."""

    __slots__ = ()


class _ArrayItems:
    """Reads the objects of a JSON array from text in any pieces.

    Attributes:
        is_array: Whether it is one, as far as is known.
        left: The text that is not part of a complete object yet.
    """

    def __init__(self) -> None:
        self.is_array = True
        self._pieces: list[str] = []
        self._started = self._in_object = False
        self._brackets = Brackets()

    @property
    def left(self) -> str:
        return "".join(self._pieces)

    @property
    def within(self) -> bool:
        """Whether the array has not ended."""
        return self.left.strip() != "]"

    def feed(self, text: str) -> list[Any]:
        """Take text; return the objects that it completes."""
        if self._in_object:
            self._pieces.append(text)
            self._brackets.look(text)
            return self._objects(self.left) if self._brackets.closed else []
        return self._objects(self.left + text)

    def end(self, text: str) -> list[Any]:
        """Return what is left at the end of the stream."""
        found, left = self.feed(text), self.left.strip()
        self._pieces = []
        return found if left in ("", "]") else [*found, Unread(left)]

    def _objects(self, text: str) -> list[Any]:
        found: list[Any] = []
        at = 0
        if not self._started and len(bare := text.lstrip()) > 1:
            self.is_array = bare[1:].lstrip()[:1] in ("", "{", "]")
            self._started = self.is_array and bool(bare[1:].strip())
        while self._started:
            if (start := _BETWEEN.match(text, at)) is not None:
                at = start.end()
            if not text.startswith("{", at):
                break
            try:
                value, at = _DECODER.raw_decode(text, at)
                found.append(value)
            except (ValueError, RecursionError):
                if self._brackets.closed:
                    found.append(Unread(text[at:]))
                    at = len(text)
                else:
                    self._brackets.look(text[at:])
                    self._in_object = True
                    break
            self._in_object, self._brackets = False, Brackets()
        rest = text[at:]
        if self._started and not self._in_object and rest.strip() not in ("", "]"):
            found.append(Unread(rest))
            rest = ""
        self._pieces = [rest]
        return found


_BETWEEN = re.compile(r"[\[,\s]*")
_DECODER = json.JSONDecoder()


class EventLines:
    """Reads server-sent events, lines of JSON, or a JSON array, from text in any pieces.

    Text may be split anywhere, within a line and within a character, or come as lines without their
    ends. An event is returned as soon as its data is complete JSON, or at the blank line after it.
    Only CR, LF and CRLF end a line. An array is what Gemini's REST API sends unless it is asked for
    events; each of its objects is an event.

    Args:
        strict: Whether only a blank line ends an event, as the standard says.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line: list[str] = []
        self._data: list[str] = []
        self._brackets = Brackets()
        self._event = ""
        self._started = False
        self._array: _ArrayItems | None = None
        self._after_return = False

    def feed(self, passed: str | bytes) -> list[Any]:
        """Take text; return the events that it completes: JSON, ``[DONE]`` or `Unread`."""
        text = passed if isinstance(passed, str) else self._decoder.decode(passed)
        if not text:
            return []
        if not self._started:
            text = text.removeprefix("\ufeff")
            self._started = bool(text.strip())
            if not self._strict and text.lstrip().startswith("["):
                self._array = _ArrayItems()
        if self._array is not None:
            found = self._array.feed(text)
            if self._array.is_array:
                return found
            text, self._array = self._array.left, None  # for example ``[DONE]``
        if self._after_return:
            text = text.removeprefix("\n")
        self._after_return = text.endswith("\r")
        first, *others = _LINE_END.split(text)
        found = self._piece(first)
        for part in others:
            found += self._end_line()
            found += self._piece(part)
        return found

    @property
    def within(self) -> bool:
        """Whether an event has begun, and is not complete."""
        if self._array is not None:
            return self._array.within
        left = (*self._data, _value("".join(self._line)))
        return any(line.strip() not in ("", _DONE) for line in left)

    def end(self) -> list[Any]:
        """Return what is left at the end of the stream."""
        if self._array is not None:
            return self._array.end(self._decoder.decode(b"", final=True))
        found = self._piece(self._decoder.decode(b"", final=True))
        return found if self._strict else [*found, *self._end_line(), *self._dispatch()]

    def _piece(self, text: str) -> list[Any]:
        """Take a piece of a line."""
        if not text or self._strict:
            self._line += [text] if text else []
            return []
        found: list[Any] = []
        if self._line and _FIELD.match(text) and (not self._brackets.quoted or _event(text)):
            # The line before came without its end.
            found = self._end_line()
        self._line.append(text)
        start = self._line[0] if len(self._line[0]) > 5 else "".join(self._line)[:6]
        kind = _kind_of_line(start)
        if kind == "text":
            line, self._line = "".join(self._line), []
            return [*found, Unread(line)]
        if kind == "data":
            self._brackets.look(text)
            if self._brackets.closed:
                value = _value("".join(self._line))
                data = _json("\n".join((*self._data, value)))
                if data is not None:
                    self._line = []
                    return [*found, *self._take(data)]
        return found

    def _end_line(self) -> list[Any]:
        """Take the end of a line."""
        line, self._line = "".join(self._line), []
        if not line if self._strict else not line.strip(" \t"):
            return self._dispatch()
        name, _, value = line.partition(":")
        if name == "event":
            self._event = value.strip()
        elif name == "data" or (not self._strict and _kind_of_line(line) == "data"):
            self._data.append(_value(line))
        elif not self._strict and _kind_of_line(line) == "part":
            return [Unread(line)]
        return []

    def _dispatch(self) -> list[Any]:
        lines = self._data
        data = "\n".join(lines)
        if not data.strip():
            self._reset()
            return []
        found = _json(data)
        if found is not None or len(lines) == 1:
            return self._take(Unread(data) if found is None else found)
        # The server has omitted the blank line between two events.
        whole = [_json(line) for line in lines]
        if not any(each is not None for each in whole):
            return self._take(Unread(data))
        self._reset()
        pairs = zip(lines, whole, strict=True)
        return [Unread(line) if each is None else each for line, each in pairs]

    def _take(self, found: Any) -> list[Any]:
        event = self._event
        self._reset()
        if event == "error":
            if isinstance(found, Unread):
                return [{"error": {"message": str(found)}}]
            if isinstance(found, dict) and "error" not in found and found.get("type") != "error":
                return [{"error": found}]
        return [found]

    def _reset(self) -> None:
        self._data, self._event, self._brackets = [], "", Brackets()


def _kind_of_line(start: str) -> Literal["data", "field", "part", "text"]:
    """Return what the start of a line shows: data, another field, too little, or mere text."""
    if start.startswith(":"):
        return "field"
    name, colon, _ = start.partition(":")
    if colon and name in _FIELDS:
        return "data" if name == "data" else "field"
    bare = start.lstrip(" \t")
    if bare.startswith(("{", _DONE)):
        return "data"
    starts = (*_FIELDS, _DONE)
    return "part" if any(each.startswith(bare) for each in starts) else "text"


def _value(line: str) -> str:
    """Return the data in a line."""
    return line[5:].removeprefix(" ") if line.startswith("data:") else line


def _event(text: str) -> bool:
    return text.startswith("data:") and bool(_json(_value(text)))


def _json(data: str) -> Any:
    """Return the object in a text, ``[DONE]``, or None."""
    data = data.strip()
    if data == _DONE:
        return data
    try:
        return json.loads(data) if data.startswith("{") else None
    except (ValueError, RecursionError):
        return None


def is_text(value: Any) -> bool:
    """Whether a chunk is text or bytes; not even its class is asked, which may raise."""
    return issubclass(type(value), str | bytes | bytearray)


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


def joined(deltas: Sequence[Delta]) -> Delta:
    """Return deltas as one."""
    if len(deltas) == 1:
        return deltas[0]
    return Delta(
        text="".join(delta.text for delta in deltas),
        reasoning="".join(delta.reasoning for delta in deltas),
        refusal="".join(delta.refusal for delta in deltas),
        tool_calls=tuple(piece for delta in deltas for piece in delta.tool_calls),
        raw=tuple(raw for delta in deltas for raw in delta.raw),
    )


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

    @property
    def pending(self) -> str | None:
        """The status of an answer that the provider is still making in the background."""

    @property
    def unread(self) -> bool:
        """Whether text in the stream was no event of it; the deltas' ``raw`` has it."""

    def feed(self, chunk: Any) -> Delta:
        """Take a chunk, an SDK object or a dict, and return what it added.

        Never raises: an unknown chunk, or a value that is no chunk, is returned in the delta's
        ``raw``.
        """

    def end(self, *, closed: bool = False, marked: bool = False) -> Delta:
        """Take the end of the stream, and return what it added.

        Some servers mark no answer complete. The answer is, if they ended the stream in order and
        no tool call was cut.

        Args:
            closed: Whether the server closed the connection in order; a broken one raises.
            marked: Whether the server ended the stream with a mark that is no chunk.
        """

    def message(self, **fields: Any) -> AssistantMessage:
        """Return what has been received as the final payload; ``fields`` override its own."""

    def partial(self) -> Partial:
        """Return what has been received as the partial answer of a failed call."""


def unknown_fields(fields: JsonObject, known: frozenset[str]) -> JsonObject:
    """Return the fields that are not known and not empty."""
    return {
        key: value
        for key, value in fields.items()
        if key not in known and value is not None and value not in ("", [], {})
    }


def whole(value: Any) -> Any:
    """Return a value as plain JSON, resolving a growing one to its current value."""
    return value.value() if isinstance(value, _GrownText) else value


class _GrownText:
    """A value built from pieces, which are never modified."""

    def value(self) -> Any:
        """Return the value as plain JSON."""
        raise NotImplementedError


class Growing(_GrownText):
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


class _Text(_GrownText):
    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def value(self) -> str:
        return "".join(self.pieces)


class _Items(_GrownText):
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
        growing = self._items[place]
        if not isinstance(growing, Growing):
            growing = self._items[place] = Growing(growing)
        growing.add(item)

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
