"""OpenAI's Responses: the events of a stream, whole answers, and their output items.

Output items begin, grow part by part, and are done. The final event repeats the whole response,
including the usage and the output items that the next request must send back; the message keeps
these under ``raw["output"]``.

A ``done`` event repeats the full text of its deltas. Whatever the deltas lacked is added as one
more piece, so a stream that skips some or all deltas still yields the whole text. If the repetition
contradicts the pieces, it wins, and the streamed text is kept in the message's ``raw["replaced"]``;
an empty repetition is ignored.
"""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from eventstore.events.base import JsonObject
from projections.providers.answer import Answer, Kind
from projections.providers.openai_responses.acts import CALLS, acts_of
from projections.providers.parser import ChunkParser, object_of, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import seller_of, unknown_fields
from projections.providers.usage import responses_usage

__all__ = ["OpenAIResponsesParser", "OutputItem", "OutputItems"]


_PARTS_OF_ITEMS: dict[str, tuple[Kind, str]] = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning", "text"),
    "summary_text": ("reasoning", "text"),
}

_TEXTS: dict[str, tuple[str, Kind, str, str]] = {
    "response.output_text": ("message", "text", "content", "text"),
    "response.refusal": ("message", "refusal", "content", "refusal"),
    "response.reasoning_text": ("reasoning", "reasoning", "content", "text"),
    "response.reasoning_summary_text": ("reasoning", "reasoning", "summary", "text"),
}
"""Item type, kind of text, field of the item, and field of the ``done`` event's whole text."""

