"""The audit table: every tool call, with its requester, its arguments and its outcome.

A call is identified by our own id, whatever the order of its events. The first real result stays:
a duplicate is recognized among the last `folding.CLOSED_LIMIT` answered calls, while one of an
older call replaces the result. A long-running call is ``running`` while its results are interim,
and each result replaces the one before. A real result replaces ``not_started`` and
``outcome_unknown``, never the other way round; a call that is executed again after one of them has
no result until then. A request that is withdrawn before it runs gets ``not_started``. A result that
is withdrawn alone stays until its call has another one. A request that is recorded again replaces
the earlier row if that has no result, or once its result is recorded again too.
A result or an execution without a request gets its own row. Of an erased result only the type is
known: the oldest open call of the newest message gets ``outcome_unknown`` without a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType
from typing import Any

from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    RecordedEvent,
    Retraction,
    ToolCall,
    ToolResult,
)
from eventstore.events.values import ToolCallRequest
from eventstore.ids import call_id
from projections import payload_text, version_ranges
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, Row, RowDraft
from projections.engine.projection import Change, Patch, ReadTable, State
from projections.payload_text import SEALS

__all__ = ["TOOL_CALLS", "ToolCallRow", "ToolCallsProjection"]

_TABLE = "tool_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRow(Row):
    """A tool call.

    Attributes:
        call_id: Our own id of the call, ``<call_version>.<call_index>``.
        call_version: Version of the assistant message that requested it, if known.
        call_index: 0-based index among the calls of that message.
        arguments_text: The model's text; ``arguments`` is its parsed form.
        status: ``requested``, ``running``, or the status of the result.
        duration_ms: As the result says, otherwise from ``started_at`` to the result's time.
        result_text: The result as text; for a result in a blob, its start.
        result_size_chars: Length of the whole text; NULL if it is in a blob.
        result_size_bytes: Size of the whole result in UTF-8.
        requested_version: Version of the call's first event.
        day: Day of the request in UTC, ``YYYY-MM-DD``.
        withdrawn: Whether the request was retracted from the context.
        inactive: Whether it is on an inactive branch.
        replaced: Whether the request was recorded again, edited or at another place; views leave
            such rows out.
    """

    call_id: str
    call_version: int | None = None
    call_index: int | None = None
    provider_id: str | None = None
    llm_call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    arguments_text: str | None = None
    parse_error: str | None = None
    idempotency_key: str | None = None
    status: str | None = None
    requested_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    result_text: str | None = None
    result_size_chars: int | None = None
    result_size_bytes: int | None = None
    alias: str | None = None
    blob_digest: str | None = None
    error: str | None = None
    actor: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    turn: int | None = None
    step: int | None = None
    mode: str | None = None
    run_id: str | None = None
    requested_version: int | None = None
    started_version: int | None = None
    result_version: int | None = None
    day: str | None = None
    withdrawn: bool | None = None
    inactive: bool | None = None
    replaced: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolCallsProjection:
    """Folds a conversation's events into ``tool_calls``."""

    name: str = "tool_calls"
    version: int = 8
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            ("call_id",),
            folding.columns_of(ToolCallRow),
            indexes=(("requested_version",),),
            lookups=(("name", "day"), ("status", "day")),
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: no open or answered calls."""
        return {"open": {}, "answered": {}, "withdrawn": [], "replacing": [], "replaced": []}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the table."""
        return folding.run(_HANDLERS, state, event)


def _requests(draft: RowDraft, message: AssistantMessage) -> None:
    for index, request in enumerate(message.tool_calls):
        _request(draft, message, index, request)


def _request(
    draft: RowDraft, message: AssistantMessage, index: int, request: ToolCallRequest
) -> None:
    version = draft.event.version
    own_id = call_id(version, index)
    values = _first_seen(draft.event) | {
        "call_version": version,
        "call_index": index,
        "provider_id": request.provider_id,
        "llm_call_id": message.llm_call_id,
        "name": request.name,
        "arguments": request.arguments,
        "arguments_text": request.arguments_text,
        "parse_error": request.parse_error,
    }
    if draft.get("open", own_id) is None and draft.get("answered", own_id) is None:
        values["status"] = "requested"
        draft.keep("open", own_id, {"long": True} if request.long_running else {})
    draft.put(_TABLE, (own_id,), values)


