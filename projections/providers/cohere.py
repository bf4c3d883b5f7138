"""Answers of Cohere's chat API, version 2, whole or streamed.

The model's plan before tool calls (``tool_plan``) is recorded as text. Citations are kept as
received, in ``raw``. Source: Cohere's API reference, "Chat" and "Chat with Streaming" (2026).
"""

from __future__ import annotations

from typing import Any, ClassVar

from eventstore.events.base import JsonObject
from projections.providers.parser import ChunkParser, object_of, place_of, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import unknown_fields
from projections.providers.usage import cohere_usage

__all__ = ["COHERE_EVENTS", "CohereParser"]

COHERE_EVENTS = frozenset(
    {
        *("message-start", "message-end", "content-start", "content-delta", "content-end"),
        *("tool-plan-delta", "tool-call-start", "tool-call-delta", "tool-call-end"),
        *("citation-start", "citation-end", "debug"),
    }
)
"""The event types of a stream."""

_PLAN = "plan"
_OF_RESPONSE = frozenset({"id", "type", "delta", "message", "finish_reason", "usage", "model"})
_OF_MESSAGE = frozenset({"role", "content", "tool_plan", "tool_calls", "citations"})


class CohereParser(ChunkParser):
    """Parses the events of one answer."""

    specification: ClassVar[str] = "cohere_chat"
    server: ClassVar[str | None] = "cohere"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._calls = ToolCalls(self._answer, RULES[self.specification])
        self._citations: list[Any] = []

    def _take(self, event: JsonObject) -> None:
        kind, place = text(event.get("type")), event.get("index")
        delta = object_of(event.get("delta"))
        message = object_of(delta.get("message"))
        match kind:
            case "message-start":
                self._note(event)
                self._add(message)
            case "content-start" | "content-delta":
                self._say(place, message.get("content"))
            case "tool-plan-delta":
                self._answer.say("text", _PLAN, text(message.get("tool_plan")))
            case "tool-call-start":
                self._calls.begin(_piece(place, message.get("tool_calls")))
            case "tool-call-delta":
                self._calls.add(_piece(place, message.get("tool_calls")))
            case "tool-call-end":
                self._calls.stop(place_of(place))
            case "citation-start":
                self._cite(message.get("citations"))
            case "message-end":
                self._end(delta)
            case "content-end" | "citation-end":
                pass
            case _:
                self._answer.keep(event)

    def _read(self, response: JsonObject) -> None:
        self._note(response)
        self._add(object_of(response.get("message")))
        self._end(response)

    def _add(self, message: JsonObject) -> None:
        """Add a complete message, or the empty one that begins a stream."""
        self._answer.say("text", _PLAN, text(message.get("tool_plan")))
        content, calls = message.get("content"), message.get("tool_calls")
        if isinstance(content, str):
            self._answer.say("text", 0, content)
        for place, block in enumerate(content if isinstance(content, list) else ()):
            self._say(place, block)
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            self._calls.begin(_piece(place, call))
        self._cite(message.get("citations"))
        if extra := unknown_fields(message, _OF_MESSAGE):
            self._answer.keep({"message": extra})
            self._of_response |= {"message": extra}

    def _say(self, place: Any, block: Any) -> None:
        match block:
            case {"thinking": str(thought)}:
                self._answer.say("reasoning", place_of(place), thought)
            case {"text": str(said)}:
                self._answer.say("text", place_of(place), said)
            case None:
                pass
            case _:
                self._show_other(block, block)

    def _cite(self, citations: Any) -> None:
        found = citations if isinstance(citations, list) else [citations]
        for citation in found:
            if citation:
                self._citations.append(citation)
                self._answer.keep({"citation": citation})

    def _end(self, body: JsonObject) -> None:
        if body.get("error"):
            self._fail(body["error"], body)
        self._finish_reason = text(body.get("finish_reason")) or self._finish_reason
        self._count(cohere_usage, body.get("usage"))
        self._of_response |= unknown_fields(body, _OF_RESPONSE)
        if self.error is None:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._calls.close_all()

    def _raw(self) -> JsonObject:
        beside = {"citations": self._citations, "response": self._of_response}
        return unknown_fields(beside, frozenset())


def _piece(place: Any, call: Any) -> Piece:
    """Return a tool call, or a piece of one; some servers send a list of a single piece."""
    call = call[0] if isinstance(call, list) and call else call
    function = object_of(object_of(call).get("function"))
    return Piece.of_arguments(
        function.get("arguments"),
        name=text(function.get("name")),
        call_id=text(object_of(call).get("id")) or None,
        index=place_of(place),
    )
