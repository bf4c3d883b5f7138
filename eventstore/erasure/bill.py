"""The bill of model calls whose text an erasure deletes, computed from their events.

A bill needs only a few of an event's fields: the model, the token counts, the times. An event of
its own keeps them, and usage is folded from that event once the text is gone. Token counts that no
provider reported are not kept: they were counted from the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from eventstore.errors import (
    BlobDamaged,
    BlobNotFound,
    EventDamaged,
    EventStoreError,
    KeyUnavailable,
)
from eventstore.events.billing import billing_of, copy_key_of
from eventstore.events.model import (
    AssistantChunk,
    AssistantMessage,
    BilledCall,
    LlmError,
    LlmRequest,
    RetainedUsage,
)
from eventstore.events.records import RecordedEvent
from eventstore.events.values import Invocation
from eventstore.sql.read import END, read_page
from eventstore.telemetry.log import get_logger

__all__ = ["bills", "is_unreadable", "nameless", "readable", "usage_events"]

_log = get_logger("eventstore")

_MOST_CALLS = 1_000
"""The most calls that one ``kept_usage`` event holds."""
_WHERE = ("turn", "step", "mode", "session_id", "run_id", "agent_id")
_PAGE = 1_000
_BILLED = (AssistantChunk, AssistantMessage, LlmError, LlmRequest)


def usage_events(bill: Collection[BilledCall]) -> list[RetainedUsage]:
    """Return the events that keep a bill."""
    calls = tuple(bill)
    return [
        RetainedUsage(calls=calls[start : start + _MOST_CALLS])
        for start in range(0, len(calls), _MOST_CALLS)
    ]


def nameless(call: BilledCall) -> BilledCall:
    """Return a call without the names of its events, which were sealed and are gone."""
    none = dict.fromkeys(("retry_of", "session_id", "run_id", "agent_id", "copy_key"))
    return call.model_copy(update={"llm_call_id": f"v{call.version}", **none})


def is_unreadable(error: EventStoreError) -> bool:
    """Whether an event cannot be read for good: it is damaged, or its key is lost."""
    if isinstance(error, KeyUnavailable):
        return error.lasting
    return isinstance(error, BlobDamaged | BlobNotFound | EventDamaged)


def readable(
    connection: Connection, conversation_id: UUID, unread: dict[int, EventStoreError] | None = None
) -> Iterator[RecordedEvent]:
    """Yield a conversation's events, except those that cannot be read: these can still be erased.

    Reads page by page in the caller's transaction. ``unread`` gets the error of each version that
    is left out.

    Raises:
        KeyUnavailable: An event is sealed, and its key is not available at the moment.
    """
    after, singles = 0, 0
    while True:
        size = 1 if singles else _PAGE
        before = after + 2 if singles else END
        try:
            page = read_page(connection, conversation_id, after=after, before=before, limit=size)
        except EventStoreError as error:
            if not is_unreadable(error):
                raise
            if not singles:  # one by one, to find those that can be read
                message = "an event cannot be read: the erasure goes on without it"
                _log.warning(message, conversation_id=conversation_id, error=str(error))
                singles = _PAGE
                continue
            page = []
            if unread is not None:
                unread[after + 1] = error
        yield from page
        if singles:
            singles -= 1
            after += 1
        elif len(page) < _PAGE:
            return
        else:
            after = page[-1].version


def bills(events: Iterable[RecordedEvent], erased: Collection[int]) -> tuple[BilledCall, ...]:
    """Return the model calls that the erased versions belong to, computed from all events.

    Args:
        events: All events of a conversation in order, with their payloads.
        erased: The versions that will lose their payload.
    """
    calls: dict[str, dict[str, Any]] = {}
    shared: set[str] = set()
    losing: dict[str, None] = {}
    for event in events:
        data = event.data
        if isinstance(data, RetainedUsage) and not event.inherited:
            calls |= {call.llm_call_id: dict(call) for call in data.calls}
        if not isinstance(data, _BILLED):
            continue
        own_id = data.llm_call_id or f"v{event.version}"
        if event.inherited:  # The call belongs to the parent, and to the parent's bill.
            shared.add(own_id)
            continue
        if isinstance(data, LlmRequest):
            shared.discard(own_id)
        if own_id not in shared:
            calls[own_id] = _after(calls.get(own_id), own_id, event, data)
            if event.version in erased:
                losing[own_id] = None
    return tuple(BilledCall(**calls[own_id]) for own_id in losing)


def _after(
    call: dict[str, Any] | None,
    own_id: str,
    event: RecordedEvent,
    data: AssistantChunk | AssistantMessage | LlmError | LlmRequest,
) -> dict[str, Any]:
    """Return the facts of a call after its next event; the first answer is final.

    A request starts the call over.
    """
    if call is not None and call["status"] == "ok":
        return call
    if isinstance(data, LlmRequest):
        started = dict(BilledCall(**_started(own_id, event)))
        return {**started, **_called(data.invocation), **_requested(data)}
    if call is not None and call["status"] != "started" and not isinstance(data, AssistantMessage):
        return call
    call = call or dict(BilledCall(**_started(own_id, event)))
    if isinstance(data, AssistantChunk):
        if call["first_token_ms"] is None and call["has_request"]:
            return {**call, "first_token_ms": _elapsed_ms(call, event)}
        return call
    ended = {**call, **_called(data.invocation), **_ended(call, event, data)}
    if isinstance(data, AssistantMessage):
        first = data.first_token_ms
        first_token = {} if first is None else {"first_token_ms": first}
        return {**ended, "status": "ok", **first_token}
    return {**ended, "status": data.kind, "attempt": data.attempt}


def _started(own_id: str, event: RecordedEvent) -> dict[str, Any]:
    return {
        "llm_call_id": own_id,
        "status": "started",
        "version": event.version,
        "end_version": event.version,
        "started_at": event.occurred_at,
        **{name: getattr(event.meta, name) for name in _WHERE},
    }


def _requested(request: LlmRequest) -> dict[str, Any]:
    return {
        "estimated_prompt_tokens": request.counted_tokens,
        "attempt": request.attempt,
        "retry_of": request.retry_of,
        "has_request": True,
    }


def _called(invocation: Invocation | None) -> dict[str, Any]:
    names = ("provider", "model", "specification")
    attributes = {name: getattr(invocation, name) for name in names if invocation is not None}
    return {name: value for name, value in attributes.items() if value is not None}


def _ended(
    call: dict[str, Any], event: RecordedEvent, data: AssistantMessage | LlmError
) -> dict[str, Any]:
    ended: dict[str, Any] = {"ended_at": event.occurred_at, "end_version": event.version}
    latency = data.duration_ms
    if latency is None and call["has_request"] and call["status"] == "started":
        latency = _elapsed_ms(call, event)
    if latency is not None:
        ended["latency_ms"] = latency
    if (copied := copy_key_of(event.meta)) is not None:
        ended["copy_key"] = copied
    if data.usage is not None:
        billing = billing_of(data.usage.raw, data.raw)
        raw = {"billing": billing} if billing else None
        ended["usage"] = data.usage.model_copy(update={"raw": raw})
    return ended


def _elapsed_ms(call: dict[str, Any], event: RecordedEvent) -> int:
    seconds: float = (event.occurred_at - call["started_at"]).total_seconds()
    return max(0, round(seconds * 1000))
