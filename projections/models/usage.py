"""Tokens, cost, latency and outcome of every model call: one row each.

Reported and estimated tokens have separate columns, and cost is computed from reported tokens only.
A row belongs to an ``llm_call_id``; a message or an error without one gets ``v<version>``. The
first answer stays, and replaces an error. A new request with the id of a failed call starts the row
over. The fold remembers the last `folding.CLOSED_LIMIT` ended calls.

All imported copies of a call have the same ``copy_key``. Every copy has its row, because no
conversation knows of another; sums across conversations count one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    BilledCall,
    Invocation,
    LlmError,
    LlmRequest,
    RecordedEvent,
    RetainedUsage,
    Retraction,
    TokenUsage,
)
from eventstore.events.billing import copy_key_of
from projections import payload_text
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, Row, RowDraft
from projections.engine.projection import Change, ReadTable, State
from projections.models.prices import cost_usd
from projections.tokens.text import EstimatedColumn, WrittenTexts

__all__ = ["USAGE", "UsageProjection", "UsageRow"]

_TABLE = "usage_by_call"
_INHERITED = "inherited"
_AS_BILLED = (
    "provider",
    "model",
    "specification",
    "status",
    "estimated_prompt_tokens",
    "latency_ms",
    "first_token_ms",
    "attempt",
    "retry_of",
    "version",
    "end_version",
    "turn",
    "step",
    "session_id",
    "mode",
    "run_id",
    "agent_id",
    "copy_key",
    "started_at",
    "ended_at",
)
"""The columns that have the same names in a bill."""

_NO_OUTCOME: dict[str, Any] = dict.fromkeys(
    (
        "estimated_completion_tokens",
        "prompt_tokens",
        "completion_tokens",
        "cached_prompt_tokens",
        "reasoning_tokens",
        "cache_write_tokens",
        "total_tokens",
        "cost_usd",
        "latency_ms",
        "first_token_ms",
        "ended_at",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(Row):
    """A model call.

    Attributes:
        status: ``started``, ``ok``, or the kind of the error.
        estimated_prompt_tokens: Counted before the request was sent, or supplied by the writer.
        estimated_completion_tokens: Counted from the answer; only if no usage was reported.
        prompt_tokens: As reported, including cached tokens. Like all following counts, NULL if not
            reported.
        completion_tokens: As reported, including reasoning.
        cost_usd: By the price list at the time of the answer; if it does not list the model, as
            reported by the provider; otherwise NULL.
        latency_ms: From the request to the end of the answer.
        first_token_ms: From the request to the first piece of the answer.
        version: Version of the first event of the call; ``end_version`` that of its last.
        day: Day of the first event in UTC, ``YYYY-MM-DD``.
        copy_key: Of an imported call: the same for all copies of it; otherwise NULL.
    """

    llm_call_id: str
    provider: str | None = None
    model: str | None = None
    specification: str | None = None
    status: str | None = None
    estimated_prompt_tokens: int | None = None
    estimated_completion_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: int | None = None
    first_token_ms: int | None = None
    error_kind: str | None = None
    attempt: int | None = None
    retry_of: str | None = None
    version: int | None = None
    end_version: int | None = None
    turn: int | None = None
    step: int | None = None
    session_id: str | None = None
    mode: str | None = None
    run_id: str | None = None
    agent_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    day: str | None = None
    copy_key: str | None = None


@dataclass(frozen=True, slots=True)
class UsageProjection:
    """Folds a conversation's events into ``usage_by_call``."""

    name: str = "usage"
    version: int = 4
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            ("llm_call_id",),
            folding.columns_of(UsageRow),
            lookups=(("day", "model"),),
            sparse_lookups=("copy_key",),
            counting=EstimatedColumn("estimated_completion_tokens"),
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: no open or ended calls."""
        return {"open": {}, "ended": {}}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the table.

        A fork has rows for its own calls only; shared calls belong to its parent.
        """
        after, changes = folding.run(_HANDLERS, state, event)
        return after, [] if event.inherited else changes


