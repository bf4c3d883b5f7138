"""OpenAI's chat-completion chunks, gathered: batches to be recorded, and the message in the end.

The first piece is a batch of its own, so that it is durable at once; then a batch is full after
100 ms or 512 characters.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    Invocation,
    JsonObject,
    LlmError,
    PartialToolCall,
    TokenUsage,
    ToolCallDelta,
    ToolCallRequest,
)

__all__ = ["Answer"]

_BATCH_S = 0.1
_BATCH_CHARS = 512


@dataclass(slots=True)
class _Call:
    provider_id: str | None = None
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class _Batch:
    text: str = ""
    calls: dict[int, _Call] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)

    def add(self, text: str, deltas: list[JsonObject]) -> None:
        self.text += text
        for delta in deltas:
            function = delta.get("function") or {}
            call = self.calls.setdefault(delta["index"], _Call())
            call.provider_id = delta.get("id") or call.provider_id
            call.name += function.get("name") or ""
            call.arguments += function.get("arguments") or ""

    @property
    def size(self) -> int:
        return len(self.text) + sum(len(call.arguments) for call in self.calls.values())


class Answer:
    """A model's answer while it streams."""

    def __init__(self, llm_call_id: str, invocation: Invocation) -> None:
        self._llm_call_id = llm_call_id
        self._invocation = invocation
        self._whole, self._batch = _Batch(), _Batch()
        self._batches = 0
        self._finish_reason: str | None = None
        self._usage: TokenUsage | None = None
        self._response_id: str | None = None
        self._started = time.monotonic()
        self._first_ms: int | None = None

    def feed(self, chunk: JsonObject) -> tuple[str, AssistantChunk | None]:
        """Take a chunk; return its text, and a batch if one is full."""
        self._response_id = chunk["id"]
        if chunk.get("usage"):
            self._usage = _usage(chunk["usage"])
        said = ""
        for choice in chunk["choices"]:
            delta = choice["delta"]
            self._finish_reason = choice["finish_reason"] or self._finish_reason
            said, deltas = delta.get("content") or "", delta.get("tool_calls") or []
            self._whole.add(said, deltas)
            self._batch.add(said, deltas)
        if self._first_ms is None and (self._batch.text or self._batch.calls):
            self._first_ms = self._elapsed_ms()
            return said, self.rest()
        waited = time.monotonic() - self._batch.since
        full = self._batch.size >= _BATCH_CHARS or waited >= _BATCH_S
        return said, self.rest() if full else None

    def rest(self) -> AssistantChunk | None:
        """Return what is not yet in a batch, as one; None if nothing is."""
        batch, self._batch = self._batch, _Batch()
        if not batch.text and not batch.calls:
            return None
        chunk = AssistantChunk(
            llm_call_id=self._llm_call_id,
            index=self._batches,
            text=batch.text,
            tool_calls=tuple(
                ToolCallDelta(
                    index=index,
                    provider_id=call.provider_id,
                    name=call.name or None,
                    arguments=call.arguments,
                )
                for index, call in sorted(batch.calls.items())
            ),
        )
        self._batches += 1
        return chunk

    def message(self) -> AssistantMessage:
        """Return the whole answer."""
        calls = tuple(_request(call) for _, call in sorted(self._whole.calls.items()))
        return AssistantMessage.of(
            self._whole.text or None,
            llm_call_id=self._llm_call_id,
            tool_calls=calls,
            finish_reason=self._finish_reason,
            usage=self._usage,
            invocation=self._invocation,
            duration_ms=self._elapsed_ms(),
            first_token_ms=self._first_ms,
            final=not calls,
            response_id=self._response_id,
        )

    def error(self, cause: ConnectionError, attempt: int) -> LlmError:
        """Return the failure of the call, with what had arrived."""
        return LlmError(
            llm_call_id=self._llm_call_id,
            kind="network",
            message=str(cause),
            retryable=True,
            partial_text=self._whole.text,
            partial_tool_calls=tuple(
                PartialToolCall(
                    index=index,
                    provider_id=call.provider_id,
                    name=call.name or None,
                    arguments_text=call.arguments,
                )
                for index, call in sorted(self._whole.calls.items())
            ),
            attempt=attempt,
            invocation=self._invocation,
            duration_ms=self._elapsed_ms(),
        )

    def _elapsed_ms(self) -> int:
        return round((time.monotonic() - self._started) * 1000)


def _request(call: _Call) -> ToolCallRequest:
    fields: dict[str, Any] = {}
    try:
        fields["arguments"] = json.loads(call.arguments or "{}")
    except ValueError as error:
        fields["parse_error"] = str(error)
    return ToolCallRequest(
        name=call.name, arguments_text=call.arguments, provider_id=call.provider_id, **fields
    )


def _usage(raw: JsonObject) -> TokenUsage:
    prompt, completion = raw["prompt_tokens_details"], raw["completion_tokens_details"]
    return TokenUsage(
        prompt_tokens=raw["prompt_tokens"],
        completion_tokens=raw["completion_tokens"],
        total_tokens=raw["total_tokens"],
        cached_prompt_tokens=prompt["cached_tokens"],
        reasoning_tokens=completion["reasoning_tokens"],
        raw=raw,
    )
