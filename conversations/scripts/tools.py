"""The script of a tool call: written before the tool runs, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from conversations.scripts.calls import RequestedCall
from conversations.scripts.words import milliseconds, told
from eventstore import NewEvent, new_id
from eventstore.events import Meta, Payload, ToolCall, ToolResult
from eventstore.ids import derived_id
from projections.open_ends import OpenToolCall

__all__ = ["Executable", "ToolScript"]

Executable = RequestedCall | OpenToolCall
"""A call that the model has just asked for, or one that recovery found and offers again."""


_STOPPED = "the tool was interrupted; it may or may not have taken effect"


@dataclass(slots=True)
class ToolScript:
    """A tool call: written before the tool runs, and what came of it."""

    call: Executable
    meta: Meta
    conversation_id: UUID
    started_at: float
    idempotent: bool = False
    outcome: ToolResult | None = None
    _begun: list[NewEvent] | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every execution of this call, and for no other call."""
        return str(derived_id(self.conversation_id, "tool call", self.call.call_id))

    def begin(self) -> list[NewEvent]:
        """Return the event of the call, to be durable before the tool runs; always the same."""
        if self._begun is None:
            call = ToolCall(
                call_id=self.call.call_id,
                name=self.call.name,
                arguments=self.call.arguments,
                provider_id=self.call.provider_id,
                idempotency_key=self.idempotency_key,
                idempotent=self.idempotent,
            )
            self._begun = [self._event(call)]
        return self._begun

    def end(self, now: float, *, ran: bool = True, **result: Any) -> list[NewEvent]:
        """Return the event of the result; none if there is one already."""
        if self.outcome is not None:
            return []
        self.outcome = ToolResult(
            call_id=self.call.call_id,
            name=self.call.name,
            provider_id=self.call.provider_id,
            duration_ms=milliseconds(now - self.started_at) if ran else None,
            **result,
        )
        return [self._event(self.outcome)]

    def leave(self, now: float, error: BaseException | None) -> list[NewEvent]:
        """Return what is left to be written when the block is left; an exception is a failure.

        Whoever stops the process, or cancels the task, does not know how far the tool had come.
        """
        if error is None:
            return self.end(now, status="success", content="")
        words = told(error)
        if isinstance(error, Exception):
            return self.end(now, status="failed", content=words, error=words)
        return self.end(now, status="outcome_unknown", content=_STOPPED, error=words)

    def refuse(self, status: str, reason: str) -> list[NewEvent]:
        """Return the event of a call that is not executed: ``denied`` or ``skipped``."""
        return self.end(self.started_at, ran=False, status=status, content=reason, error=reason)

    def _event(self, payload: Payload) -> NewEvent:
        return NewEvent(payload, new_id(), self.meta)
