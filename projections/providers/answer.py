"""The accumulator of a streamed answer: text, reasoning, tool calls, completeness of arguments.

Each piece is added both to the answer so far and to the delta of the current chunk, so deltas and
message cannot differ. Parts and calls are ordered by when they began; the position of a call is its
index. A call's arguments arrive as pieces of text; `Wholeness` detects when they form a complete
JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from eventstore.events import (
    ContentPart,
    OtherPart,
    PartialToolCall,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallDelta,
    ToolCallRequest,
)
from eventstore.events.base import JsonObject
from projections.context.payload_messages import FREE_TEXT, depth_of, strict_json
from projections.providers.stream_base import Brackets, Delta, Growing, unknown_fields, whole

__all__ = ["Answer", "Call", "Kind", "Wholeness"]


Kind = Literal["text", "reasoning", "refusal"]


class Wholeness:
    """Scans each piece once, and parses the text once, when its first bracket is closed."""

    def __init__(self) -> None:
        self._seen = 0
        self._brackets = Brackets()
        self._whole: bool | None = None

    @property
    def closed(self) -> bool:
        """Whether the first bracket has been closed, by the pieces of the last call of `of`."""
        return self._brackets.closed

    def of(self, pieces: Sequence[str]) -> bool:
        """Return whether the pieces form a JSON object; only pieces may be added between calls."""
        for piece in pieces[self._seen :]:
            if self._brackets.closed:
                self._whole = False if piece.strip() else self._whole
            else:
                self._brackets.look(piece)
        self._seen = len(pieces)
        if self._brackets.closed and self._whole is None:
            self._whole = _is_object("".join(pieces))
        return bool(self._whole)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _begins(old: Any, new: Any) -> bool:
    return bool(old == new) or (
        isinstance(old, str) and isinstance(new, str) and new.startswith(old)
    )


@dataclass(slots=True)
class Call:
    """A tool call while it arrives.

    Attributes:
        free_text: Whether the input is not JSON by design.
        ended: Whether an event has ended the call.
        value: Arguments that came as a value, until they become the text.
        from_value: Whether the text was made from a value.
    """

    name: str = ""
    provider_id: str | None = None
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    raw: JsonObject | Growing = field(default_factory=dict)
    free_text: bool = False
    wholeness: Wholeness = field(default_factory=Wholeness)
    ended: bool = False
    value: Any = None
    from_value: bool = False

    @property
    def arguments(self) -> str:
        """The text of the arguments so far, of ``size`` characters."""
        return "".join(self.pieces)

    def add(self, arguments: str) -> None:
        """Add a piece of the arguments."""
        if arguments:
            self.pieces.append(arguments)
            self.size += len(arguments)

    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        return not self.free_text and self.wholeness.of(self.pieces)

    def is_cut(self) -> bool:
        """Whether some of the arguments have come, but not all."""
        return bool(self.arguments.strip()) and not self.free_text and self.may_be_cut()

    def may_be_cut(self) -> bool:
        """Whether nothing shows that all of the arguments have come."""
        whole = self.ended or self.value or self.is_whole() or self.wholeness.closed
        return not whole and self.snapshot() is None

    def snapshot(self) -> str | None:
        """Return the arguments if each piece, or the last one, repeated all that had come before.

        Such pieces joined are not JSON, while the last one is: a piece that continues another, as
        in nested objects that begin alike, makes the whole an object.
        """
        if len(self.pieces) < 2 or self.free_text or self.is_whole():
            return None
        last = self.pieces[-1]
        repeated = all(later.startswith(piece) for piece, later in pairwise(self.pieces))
        if not (repeated or last.startswith("".join(self.pieces[:-1]))):
            return None
        return last if _is_object(last) else None

    def says(self, value: Any) -> bool:
        """Whether the arguments so far are the text of this value."""
        try:
            found: bool = json.loads(self.arguments) == value
        except (ValueError, RecursionError):
            return False
        return found

    def repeats(self, text: str) -> bool:
        """Whether a text is the arguments so far, however it is formatted, or encoded once more."""
        if text == self.arguments:
            return True
        if not text.lstrip().startswith(("{", '"')):
            return False
        try:
            value = json.loads(text)
            return self.says(json.loads(value) if isinstance(value, str) else value)
        except (ValueError, RecursionError):
            return False

    def grows_into(self, text: str) -> bool:
        """Whether a text is an object that the arguments so far are the beginning of."""
        try:
            before, after = json.loads(self.arguments), json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not (isinstance(before, dict) and isinstance(after, dict)):
            return False
        return all(key in after and _begins(old, after[key]) for key, old in before.items())

    @property
    def streamed(self) -> str:
        """The text of the arguments so far, or of the value that came instead."""
        if self.size or not self.value:
            return self.arguments
        return json.dumps(self.value, ensure_ascii=False)

    def keep(self, extra: JsonObject) -> None:
        """Add the fields of a piece other than name, id and arguments."""
        if not isinstance(self.raw, Growing):
            self.raw = Growing(self.raw)
        self.raw.add(extra)

    @property
    def whole_raw(self) -> JsonObject:
        """The call's fields other than name, id and arguments."""
        found: JsonObject = whole(self.raw)
        return found

    def request(self, complete: bool) -> ToolCallRequest:
        """Return the call as the model produced it.

        In a complete answer, empty arguments mean no arguments: servers send this for tools without
        parameters.
        """
        text = self.arguments
        found = request_of(self.name, text, self.provider_id)
        update: dict[str, Any] = {"raw": self.whole_raw or None}
        if self.free_text:
            update |= {"arguments": None, "parse_error": FREE_TEXT}
        elif complete and not text.strip():
            update |= {"arguments": {}, "parse_error": None}
        return found.model_copy(update=update)


