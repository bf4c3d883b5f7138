"""Events of OpenAI's Responses: output items that begin, grow part by part, and are done.

The final event repeats the whole response; it is the source of usage and of the output items that
the next request sends back, which the message keeps under ``raw["output"]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from eventstore.events import TokenUsage
from eventstore.events.base import JsonObject

from .answer import Kind
from .parser import ChunkParser, text
from .response_items import CALLS, Items
from .sellers import seller_of
from .usage import responses_usage

__all__ = ["OpenAIResponsesParser"]

_TEXTS: dict[str, tuple[str, Kind, str, str]] = {
    "response.output_text": ("message", "text", "content", "text"),
    "response.refusal": ("message", "refusal", "content", "refusal"),
    "response.reasoning_text": ("reasoning", "reasoning", "content", "text"),
    "response.reasoning_summary_text": ("reasoning", "reasoning", "summary", "text"),
}
"""Item, kind of text, place in the item, and field of the whole text in the ``done`` event."""

_CALLS = {
    "response.function_call_arguments": "function_call",
    "response.custom_tool_call_input": "custom_tool_call",
}
_PARTS = {
    "response.content_part": "content",
    "response.reasoning_summary_part": "summary",
}
_STARTS = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = frozenset(
    {
        *("response.completed", "response.done", "response.incomplete"),
        *("response.failed", "response.cancelled"),
    }
)
_NOTHING = frozenset({"ping", "keepalive", "response.keepalive"})


class OpenAIResponsesParser(ChunkParser):
    """Takes the events of one response."""

    specification: ClassVar[str] = "openai_responses"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._items = Items(self._answer)
        self._counts: TokenUsage | None = None
        self._handlers: dict[str, Callable[[JsonObject], None]] = {
            "response.output_item.added": self._items.begin,
            "response.output_item.done": self._items.end,
            "error": self._take_error,
        }

    def _take(self, event: JsonObject) -> None:
        kind = text(event.get("type"))
        stem, _, last = kind.rpartition(".")
        response = event.get("response")
        if kind in self._handlers:
            self._handlers[kind](event)
        elif kind in _STARTS and isinstance(response, dict):
            self._note(response)
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

    def _read(self, response: JsonObject) -> None:
        status = text(response.get("status")) or "completed"
        self._end(f"response.{status}", response, response)
        if not response.get("status") and not response.get("output"):
            self._finish_reason = None

    def _take_text(self, stem: str, last: str, event: JsonObject) -> None:
        kind, said, where, field = _TEXTS[stem]
        value = event.get("delta" if last == "delta" else field)
        if not isinstance(value, str):
            if value is not None:
                self._answer.keep(event)
            return
        place = (where, _place(event))
        take = self._items.say if last == "delta" else self._items.complete
        take(self._items.at(event, kind), said, place, value)

    def _take_arguments(self, kind: str, last: str, event: JsonObject) -> None:
        item = self._items.at(event, kind)
        if last == "delta":
            index = self._items.call_of(item)
            if event.get("delta") is None or isinstance(event["delta"], str):
                self._answer.add_to_call(index, text(event.get("delta")))
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
        self._items.end_all(response.get("output"))
        self._counts = responses_usage(response.get("usage")) or self._counts
        status = text(response.get("status")) or kind.removeprefix("response.")
        if status in ("failed", "cancelled"):
            told = response.get("error") or {"code": status, "message": f"the response {status}"}
            self._fail(told, event)
        details = response.get("incomplete_details")
        reason = text(details.get("reason")) if isinstance(details, dict) else ""
        self._finish_reason = reason or status
        self.finished = status not in ("failed", "cancelled", "in_progress", "queued")

    def _seller(self) -> str | None:
        return self._provider or seller_of(self._model)

    def _usage(self) -> TokenUsage | None:
        return self._counts

    def _raw(self) -> JsonObject:
        output: list[Any] = self._items.whole()
        return {"output": output} if output else {}


def _place(event: JsonObject) -> int:
    for key in ("content_index", "summary_index"):
        if isinstance(value := event.get(key), int):
            return int(value)
    return 0
