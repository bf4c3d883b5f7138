"""The events that end the work that a dead process left open: always the same ones."""

from __future__ import annotations

from datetime import datetime

from eventstore import NewEvent
from eventstore.events import LlmError, Meta, Payload, SessionEnd, ToolResult, TurnEnd
from eventstore.ids import derived_id
from projections.models.open_items import OpenModelCall, OpenToolCall, OpenWork

__all__ = ["ACTOR", "RESULT_UNSEEN", "seal"]

ACTOR = "recovery"
"""The ``meta.actor`` of sealing events."""

_NOTHING_ARRIVED = "the process ended before anything of the answer had arrived"
_CUT_OFF = "the process ended while the model was answering; what had arrived by then is kept"
_NOT_STARTED = (
    "The process ended before this tool call was started. The call was never started and had no "
    "effect: it is safe to make it again."
)
RESULT_UNSEEN = (
    "The process ended before a result of this tool call was seen. It may or may not have taken "
    "effect: check before you repeat it."
)
_OUTCOME_UNKNOWN = (
    "The process ended while this tool was running. It may or may not have taken effect: check "
    "before you repeat it."
)


def seal(ends: OpenWork) -> tuple[NewEvent, ...]:
    """Return the events that end the open model calls, tool calls, turn and session.

    A pure function. The event ids are derived from the conversation and its version, so appending
    the same events again changes nothing. Durations run until the last event that the process
    wrote, the last time at which it is known to have lived.
    """
    sealed: list[tuple[Payload, Meta]] = []
    sealed += [(_interrupted(ends, call), call.meta) for call in ends.model_calls]
    unanswered = (call for call in ends.tool_calls if not call.awaited)
    sealed += [(_unanswered(ends, call), call.meta) for call in unanswered]
    if (turn := ends.turn) is not None:
        end = TurnEnd(
            status="aborted",
            reason="interrupted",
            step_count=turn.steps,
            duration_ms=_lasted(ends, turn.began_at),
            tokens=turn.tokens,
        )
        sealed.append((end, turn.meta))
    if (session := ends.session) is not None:
        over = SessionEnd(
            reason="interrupted",
            turn_count=session.turns,
            duration_ms=_lasted(ends, session.began_at),
            tokens=session.tokens,
        )
        sealed.append((over, session.meta))
    return tuple(
        NewEvent(
            payload,
            derived_id(ends.conversation_id, "recovery", ends.last_version, place),
            meta.model_copy(update={"actor": ACTOR}),
        )
        for place, (payload, meta) in enumerate(sealed)
    )


def _interrupted(ends: OpenWork, call: OpenModelCall) -> LlmError:
    # `LlmError` has no refusal field; the user saw the refusal as the answer's text.
    received = call.text + call.refusal
    return LlmError(
        llm_call_id=call.llm_call_id,
        kind="interrupted",
        message=_CUT_OFF if received or call.reasoning or call.tool_calls else _NOTHING_ARRIVED,
        retryable=True,
        partial_text=received,
        partial_reasoning=call.reasoning,
        partial_tool_calls=call.tool_calls,
        attempt=call.attempt,
        invocation=call.invocation,
        duration_ms=_lasted(ends, call.began_at),
    )


def _unanswered(ends: OpenWork, call: OpenToolCall) -> ToolResult:
    started = call.started_at
    words = _OUTCOME_UNKNOWN if started else RESULT_UNSEEN if call.elsewhere else _NOT_STARTED
    return ToolResult(
        call_id=call.call_id,
        status="outcome_unknown" if call.started else "not_started",
        name=call.name,
        content=words,
        duration_ms=None if started is None else _lasted(ends, started),
        provider_id=call.provider_id,
    )


def _lasted(ends: OpenWork, began_at: datetime) -> int:
    return max(0, round((ends.last_event_at - began_at).total_seconds() * 1000))