@dataclass(slots=True)
class _Segment:
    kind: Literal["text", "reasoning", "refusal", "other"]
    key: Hashable
    pieces: list[str] = field(default_factory=list)
    signature: str | None = None
    raw: Any = None

    def part(self) -> ContentPart:
        text = "".join(self.pieces)
        match self.kind:
            case "text":
                return TextPart(text=text)
            case "refusal":
                return RefusalPart(text=text)
            case "reasoning":
                return ReasoningPart(text=text, signature=self.signature, raw=whole(self.raw))
        return OtherPart(raw=whole(self.raw))


class Answer:
    """Accumulates the answer of one model call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.replaced: list[JsonObject] = []
        self._segments: list[_Segment] = []
        self._named: dict[tuple[str, Hashable], list[_Segment]] = {}
        self._latest: dict[str, _Segment] = {}
        self._texts: dict[str, list[str]] = {}
        self._pieces: list[ToolCallDelta] = []
        self._raw: list[Any] = []

    @property
    def has_spoken(self) -> bool:
        """Whether text or a piece of a call was added since the last `take`."""
        return bool(self._texts or self._pieces)

    @property
    def has_content(self) -> bool:
        """Whether there is any text, reasoning or call."""
        return bool(self._segments or self.calls)

    @property
    def has_cut_call(self) -> bool:
        """Whether some of a call's arguments have come, but not all."""
        return any(call.is_cut() for call in self.calls)

    @property
    def can_be_complete(self) -> bool:
        """Whether it has text or a call, and no call may lack a part of its arguments."""
        spoken = self.calls or any(each.kind != "reasoning" for each in self._segments)
        return bool(spoken) and not any(call.may_be_cut() for call in self.calls)

    def take(self) -> Delta:
        """Return what was added since the last call of this method."""
        if not (self._texts or self._pieces or self._raw):
            return Delta()
        texts = {kind: "".join(pieces) for kind, pieces in self._texts.items()}
        delta = Delta(**texts, tool_calls=tuple(self._pieces), raw=tuple(self._raw))
        self._texts, self._pieces, self._raw = {}, [], []
        return delta

    def say(self, kind: Kind, key: Hashable, text: str) -> None:
        """Add a piece of text to the part named ``key``.

        If a later part of the same kind has begun, a new part is opened under this key, so that
        texts stay in the order in which they were streamed.
        """
        if text:
            self._segment(kind, key).pieces.append(text)
            self._texts.setdefault(kind, []).append(text)

    def text_of(self, kind: Kind, key: Hashable) -> str:
        """Return the text so far of the part named ``key``."""
        found = self._named.get((kind, key), ())
        return "".join(piece for part in found for piece in part.pieces)

    def replace(self, kind: Kind, key: Hashable, text: str) -> None:
        """Replace the text of a part; both texts are kept in `replaced`."""
        found = self._named[kind, key]
        self._note_replaced(kind, self.text_of(kind, key), text)
        for each in found:
            each.pieces.clear()
        found[0].pieces.append(text)

    def replace_call(self, index: int, arguments: str) -> None:
        """Replace the arguments of a call; both texts are kept in `replaced`."""
        call = self.calls[index]
        self._note_replaced("arguments", call.arguments, arguments)
        call.pieces, call.size, call.wholeness = [arguments], len(arguments), Wholeness()
        call.from_value = False

    def _note_replaced(self, kind: str, streamed: str, text: str) -> None:
        self.replaced.append({"kind": kind, "streamed": streamed})
        self.keep({"type": "replaced", "kind": kind, "streamed": streamed, "text": text})

    def sign(self, key: Hashable, signature: str | None, raw: Any = None) -> None:
        """Store the signature and raw object that the provider requires back with the reasoning."""
        found = self._known("reasoning", key) or self._segment("reasoning", key)
        found.signature = signature or found.signature
        found.raw = raw or found.raw

    def show(self, key: Hashable, raw: Any) -> None:
        """Add or update a part of an unknown kind, unless it is empty; the delta is not changed."""
        if isinstance(raw, dict) and not unknown_fields(raw, frozenset()):
            return
        (self._known("other", key) or self._segment("other", key)).raw = raw

    def keep(self, raw: Any) -> None:
        """Add to the delta's ``raw``, and to nothing else."""
        self._raw.append(raw)

    def open_call(self, **fields: Any) -> int:
        """Begin a tool call and return its index."""
        call, index = Call(**fields), len(self.calls)
        self.calls.append(call)
        self._pieces.append(
            ToolCallDelta(index=index, provider_id=call.provider_id, name=call.name or None)
        )
        return index

    def add_to_call(
        self, index: int, arguments: str = "", name: str = "", provider_id: str | None = None
    ) -> None:
        """Add a piece to a call; its first id is final."""
        call = self.calls[index]
        provider_id = provider_id if call.provider_id is None else None
        if arguments or name or provider_id:
            call.name += name
            call.provider_id = call.provider_id or provider_id
            call.add(arguments)
            self._pieces.append(
                ToolCallDelta(
                    index=index, provider_id=provider_id, name=name or None, arguments=arguments
                )
            )

    def parts(self) -> tuple[ContentPart, ...]:
        """Return the parts so far."""
        return tuple(segment.part() for segment in self._segments)

    def requests(self, complete: bool) -> tuple[ToolCallRequest, ...]:
        """Return the calls so far as requests; a call without a name is none."""
        return tuple(call.request(complete) for call in self.calls if call.name)

    def unnamed(self) -> list[JsonObject]:
        """Return what was received of calls that have no name."""
        found = [call for call in self.calls if not call.name and call.streamed]
        return [{"id": call.provider_id, "arguments": call.streamed} for call in found]

    def partial_calls(self) -> tuple[PartialToolCall, ...]:
        """Return the calls so far as what a broken stream left."""
        return tuple(
            PartialToolCall(
                index=index,
                provider_id=call.provider_id,
                name=call.name or None,
                arguments_text=call.streamed,
            )
            for index, call in enumerate(self.calls)
            if call.name or call.streamed
        )

    def all_of(self, kind: Kind) -> str:
        """Return all text of a kind."""
        parts = [part for part in self._segments if part.kind == kind]
        return "".join(piece for part in parts for piece in part.pieces)

    def _known(self, kind: str, key: Hashable) -> _Segment | None:
        found = self._named.get((kind, key))
        return found[-1] if found else None

    def _segment(self, kind: Any, key: Hashable) -> _Segment:
        found = self._latest.get(kind)
        if found is None or found.key != key:
            found = self._latest[kind] = _Segment(kind, key)
            self._segments.append(found)
            self._named.setdefault((kind, key), []).append(found)
        return found