_CALLS = {
    "response.function_call_arguments": "function_call",
    "response.custom_tool_call_input": "custom_tool_call",
}
_PARTS = {
    "response.content_part": "content",
    "response.reasoning_summary_part": "summary",
}
_GOES_ON = frozenset({"in_progress", "queued"})
_STARTS = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = frozenset(
    {
        *("response.completed", "response.done", "response.incomplete"),
        *("response.failed", "response.cancelled"),
    }
)
_OF_RESPONSE = frozenset(
    {
        *("completed_at", "created_at", "error", "id", "incomplete_details", "model", "object"),
        *("output", "output_text", "status", "type", "usage"),
        *("background", "include", "instructions", "max_output_tokens", "max_tool_calls"),
        *("metadata", "parallel_tool_calls", "prompt", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier"),
        *("store", "stream", "temperature", "text", "tool_choice", "tools", "top_logprobs"),
        *("top_p", "truncation", "user"),
    }
)
"""Fields that are stored elsewhere, or only repeat the request."""
_NOTHING = frozenset({"ping", "keepalive", "response.keepalive"})


@dataclass(slots=True)
class OutputItem:
    """An output item.

    Attributes:
        head: The provider's own object as it was when the item began.
        done: The provider's own object once complete.
    """

    number: int
    kind: str
    item_id: str | None = None
    call: int | None = None
    shown: bool = False
    texts: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    head: JsonObject | None = None
    done: JsonObject | None = None


class OutputItems:
    """The output items of one response, in order of arrival.

    An event belongs to the item that its id says, otherwise its output index, otherwise to the
    latest item of its kind: some servers change an item's id midway, others number every item 0.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._calls = ToolCalls(answer, RULES["openai_responses"])
        self._items: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}
        self._of_kind: dict[str, list[OutputItem]] = {}
        self._by_id: dict[tuple[str, str], list[OutputItem]] = {}
        self._output: list[Any] = []

    def begin(self, event: JsonObject) -> None:
        """Begin an item, from its ``added`` event."""
        body = object_of(event.get("item"))
        if not unknown_fields(body, frozenset()):
            return
        kind, index = text(body.get("type")), event.get("output_index")
        item = self._known({"item_id": body.get("id"), **event}, kind)
        before = item and (item.head or item.done)
        if item is None or (before and _differ(before, body)):
            item = self._open(kind, None)
        if isinstance(index, int):
            self._by_index[index] = item
        if item.done is None:
            item.head = body
            self._head(item, body)

    def at(self, event: JsonObject, kind: str) -> OutputItem:
        """Return the item that an event belongs to, or a new one of this kind."""
        index, item_id = event.get("output_index"), text(event.get("item_id")) or None
        found = self._known(event, kind)
        if found is None and not isinstance(index, int) and item_id is None:
            same = self._of_kind.get(kind)
            found = same[-1] if same else None
        # A number or an id that nothing began belongs to the call that is open, if one is.
        found = found or self._going_on(kind) or self._open(kind, item_id)
        if isinstance(index, int):
            self._by_index.setdefault(index, found)
        return found

    def _known(self, event: JsonObject, kind: str) -> OutputItem | None:
        """Return the item that an event's id says, otherwise the one that its number says."""
        index, item_id = event.get("output_index"), text(event.get("item_id")) or None
        numbered = self._by_index.get(index) if isinstance(index, int) else None
        named = self._by_id.get((kind, item_id)) if item_id is not None else None
        if named and numbered not in named:
            return named[-1]
        return numbered if numbered is not None and numbered.kind == kind else None

    def _going_on(self, kind: str) -> OutputItem | None:
        """Return the latest item of a kind if it has begun with an event, and is not done."""
        same = self._of_kind.get(kind)
        is_open = same is not None and same[-1].head is not None and same[-1].done is None
        return same[-1] if same is not None and is_open and kind in CALLS else None

    def say(self, item: OutputItem, kind: Kind, place: tuple[str, int], piece: str) -> None:
        """Add a piece of text to a part of an item."""
        if piece:
            item.texts.setdefault(place, []).append(piece)
            item.sizes[place] = item.sizes.get(place, 0) + len(piece)
            self._answer.say(kind, (item.number, *place), piece)

    def complete(self, item: OutputItem, kind: Kind, place: tuple[str, int], whole: str) -> None:
        """Add the rest of an item's part, given its whole text."""
        size = item.sizes.get(place, 0)
        if not size:
            self.say(item, kind, place, whole)
            return
        # Joined only once, even if the whole text arrives repeatedly.
        pieces = item.texts[place]
        pieces[:] = [streamed := "".join(pieces)]
        if whole.startswith(streamed):
            self.say(item, kind, place, whole[size:])
        elif whole:
            pieces[:], item.sizes[place] = [whole], len(whole)
            self._answer.replace(kind, (item.number, *place), whole)

    def call_of(self, item: OutputItem) -> int:
        """Return the index of the item's tool call, opening it if needed."""
        if item.call is None:
            free_text = item.kind == "custom_tool_call"
            raw = {"type": item.kind} if free_text else {}
            item.call = self._answer.open_call(free_text=free_text, raw=raw)
        return item.call

    def grow_call(self, item: OutputItem, piece: str) -> None:
        """Add a piece of a call's arguments."""
        self._calls.add_to(self.call_of(item), Piece(text=piece))

    def complete_call(self, item: OutputItem, whole: Any) -> None:
        """Add the rest of a call's arguments, given all of them."""
        if whole is not None:
            self._calls.complete(self.call_of(item), whole)

    def end(self, event: JsonObject) -> None:
        """Complete an item, from its ``done`` event."""
        body = object_of(event.get("item"))
        if unknown_fields(body, frozenset()):
            kind = text(body.get("type"))
            item = self.at({"item_id": body.get("id"), **event}, kind)
            if item.done is not None and _differ(item.done, body):
                item = self._open(kind, None)
            self._finish(item, body)

    def end_all(self, output: Any) -> None:
        """Complete all items from the final output; some servers leave it empty after a stream."""
        bodies = output if isinstance(output, list) else []
        taken: set[int] = set()
        matched: dict[int, OutputItem] = {}
        for place, body in enumerate(bodies):
            named = self._by_id.get(
                (text(object_of(body).get("type")), text(object_of(body).get("id")))
            )
            found = next((each for each in named or () if each.number not in taken), None)
            if found is not None:
                matched[place] = found
                taken.add(found.number)
        for place, body in enumerate(bodies):
            if not isinstance(body, dict):
                self._answer.show(("other", place), body)
                self._answer.keep(body)
                continue
            kind = text(body.get("type"))
            item = matched.get(place)
            if item is None:
                same = self._of_kind.get(kind, ())
                free = (each for each in same if each.number not in taken)
                item = next(free, None) or self._open(kind, None)
                taken.add(item.number)
            self._finish(item, body)
        for item in self._items:
            if item.head is not None and item.done is None and not item.texts:
                # An item that came whole when it began.
                self._finish(item, item.head, done=False)
        self._calls.close_all()
        if bodies:
            self._output = bodies

    def whole(self) -> list[Any]:
        """Return the completed items, in the form in which the provider wants them back."""
        return self._output or [item.done for item in self._items if item.done is not None]

    def _open(self, kind: str, item_id: str | None) -> OutputItem:
        item = OutputItem(len(self._items), kind, item_id)
        self._items.append(item)
        self._of_kind.setdefault(kind, []).append(item)
        self._name(item)
        if kind in CALLS:
            self.call_of(item)
        return item

    def _name(self, item: OutputItem) -> None:
        """Index an item by its id, in order of arrival."""
        if item.item_id is not None:
            named = self._by_id.setdefault((item.kind, item.item_id), [])
            insort(named, item, key=lambda each: each.number)

    def _head(self, item: OutputItem, body: JsonObject) -> None:
        if item.item_id is None and (given := text(body.get("id"))):
            item.item_id = given
            self._name(item)
        if item.kind in CALLS:
            index = self.call_of(item)
            call = self._answer.calls[index]
            name = text(body.get("name"))
            provider_id = text(body.get("call_id")) or text(body.get("id")) or None
            more = name[len(call.name) :] if name.startswith(call.name) else ""
            self._answer.add_to_call(index, name=more, provider_id=provider_id)

    def _finish(self, item: OutputItem, body: JsonObject, *, done: bool = True) -> None:
        self._head(item, body)
        before = item.done
        if done:
            item.done = body
        if item.kind in CALLS:
            self.complete_call(item, body.get(CALLS[item.kind]))
            if done:
                self._calls.close(item.call)
        elif item.kind == "message":
            self._parts(item, "content", body.get("content"))
        elif item.kind == "reasoning":
            self._parts(item, "summary", body.get("summary"))
            self._parts(item, "content", body.get("content"))
            self._sign(item, body)
        elif (act := acts_of(body)) is not None:
            self._act(item, body, *act)
        elif unknown_fields(body, frozenset()):
            self._answer.show(item.number, body)
            if before is None:
                self._answer.keep({"type": "response.output_item.done", "item": body})

    def _act(self, item: OutputItem, body: JsonObject, name: str, arguments: JsonObject) -> None:
        """Record an action for the product as a complete tool call."""
        if item.call is None:
            given = text(body.get("call_id")) or text(body.get("id")) or None
            item.call = self._answer.open_call(
                name=name, provider_id=given, raw={"type": item.kind}
            )
        self.complete_call(item, arguments)

    def _parts(self, item: OutputItem, where: Literal["content", "summary"], parts: Any) -> None:
        parts = [parts] if isinstance(parts, str) else parts
        for place, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, str):  # some servers omit the part
                kind: Kind = "text" if item.kind == "message" else "reasoning"
                self.complete(item, kind, (where, place), part)
            else:
                self.complete_part(item, where, place, part)

    def complete_part(self, item: OutputItem, where: str, place: int, part: Any) -> None:
        """Add the rest of a content part or of a part of a reasoning summary."""
        known = _PARTS_OF_ITEMS.get(text(part.get("type"))) if isinstance(part, dict) else None
        if known is not None:
            self.complete(item, known[0], (where, place), text(part.get(known[1])))

    def _sign(self, item: OutputItem, body: JsonObject) -> None:
        """Store the reasoning's type, id and encrypted content with the last of its parts."""
        last = next(reversed(item.texts), ("summary", 0))
        named = {key: body[key] for key in ("type", "id") if isinstance(body.get(key), str)}
        self._answer.sign((item.number, *last), text(body.get("encrypted_content")) or None, named)