def _request(draft: RowDraft, request: LlmRequest) -> None:
    if draft.get("ended", request.llm_call_id) == "ok":
        return
    ended = draft.drop("ended", request.llm_call_id)
    again = ended is not None or draft.get("open", request.llm_call_id) is not None
    invocation = request.invocation
    called = {
        "provider": invocation.provider,
        "model": invocation.model,
        "specification": invocation.specification,
    }
    values = _begin(draft, request.llm_call_id, called)
    if again:
        values |= _NO_OUTCOME
    values |= {
        "estimated_prompt_tokens": request.counted_tokens,
        "attempt": request.attempt,
        "retry_of": request.retry_of,
        "error_kind": None,
        "end_version": draft.event.version,
    }
    draft.put(_TABLE, (request.llm_call_id,), values)


def _is_over(draft: RowDraft, own_id: str) -> bool:
    """Whether a call has its answer, or is a parent's call that a fork inherits."""
    ended, call = draft.get("ended", own_id), draft.get("open", own_id)
    if draft.event.inherited:
        return bool(ended == "ok")
    return ended in ("ok", _INHERITED) or (call is not None and _INHERITED in call)


def _chunk(draft: RowDraft, chunk: AssistantChunk) -> None:
    if draft.get("ended", chunk.llm_call_id) is not None or _is_over(draft, chunk.llm_call_id):
        return
    call = draft.get("open", chunk.llm_call_id)
    if call is None:
        values = _begin(draft, chunk.llm_call_id, {})
        draft.put(_TABLE, (chunk.llm_call_id,), values | {"end_version": draft.event.version})
    elif call["first"] is None:
        first = folding.elapsed_ms(call["started"], draft.event.occurred_at)
        draft.keep("open", chunk.llm_call_id, {**call, "first": first})
        draft.put(_TABLE, (chunk.llm_call_id,), {"first_token_ms": first})


def _begin(draft: RowDraft, own_id: str, called: dict[str, str | None]) -> dict[str, Any]:
    event = draft.event
    # Without a request the start is unknown, and the first piece gives no latency.
    started = draft.now if called else None
    call = {"started": started, "first": None, "called": called}
    draft.keep("open", own_id, {**call, _INHERITED: True} if event.inherited else call)
    return {**folding.where(event), **called, **_first_seen(event), "status": "started"}


def _message(draft: RowDraft, message: AssistantMessage) -> None:
    own_id = message.llm_call_id or f"v{draft.event.version}"
    if _is_over(draft, own_id) or folding.replaces(draft.state, draft.event):
        return
    call = draft.get("open", own_id)
    called = _called(message.invocation, call)
    values = _end(draft, own_id, call, called) | {"status": "ok", "error_kind": None}
    values |= _tokens(message.usage, called, draft.event.occurred_at, message.raw)
    if message.usage is None:
        values["estimated_completion_tokens"] = WrittenTexts(
            _texts_of(message), called.get("model")
        )
    _set_times(values, draft, call, message.duration_ms)
    if message.first_token_ms is not None:
        values["first_token_ms"] = message.first_token_ms
    draft.keep("ended", own_id, "ok", CLOSED_LIMIT)
    draft.put(_TABLE, (own_id,), values)


def _error(draft: RowDraft, error: LlmError) -> None:
    own_id = error.llm_call_id or f"v{draft.event.version}"
    if draft.get("ended", own_id) is not None or _is_over(draft, own_id):
        return
    call = draft.get("open", own_id)
    called = _called(error.invocation, call)
    values = _end(draft, own_id, call, called)
    values |= {"status": error.kind, "error_kind": error.kind, "attempt": error.attempt}
    values |= _tokens(error.usage, called, draft.event.occurred_at)
    partial = (error.partial_reasoning, error.partial_text)
    pieces = [*partial, *(call.arguments_text for call in error.partial_tool_calls)]
    if error.usage is None and any(pieces):
        values["estimated_completion_tokens"] = WrittenTexts(pieces, called.get("model"))
    _set_times(values, draft, call, error.duration_ms)
    draft.keep("ended", own_id, _INHERITED if draft.event.inherited else "error", CLOSED_LIMIT)
    draft.put(_TABLE, (own_id,), values)


