"""The script of a tool call: written before the tool runs, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from conversations.scripts.calls import RequestedCall
from conversations.scripts.words import milliseconds, told
from eventstore import NewEvent, new_id
from eventstore.events import Payload, ToolCall, ToolResult
from eventstore.ids import derived_id

__all__ = ["ToolScript"]


@dataclass(slots=True)
class ToolScript:
    """A tool call: written before the tool runs, and what came of it."""

    call: RequestedCall
    conversation_id: UUID
    started_at: float
    idempotent: bool = False
    outcome: ToolResult | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every execution of this call, and for no other call."""
        return str(derived_id(self.conversation_id, "tool call", self.call.call_id))

    def begin(self) -> list[NewEvent]:
        """Return the event of the call, to be durable before the tool runs."""
        return [
            self._event(
                ToolCall(
                    call_id=self.call.call_id,
                    name=self.call.name,
                    arguments=self.call.arguments,
                    provider_id=self.call.provider_id,
                    idempotency_key=self.idempotency_key,
                    idempotent=self.idempotent,
                )
            )
        ]

    def end(
        self, now: float, *, ran: bool = True, error: BaseException | None = None, **result: Any
    ) -> list[NewEvent]:
        """Return the event of the result; none if there is one already."""
        if self.outcome is not None:
            return []
        if isinstance(error, Exception):
            result = {"status": "failed", "content": told(error), "error": told(error)}
        elif error is not None:
            words = "the tool was interrupted; it may or may not have taken effect"
            result = {"status": "outcome_unknown", "content": words, "error": told(error)}
        self.outcome = ToolResult(
            call_id=self.call.call_id,
            name=self.call.name,
            provider_id=self.call.provider_id,
            duration_ms=milliseconds(now - self.started_at) if ran else None,
            **result,
        )
        return [self._event(self.outcome)]

    def refuse(self, status: str, reason: str) -> list[NewEvent]:
        """Return the event of a call that is not executed: ``denied`` or ``skipped``."""
        return self.end(self.started_at, ran=False, status=status, content=reason, error=reason)

    def _event(self, payload: Payload) -> NewEvent:
        return NewEvent(payload, new_id(), self.call.meta)