def _execution(draft: RowDraft, call: ToolCall) -> None:
    event = draft.event
    values: dict[str, Any] = {"started_at": event.occurred_at, "started_version": event.version}
    values["name"] = call.name  # The tool's own name, which may differ from the one on the wire.
    if call.idempotency_key is not None:
        values["idempotency_key"] = call.idempotency_key
    if draft.get("answered", call.call_id) is None:
        values["status"] = "running"
        known = draft.get("open", call.call_id)
        if known is not None and "sealed" in known:
            values |= _NO_OUTCOME
            draft.drop("open", call.call_id)  # it is the newest of the open calls
        if known is None:
            values |= _first_seen(event) | {
                "provider_id": call.provider_id,
                "arguments": call.arguments,
            }
        draft.keep("open", call.call_id, {**(known or {}), "started": draft.now})
    draft.put(_TABLE, (call.call_id,), values)


def _result(draft: RowDraft, result: ToolResult) -> None:
    event, own_id = draft.event, result.call_id
    if draft.get("answered", own_id) is not None:
        return
    if result.provider_id is not None and folding.replaces(draft.state, event):
        for first, last in draft.state["replaced"]:
            draft.changes.append(
                Patch(
                    _TABLE,
                    "requested_version",
                    first,
                    last,
                    {"replaced": True},
                    only=("provider_id", result.provider_id),
                )
            )
    call = draft.get("open", own_id)
    values = _outcome(result, event, (call or {}).get("started"))
    if call is None:
        values |= _first_seen(event) | {"provider_id": result.provider_id, "name": result.name}
    if result.status in SEALS or (call and "long" in call):
        draft.keep("open", own_id, {**(call or {}), "sealed": True})
    else:
        draft.drop("open", own_id)
        draft.keep("answered", own_id, event.version, CLOSED_LIMIT)
    draft.put(_TABLE, (own_id,), values)


def _erased(draft: RowDraft, _: None) -> None:
    if draft.event.type != "tool_result":
        return
    own_id = folding.call_of_erased_result(draft.state["open"])
    if own_id is not None:
        _result(draft, ToolResult(call_id=own_id, status="outcome_unknown"))


def _outcome(result: ToolResult, event: RecordedEvent, started: str | None) -> dict[str, Any]:
    text, blob = payload_text.result_text(result), result.blob
    whole = text if blob is None else None
    size = None if whole is None else len(whole.encode("utf-8", "surrogatepass"))
    duration = result.duration_ms
    return {
        "status": "running" if result.interim else result.status,
        "ended_at": None if result.interim else event.occurred_at,
        "duration_ms": None
        if result.interim
        else folding.elapsed_ms(started, event.occurred_at)
        if duration is None
        else duration,
        "result_text": text,
        "result_size_chars": None if whole is None else len(whole),
        "result_size_bytes": size if blob is None else blob.size_bytes,
        "alias": result.alias,
        "blob_digest": None if blob is None else blob.digest,
        "error": result.error,
        "result_version": event.version,
    }


_NO_OUTCOME: dict[str, Any] = dict.fromkeys(
    (
        "ended_at",
        "duration_ms",
        "result_text",
        "result_size_chars",
        "result_size_bytes",
        "alias",
        "blob_digest",
        "error",
        "result_version",
    )
)


def _first_seen(event: RecordedEvent) -> dict[str, Any]:
    return folding.where(event) | {
        "actor": event.meta.actor,
        "requested_at": event.occurred_at,
        "requested_version": event.version,
        "day": folding.day_of(event.occurred_at),
        "withdrawn": False,
    }


def _retraction(draft: RowDraft, retraction: Retraction) -> None:
    new = folding.withdraw(draft, retraction, _TABLE, "requested_version", {"withdrawn": True})
    ranges = version_ranges.retracted(retraction, draft.event)
    never_ran: dict[str, Any] = {"status": "not_started"}
    if retraction.replaced_by:
        never_ran["replaced"] = True
        folding.note_replaced(draft, retraction)
        draft.set(replaced=[list(each) for each in ranges])
    for first, last in ranges if retraction.replaced_by else new:
        draft.changes.append(
            Patch(_TABLE, "requested_version", first, last, never_ran, only=("status", "requested"))
        )
    for first, last in ranges:
        for own_id, version in draft.state["answered"].items():
            if first <= version <= last:  # the outcome stays until there is another one
                draft.drop("answered", own_id)
                draft.keep("open", own_id, {})


def _switch(draft: RowDraft, switched: BranchSwitch) -> None:
    folding.switch(draft, switched, _TABLE, "requested_version")


_HANDLERS: dict[type, folding.Handler] = {
    AssistantMessage: _requests,
    ToolCall: _execution,
    ToolResult: _result,
    Retraction: _retraction,
    BranchSwitch: _switch,
    NoneType: _erased,
}

TOOL_CALLS = ToolCallsProjection()
