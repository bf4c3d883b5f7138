"""The script of a tool call: its start, written before the tool runs, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agent_eventstore.errors import CallAnswered
from agent_eventstore.machines.answers import Answers, RequestedCall, milliseconds
from agent_eventstore.machines.tracing import Tracing
from agent_eventstore.stops import BY_SOMEBODY, mark_failure, stopped
from eventstore import NewEvent, new_id
from eventstore.events import Meta, Payload, ToolCall, ToolPolicy, ToolResult
from eventstore.ids import derived_id
from eventstore.telemetry.log import get_logger
from projections.models.open_items import OpenToolCall

__all__ = ["NEVER_STARTED", "Executable", "ToolScript"]

_log = get_logger("agent_eventstore")

Executable = RequestedCall | OpenToolCall
"""A call that the model has just requested, or one that recovery offers for execution again."""


NEVER_STARTED = (
    "This tool call was cancelled before it was started ({}). It was never started and had no "
    "effect: it is safe to make it again."
)
_STOPPED = (
    "This tool call was cancelled while the tool was running ({}). It may or may not have taken "
    "effect: check before you repeat it."
)
_LONGEST_ERROR = 4_000
"""Characters of ``error``; the content has the full text."""


@dataclass(slots=True, weakref_slot=True)
class ToolScript:
    """A tool call: its start, written before the tool runs, and its result."""

    call: Executable
    meta: Meta
    conversation_id: UUID
    started_at: float
    idempotent: bool = False
    answers: Answers = field(default_factory=Answers)
    policy: ToolPolicy | None = None
    outcome: ToolResult | None = None
    _start_events: list[NewEvent] | None = None
    tracing: Tracing = field(default_factory=Tracing)

    @property
    def idempotency_key(self) -> str:
        """The key of this call: the same for all its executions, and different for other calls.

        The call's id alone is not unique: it contains a version, and a database restored to an
        older state assigns versions again. So the key includes the id of the assistant message's
        event, or of the session.
        """
        if isinstance(self.call, OpenToolCall):
            if self.call.idempotency_key is not None:
                return self.call.idempotency_key
            answer_id = None
        else:
            answer_id = self.call.answer_id
        origin = answer_id or self.meta.session_id or ""
        return str(derived_id(self.conversation_id, "tool call", origin, self.call.call_id))

    @property
    def _awaited(self) -> bool:
        return isinstance(self.call, OpenToolCall) and self.call.awaited

    @property
    def refusal(self) -> str | None:
        """Why the tool policy does not allow the tool; None if it does."""
        return None if self.policy is None else self.policy.refusal(self.call.name)

    def tell_again(self) -> None:
        """Warn if a call runs again that has a result or is running: only one result is shown."""
        status = self.answers.status_of(self.call.call_id)
        message = (
            "a tool call that has a result runs again; views and requests keep the first result"
        )
        if self.answers.begins(self.call.call_id, self):
            status = status or "running"
            message = "a tool call runs twice at once; views and requests keep the first result"
        if status:
            _log.warning(
                message,
                conversation_id=str(self.conversation_id),
                call_id=self.call.call_id,
                tool=self.call.name,
                status=status,
            )

    def require_open(self) -> None:
        """Refuse a call that already has a result.

        Raises:
            CallAnswered: It has one; a seal, which a real result replaces, does not count.
        """
        status = self.answers.status_of(self.call.call_id)
        if status is not None:
            raise CallAnswered(self.conversation_id, self.call.call_id, self.call.name, status)

    def begin(self) -> list[NewEvent]:
        """Return the event of the call, to commit before the tool runs; the same at every call.

        No event for a call that waits for its result: `TurnScript.replace` returned it.
        """
        if self._awaited:
            return []
        self.meta = self.tracing.begin_again(self.meta)
        if self._start_events is None:
            self._trace()
            call = ToolCall(
                call_id=self.call.call_id,
                name=self.call.name,
                arguments=self.call.arguments,
                provider_id=self.call.provider_id,
                idempotency_key=self.idempotency_key,
                idempotent=self.idempotent,
            )
            self._start_events = [self._event(call)]
        return self._start_events

    def end(self, now: float, *, ran: bool = True, **result: Any) -> list[NewEvent]:
        """Return the event of the result; none if there is already a result."""
        if self.outcome is not None:
            return []
        if self._start_events is None:
            self._trace()
        self.outcome = ToolResult(
            call_id=self.call.call_id,
            name=self.call.name,
            provider_id=self.call.provider_id,
            duration_ms=milliseconds(now - self.started_at) if ran and not self._awaited else None,
            **result,
        )
        self.answers.ends(self.call.call_id, self)
        self.answers.settled(self.call.call_id, self.outcome.status)
        status = self.outcome.status
        self.tracing.end({}, None if status == "success" else status)
        return [self._event(self.outcome)]

    def leave(self, now: float, error: BaseException | None) -> list[NewEvent]:
        """Return the events to write when the block is left; an exception is a failure.

        The model gets the exception's full message, paths included: it is the tool's report on its
        arguments. After a stop the outcome is unknown.
        """
        if error is None:
            return self.end(now, status="success", content="")
        stop = stopped(error)
        if stop is not None:
            content = _STOPPED.format(stop)
            return self.end(now, status="outcome_unknown", content=content, error=stop)
        mark_failure(error)
        name, error_text = type(error).__name__, str(error)
        words = f"{name}: {error_text}" if error_text else name
        return self.end(now, status="failed", content=words, error=words[:_LONGEST_ERROR])

    def abandoned(self, error: BaseException) -> list[NewEvent]:
        """Return the result of a call that was interrupted before its block ran."""
        stop = stopped(error) or BY_SOMEBODY
        content = NEVER_STARTED.format(stop)
        return self.end(
            self.started_at, ran=False, status="not_started", content=content, error=stop
        )

    def refuse(self, status: str, reason: str) -> list[NewEvent]:
        """Return the result of a call that is not executed: ``denied`` or ``skipped``."""
        return self.end(self.started_at, ran=False, status=status, content=reason, error=reason)

    def deny(self, reason: str) -> list[NewEvent]:
        """Return the result of a call that the policy denies; none if it was denied before."""
        if self.answers.status_of(self.call.call_id) == "denied":
            return []
        self.require_open()
        return self.refuse("denied", reason)

    def _trace(self) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.conversation.id": self.conversation_id,
            "gen_ai.tool.name": self.call.name,
            "gen_ai.tool.call.id": self.call.provider_id or self.call.call_id,
        }
        self.meta = self.tracing.begin(self.meta, f"execute_tool {self.call.name}", attributes)

    def _event(self, payload: Payload) -> NewEvent:
        return NewEvent(payload, new_id(), self.meta)
