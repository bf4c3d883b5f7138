"""Answers of Gemini's ``generateContent``, whole or streamed: each chunk is shaped like an answer.

The REST interface has ``usageMetadata``, older SDKs ``usage_metadata``: both are read. Only the
first candidate is the answer. A function call arrives complete, often without an id.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from agent_eventstore.providers.base import Growing, told
from agent_eventstore.providers.parser import ChunkParser, text
from agent_eventstore.providers.usage import gemini_usage, snake
from eventstore.events.base import JsonObject

__all__ = ["GeminiParser", "field"]

_OF_CANDIDATE = frozenset(
    {"content", "finishReason", "finish_reason", "index", "tokenCount", "token_count"}
)
_REASONS = ("", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
"""The finish reasons that older SDKs give as numbers."""


class GeminiParser(ChunkParser):
    """Parses the chunks of one answer."""

    specification: ClassVar[str] = "gemini_generate_content"
    server: ClassVar[str | None] = "google"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._of_candidate = Growing()
        self._feedback: JsonObject = {}

    def _take(self, event: JsonObject) -> None:
        self._note({"id": field(event, "responseId"), "model": field(event, "modelVersion")})
        self._count(gemini_usage, field(event, "usageMetadata"))
        if event.get("error"):
            self._fail(event["error"], event)
        feedback = field(event, "promptFeedback")
        if isinstance(feedback, dict):
            self._feedback = feedback
            self._end(field(feedback, "blockReason"))
        candidates = event.get("candidates")
        for place, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(candidate, dict) and not candidate.get("index", place):
                self._choose(candidate)
            else:
                self._answer.keep({"candidates": [candidate]})

    def _read(self, response: JsonObject) -> None:
        self._take(response)
        self.finished = self.finished or self.error is None

    def _choose(self, candidate: JsonObject) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                self._part(part)
            elif part is not None:
                self._show_other(part, {"parts": [part]})
        self._of_candidate.add(told(candidate, _OF_CANDIDATE))
        self._end(field(candidate, "finishReason"))

    def _part(self, part: JsonObject) -> None:
        call, said = field(part, "functionCall"), part.get("text")
        signature = field(part, "thoughtSignature")
        if isinstance(call, dict):
            self._call(call, told({"thoughtSignature": signature}, frozenset()))
        elif isinstance(said, str):
            kind: Any = "reasoning" if part.get("thought") is True else "text"
            self._answer.say(kind, kind, said)
            if text(signature):
                self._answer.sign("reasoning", text(signature))
        elif told(part, frozenset()):
            self._show_other(part, {"parts": [part]})

    def _call(self, call: JsonObject, raw: JsonObject) -> None:
        given_id = text(call.get("id")) or None
        index = self._answer.open_call(name=text(call.get("name")), provider_id=given_id, raw=raw)
        arguments = call.get("args")
        if arguments is not None:
            self._answer.add_to_call(index, json.dumps(arguments, ensure_ascii=False))

    def _end(self, reason: Any) -> None:
        if isinstance(reason, int) and not isinstance(reason, bool):
            reason = _REASONS[reason] if 0 <= reason < len(_REASONS) else str(reason)
        if text(reason) and not text(reason).endswith("_UNSPECIFIED"):
            self._finish_reason = reason
            self.finished = True

    def _raw(self) -> JsonObject:
        kept = {"candidate": self._of_candidate.value(), "promptFeedback": self._feedback}
        return told(kept, frozenset())


def field(value: JsonObject, name: str) -> Any:
    """Return a field by its name in camel case, or in snake case."""
    found = value.get(name)
    return value.get(snake(name)) if found is None else found
