"""Usage totals: ``usage_by_call`` grouped by model, day, conversation and so on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    case,
    exists,
    func,
    or_,
    select,
)

from eventstore.database import backend_of, metadata_for
from eventstore.owners import Owner
from projections.engine.folding import day_of

__all__ = ["UsageBy", "UsageTotal", "usage_totals"]

UsageBy = Literal[
    "model", "day", "conversation", "session", "turn", "step", "call", "user", "tenant"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """Sums over the model calls of one group; ``key`` is None for calls without a value.

    The keys of turns, steps and calls include the conversation: ``<conversation>/<turn>``,
    ``<conversation>/<turn>/<step>`` and ``<conversation>/<call>``. Token sums are reported tokens;
    estimates are summed separately. A sum is None if no call of the group has a value.
    ``latency_ms_avg`` covers calls that ended. Of an imported call that several conversations of
    one owner hold (a session's file that was resumed or forked), the earliest one counts.

    The ``compared`` fields cover calls with both an estimate from before sending and a reported
    count. ``estimate_error_percent`` is by how much the estimates exceed the reported tokens, in
    percent of the reported tokens.
    """

    key: str | None
    calls: int
    errors: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_prompt_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    estimated_prompt_tokens: int | None
    estimated_completion_tokens: int | None
    cost_usd: float | None
    latency_ms_avg: float | None
    compared_calls: int
    compared_estimated_tokens: int | None
    compared_prompt_tokens: int | None
    estimate_error_percent: float | None


_SUMS = (
    "prompt_tokens",
    "completion_tokens",
    "cached_prompt_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_tokens",
    "estimated_prompt_tokens",
    "estimated_completion_tokens",
    "cost_usd",
)


def usage_totals(
    connection: Connection,
    table: Table,
    *,
    by: UsageBy,
    conversation_id: UUID | None = None,
    owned_by: Owner,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[UsageTotal]:
    """Return the totals, most tokens first, in the caller's transaction.

    ``since`` is inclusive, ``until`` is exclusive; both apply to the time at which a call began.

    Raises:
        ValueError: ``by`` is not one of `UsageBy`.
    """
    if by not in get_args(UsageBy):
        choices = ", ".join(get_args(UsageBy))
        raise ValueError(f"usage cannot be grouped by {by!r}: choose from {choices}")
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    keys: dict[str, list[ColumnElement[Any]]] = {
        "model": [table.c.model],
        "day": [table.c.day],
        "conversation": [table.c.conversation_id],
        "session": [table.c.session_id],
        "turn": _whole(table.c.conversation_id, table.c.turn),
        "step": _whole(table.c.conversation_id, table.c.turn, table.c.step),
        "call": [table.c.conversation_id, table.c.llm_call_id],
        "user": [streams.c.user_id],
        "tenant": [streams.c.tenant_id],
    }
    columns = keys[by]
    failed = case((table.c.error_kind.is_not(None), 1), else_=0)
    query: Select[Any] = (
        select(
            *columns,
            func.sum(case((_is_continued(table), 0), else_=1)),
            func.sum(failed),
            *(func.sum(table.c[name]) for name in _SUMS),
            func.avg(table.c.latency_ms),
            *_compared(table),
        )
        .select_from(table.join(streams, streams.c.conversation_id == table.c.conversation_id))
        .group_by(*columns)
        .order_by(
            func.coalesce(func.sum(table.c.total_tokens), 0).desc(),
            *(column.asc().nulls_first() for column in columns),
        )
    )
    query = owned_by.limit(query, streams.c)
    if conversation_id is not None:
        query = query.where(table.c.conversation_id == conversation_id)
    else:
        spread = backend_of(connection).is_distributed
        copied = _is_copied(table, streams, is_distributed=spread)
        query = query.where(or_(table.c.copy_key.is_(None), ~copied))
    if since is not None:
        # Only the day is indexed.
        query = query.where(table.c.day >= day_of(since), table.c.started_at >= since)
    if until is not None:
        query = query.where(table.c.day <= day_of(until), table.c.started_at < until)
    return [_total(row, len(columns)) for row in connection.execute(query)]


def _is_continued(table: Table) -> ColumnElement[bool]:
    """Whether a row has the rest of a call: a later part of an answer that a file interrupts."""
    first = table.alias("first_part")
    found = exists().where(
        first.c.conversation_id == table.c.conversation_id,
        first.c.copy_key == table.c.copy_key,
        first.c.version < table.c.version,
    )
    return and_(table.c.copy_key.is_not(None), found)


def _is_copied(table: Table, streams: Table, *, is_distributed: bool) -> ColumnElement[bool]:
    """Whether another conversation of the same owner has the call, by which it is counted.

    The order depends on the rows alone, not on the order in which they were imported.
    """
    own, owner = table.alias("other_copy"), streams.alias("other_stream")
    copies = (
        select(own.c.copy_key, own.c.day, own.c.conversation_id, owner.c.tenant_id, owner.c.user_id)
        .join(owner, owner.c.conversation_id == own.c.conversation_id)
        .where(own.c.copy_key.is_not(None))
    )
    # Conversations may be on several servers: there the copies are collected first.
    other = (
        copies.cte("copies").prefix_with("MATERIALIZED") if is_distributed else copies.subquery()
    )
    return (
        exists()
        .where(
            other.c.copy_key == table.c.copy_key,
            other.c.tenant_id.is_not_distinct_from(streams.c.tenant_id),
            other.c.user_id.is_not_distinct_from(streams.c.user_id),
            or_(
                other.c.day < table.c.day,
                and_(
                    other.c.day == table.c.day,
                    other.c.conversation_id < table.c.conversation_id,
                ),
            ),
        )
        .correlate(table, streams)
    )


def _whole(*columns: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Return the columns of a key, all NULL where one of them is NULL."""
    known = and_(*(column.is_not(None) for column in columns))
    return [case((known, column)) for column in columns]


def _compared(table: Table) -> list[ColumnElement[Any]]:
    """Return the number of calls with both counts, and the sum of each count over these calls."""
    estimated, reported = table.c.estimated_prompt_tokens, table.c.prompt_tokens
    both = and_(estimated > 0, reported > 0)
    return [
        func.sum(case((both, 1), else_=0)),
        func.sum(case((both, estimated))),
        func.sum(case((both, reported))),
    ]


def _total(row: Any, keys: int) -> UsageTotal:
    parts = row[:keys]
    key = None if None in parts else "/".join(map(str, parts))
    # PostgreSQL sums integers to Decimal.
    numbers = [None if value is None else float(value) for value in row[keys:]]
    names = [field.name for field in fields(UsageTotal)][1:-1]
    values: dict[str, Any] = {
        name: number if name in ("cost_usd", "latency_ms_avg") else _integer(number)
        for name, number in zip(names, numbers, strict=True)
    }
    estimated, reported = values["compared_estimated_tokens"], values["compared_prompt_tokens"]
    error = 100.0 * (estimated / reported - 1.0) if reported else None
    return UsageTotal(key=key, **values, estimate_error_percent=error)


def _integer(number: float | None) -> int | None:
    return None if number is None else int(number)