_DEEPEST = 100


_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


def request_of(name: str, text: str, provider_id: str | None = None) -> ToolCallRequest:
    """Return a tool call whose arguments are parsed, if they are an object."""
    arguments, error, warning = arguments_in(text)
    return ToolCallRequest(
        name=name,
        arguments_text=text,
        provider_id=provider_id,
        arguments=arguments,
        parse_error=error,
        parse_warning=warning,
    )


def arguments_in(text: str) -> tuple[dict[str, Any] | None, str | None, str | None]:
    """Return a model's arguments, or why they cannot be parsed, and a warning about their form.

    The reason continues a sentence such as "the arguments are not a JSON object: ...". They are
    parsed strictly, except that a surrounding code block is removed, with a warning.
    """
    fenced = _FENCED.fullmatch(text)
    try:
        value = strict_json(text if fenced is None else fenced[1])
        # This many brackets are rare, so only then is it worth checking how they nest.
        if text.count("[") + text.count("{") > _DEEPEST and depth_of(value) > _DEEPEST:
            raise ValueError("nested too deeply")
    except ValueError as error:
        return None, str(error), None
    except RecursionError:
        return None, "nested too deeply", None
    if not isinstance(value, dict):
        return None, "JSON, but not an object", None
    return value, None, None if fenced is None else "the arguments stood in a block of code"