class OpenAIResponsesParser(ChunkParser):
    """Parses the events of one response."""

    specification: ClassVar[str] = "openai_responses"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._items = OutputItems(self._answer)
        self._seen: dict[int, int] = {}
        self._last_number = -1
        self._in_sequence = True
        self._handlers: dict[str, Callable[[JsonObject], None]] = {
            "response.output_item.added": self._items.begin,
            "response.output_item.done": self._items.end,
            "error": self._take_error,
        }

    def _take(self, event: JsonObject) -> None:
        if self._is_seen(event):
            return
        kind = text(event.get("type"))
        stem, _, last = kind.rpartition(".")
        response = event.get("response")
        if kind in self._handlers:
            self._handlers[kind](event)
        elif kind in _STARTS and isinstance(response, dict):
            self._note(response)
            if response.get("background") is True:
                self.pending = text(response.get("status")) or kind.removeprefix("response.")
        elif kind in _ENDS:
            self._end(kind, response if isinstance(response, dict) else {}, event)
        elif stem in _TEXTS and last in ("delta", "done"):
            self._take_text(stem, last, event)
        elif stem in _CALLS and last in ("delta", "done"):
            self._take_arguments(_CALLS[stem], last, event)
        elif stem in _PARTS and last in ("added", "done"):
            self._take_part(_PARTS[stem], event)
        elif not kind and event.get("error"):
            self._take_error(event)
        elif kind not in _NOTHING:
            self._answer.keep(event)

    def _is_seen(self, event: JsonObject) -> bool:
        """Whether an event has come before: a resumed stream may repeat some.

        Only where every event so far had a higher number than the one before, since some servers
        give all events the same.
        """
        number = event.get("sequence_number")
        if not isinstance(number, int) or not self._in_sequence:
            return False
        content = hash(json.dumps(event, sort_keys=True))
        if number > self._last_number:
            self._last_number, self._seen[number] = number, content
            return False
        self._in_sequence = self._seen.get(number) == content
        return self._in_sequence

    def _read(self, response: JsonObject) -> None:
        status = text(response.get("status")) or "completed"
        self._end(f"response.{status}", response, response)
        if not response.get("status") and not response.get("output"):
            self._finish_reason = None

    def _take_text(self, stem: str, last: str, event: JsonObject) -> None:
        kind, content, where, field = _TEXTS[stem]
        value = event.get("delta" if last == "delta" else field)
        if not isinstance(value, str):
            if value is not None:
                self._answer.keep(event)
            return
        place = (where, _place(event))
        take = self._items.say if last == "delta" else self._items.complete
        take(self._items.at(event, kind), content, place, value)

    def _take_arguments(self, kind: str, last: str, event: JsonObject) -> None:
        item = self._items.at(event, kind)
        if last == "delta":
            if event.get("delta") is None or isinstance(event["delta"], str):
                self._items.grow_call(item, text(event.get("delta")))
            else:
                self._answer.keep(event)
        else:
            self._items.complete_call(item, event.get(CALLS[kind]))

    def _take_part(self, where: str, event: JsonObject) -> None:
        part = event.get("part")
        inner = text(part.get("type")) if isinstance(part, dict) else ""
        reasons = where == "summary" or inner == "reasoning_text"
        item = self._items.at(event, "reasoning" if reasons else "message")
        self._items.complete_part(item, where, _place(event), part)

    def _take_error(self, event: JsonObject) -> None:
        error = event.get("error")
        self._fail(error if error else event, event)

    def _end(self, kind: str, response: JsonObject, event: JsonObject) -> None:
        self._note(response)
        status = text(response.get("status")) or kind.removeprefix("response.")
        if status in _GOES_ON:
            self.pending = status
            return
        self._items.end_all(response.get("output"))
        if not self._answer.all_of("text"):
            # Some servers have the text nowhere else.
            self._answer.say("text", "output_text", text(response.get("output_text")))
        self.pending = None
        self._of_response = unknown_fields(response, _OF_RESPONSE)
        self._count(responses_usage, response.get("usage"))
        if status in ("failed", "cancelled"):
            error = response.get("error") or {"code": status, "message": f"the response {status}"}
            self._fail(error, event)
        details = response.get("incomplete_details")
        reason = text(details.get("reason")) if isinstance(details, dict) else ""
        self._finish_reason = reason or status
        self.finished = status not in ("failed", "cancelled")

    def _finish(self) -> None:
        if not self.finished:
            self._items.end_all(None)
            self.finished = True

    def _seller(self) -> str | None:
        return self._provider or seller_of(self._model)

    def _raw(self) -> JsonObject:
        raw = {"output": self._items.whole(), "response": self._of_response}
        return unknown_fields(raw, frozenset())


def _place(event: JsonObject) -> int:
    for key in ("content_index", "summary_index"):
        if isinstance(value := event.get(key), int):
            return int(value)
    return 0


def _differ(before: JsonObject, body: JsonObject) -> bool:
    """Whether two objects are those of two items: a call has an id that does not change."""
    key = "call_id" if before.get("call_id") and body.get("call_id") else "id"
    return before.get(key) != body.get(key)
