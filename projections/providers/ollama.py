"""Answers of Ollama's ``/api/chat`` and ``/api/generate``, whole or streamed line by line.

Every chunk has the shape of a whole answer; the last one has ``done`` and the counts. A tool call
arrives complete and without an id.
"""

from __future__ import annotations

from typing import ClassVar

from eventstore.events.base import JsonObject
from projections.providers.parser import ChunkParser, object_of, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import unknown_fields
from projections.providers.usage import ollama_usage

__all__ = ["OllamaParser"]

_OF_CHUNK = frozenset(
    {
        *("created_at", "done", "done_reason", "eval_count", "message", "model"),
        *("prompt_eval_count", "response", "thinking"),
    }
)
_OF_MESSAGE = frozenset({"content", "role", "thinking", "tool_calls"})


class OllamaParser(ChunkParser):
    """Parses the chunks of one answer."""

    specification: ClassVar[str] = "ollama_chat"
    server: ClassVar[str | None] = "ollama"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._calls = ToolCalls(self._answer, RULES[self.specification])

    def _take(self, event: JsonObject) -> None:
        self._note({"model": event.get("model")})
        if event.get("error"):
            self._fail(event["error"], event)
        message = object_of(event.get("message"))
        self._add(message)
        # `/api/generate` has no message; a proxy may send both.
        if not message.get("thinking"):
            self._answer.say("reasoning", "reasoning", text(event.get("thinking")))
        if not message.get("content"):
            self._answer.say("text", "text", text(event.get("response")))
        self._counts = ollama_usage(event) or self._counts
        if event.get("done") is True:
            self._finish_reason = text(event.get("done_reason")) or "stop"
            self._finish()
        self._of_response |= unknown_fields(event, _OF_CHUNK)

    def _read(self, response: JsonObject) -> None:
        self._take(response)
        if self.error is None:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._calls.close_all()

    def _add(self, message: JsonObject) -> None:
        self._answer.say("reasoning", "reasoning", text(message.get("thinking")))
        if isinstance(content := message.get("content"), str | None):
            self._answer.say("text", "text", content or "")
        else:
            self._show_other({"content": content}, {"message": {"content": content}})
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            body = call.get("function") if isinstance(call, dict) else None
            if isinstance(body, dict):
                self._call(body, text(call.get("id")) or None)
            elif call is not None:
                self._show_other({"tool_calls": [call]}, {"message": {"tool_calls": [call]}})
        if extra := unknown_fields(message, _OF_MESSAGE):
            self._show_other(extra, {"message": extra})

    def _call(self, body: JsonObject, given_id: str | None) -> None:
        piece = Piece.of_arguments(
            body.get("arguments"), name=text(body.get("name")), call_id=given_id
        )
        self._calls.add(piece)