def _retained(draft: RowDraft, retained: RetainedUsage) -> None:
    """Write the rows of calls that an erasure has kept, replacing what their events left."""
    for call in retained.calls:
        own_id, started = call.llm_call_id, call.status == "started"
        draft.drop("open", own_id)
        draft.drop("ended", own_id)
        if started:
            started_at = folding.moment_text(call.started_at) if call.has_request else None
            entry = {"started": started_at, "first": call.first_token_ms, "called": _model(call)}
            draft.keep("open", own_id, entry)
        else:
            draft.keep("ended", own_id, "ok" if call.status == "ok" else "error", CLOSED_LIMIT)
        draft.put(_TABLE, (own_id,), _billed(call))


def _billed(call: BilledCall) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(call, name) for name in _AS_BILLED}
    values["error_kind"] = None if call.status in ("started", "ok") else call.status
    values["day"] = folding.day_of(call.started_at)
    ended = call.ended_at or call.started_at
    return values | _tokens(call.usage, _model(call), ended)


def _model(call: BilledCall) -> dict[str, str | None]:
    return {name: getattr(call, name) for name in ("provider", "model", "specification")}


def _end(
    draft: RowDraft, own_id: str, call: dict[str, Any] | None, called: dict[str, str | None]
) -> dict[str, Any]:
    draft.drop("open", own_id)
    event = draft.event
    values = {**called, "ended_at": event.occurred_at, "end_version": event.version}
    if (copied := copy_key_of(event.meta)) is not None:
        values["copy_key"] = copied
    if call is None and draft.get("ended", own_id) is None:
        values |= folding.where(event) | _first_seen(event)
    return values


def _called(invocation: Invocation | None, call: dict[str, Any] | None) -> dict[str, str | None]:
    """Return provider, model and specification, as far as known; the answer's take precedence."""
    called: dict[str, str | None] = dict(call["called"]) if call else {}
    if invocation is not None:
        fields = {
            name: getattr(invocation, name) for name in ("provider", "model", "specification")
        }
        called |= {name: value for name, value in fields.items() if value is not None}
    return called


def _first_seen(event: RecordedEvent) -> dict[str, Any]:
    return {
        "version": event.version,
        "started_at": event.occurred_at,
        "day": folding.day_of(event.occurred_at),
    }


def _set_times(
    values: dict[str, Any], draft: RowDraft, call: dict[str, Any] | None, first_token_ms: int | None
) -> None:
    started = call["started"] if call else None
    latency = (
        folding.elapsed_ms(started, draft.event.occurred_at)
        if first_token_ms is None
        else first_token_ms
    )
    if latency is not None:
        values["latency_ms"] = latency


def _tokens(
    usage: TokenUsage | None, called: dict[str, str | None], at: datetime, answer: Any = None
) -> dict[str, Any]:
    if usage is None:
        return {}
    if not usage.reported:
        # A zero from the writer means that it did not count.
        counts = {
            "estimated_prompt_tokens": usage.prompt_tokens,
            "estimated_completion_tokens": usage.completion_tokens,
        }
        return {name: count for name, count in counts.items() if count}
    total = usage.total_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_prompt_tokens": usage.cached_prompt_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens if total is None else total,
        "estimated_completion_tokens": None,
        "cost_usd": cost_usd(usage, called.get("provider"), called.get("model"), at, answer),
    }


def _texts_of(message: AssistantMessage) -> list[str]:
    calls = (text for call in message.tool_calls for text in (call.name, call.arguments_text))
    return [payload_text.text_of(message.parts), *calls]


_HANDLERS: dict[type, folding.Handler] = {
    LlmRequest: _request,
    AssistantChunk: _chunk,
    AssistantMessage: _message,
    Retraction: folding.note_replaced,
    LlmError: _error,
    RetainedUsage: _retained,
}

USAGE = UsageProjection()
