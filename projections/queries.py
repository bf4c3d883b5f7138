"""The queries that views run on the read models' tables: one per view, in the caller's transaction.

Larger queries are in the module of their subject: `projections.listing`,
`projections.models.totals`, `projections.tokens.calibration`, `projections.run_mode`,
`projections.context`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, Table, select, tuple_

from eventstore.arguments import at_most
from eventstore.errors import EventStoreError, RowDamaged
from eventstore.events.values import ToolStatus
from eventstore.leases import writer_of
from eventstore.owners import Owner
from projections.engine import tables
from projections.engine.folding import day_of
from projections.engine.generations import Generation
from projections.models.branches import BRANCHES, BranchRow
from projections.models.open_items import OpenWork
from projections.models.tasks import TASKS, TaskRow
from projections.models.timeline_items import TimelineItem
from projections.models.tool_calls import ToolCallRow
from projections.models.usage import UsageRow
from projections.payload_text import SEALS

__all__ = [
    "TOOL_STATUSES",
    "branch_rows",
    "conversations_with_open_work",
    "goes_on",
    "model_calls",
    "open_work",
    "readable",
    "rows",
    "start_of_turn",
    "tasks",
    "timeline",
    "timeline_page",
    "tool_calls",
    "unsettled_calls",
]


TOOL_STATUSES = ("requested", "running", *get_args(ToolStatus))
_UNSETTLED = ("requested", "running", *SEALS)
_WRITERS = frozenset({"session", "turn", "assistant", "reasoning", "tool"})
_GOING_ON = frozenset({"pending", "running", "streaming"})


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise `RowDamaged` if a projection's rows cannot be converted.

    Wrap only code that handles rows: the caller's own values must have been checked before.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValidationError) as error:
        if isinstance(error, EventStoreError):
            raise
        raise RowDamaged(f"in {name}") from error


def rows(
    connection: Connection,
    generation: Generation,
    *,
    table: str,
    conversation_id: UUID | None,
    limit: int | None,
    owned_by: Owner,
) -> list[dict[str, Any]]:
    """Return a table's rows, of one conversation or of all, ordered by key."""
    stored = generation.tables[table]
    query = tables.shown(stored, connection.dialect.name)
    if conversation_id is not None:
        query = query.where(stored.c.conversation_id == conversation_id)
    elif owned_by.asks:
        query = owned_by.limit_by_id(query, stored.c.conversation_id, connection.dialect.name)
    query = query.order_by(*stored.primary_key.columns).limit(at_most(limit))
    return [dict(row) for row in connection.execute(query).mappings()]


def row_batches(
    connection: Connection, generation: Generation, *, table: str, size: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield all rows of a table in any order, in batches that need not fit in memory together."""
    query = tables.shown(generation.tables[table], connection.dialect.name)
    found = connection.execute(query, execution_options={"stream_results": True})
    for batch in found.mappings().partitions(size):
        yield [dict(row) for row in batch]


def timeline(
    connection: Connection,
    generation: Generation,
    conversation_id: UUID,
    *,
    after: int,
    limit: int | None,
    now: bool = True,
) -> list[TimelineItem]:
    """Return the items of a conversation that began or changed after a version, in reading order.

    With a limit, those that changed first. With ``now``, running items whose writer's process has
    ended are returned as interrupted.
    """
    limit = at_most(limit)
    if limit == 0:
        return []
    table = generation.tables["timeline_items"]
    # A caller that asks for changes also gets the items that have left the active branch.
    conditions = (
        table.c.conversation_id == conversation_id,
        table.c.end_version > after if after else table.c.inactive.is_not(True),
    )
    query = tables.shown(table, connection.dialect.name).where(*conditions)
    if (
        limit is not None
        and (last := _last_change(connection, table, conditions, limit)) is not None
    ):
        query = query.where(table.c.end_version <= last)
    query = query.order_by(table.c.version, table.c.part)
    items = [TimelineItem.from_row(row) for row in connection.execute(query).mappings()]
    return _as_of_now(connection, conversation_id, items) if now else items


def _as_of_now(
    connection: Connection, conversation_id: UUID, items: list[TimelineItem]
) -> list[TimelineItem]:
    """Return the items, running ones as interrupted if their writer's process has ended."""
    if any(goes_on(item) for item in items):
        writer = writer_of(connection, conversation_id)
        if writer is not None and not writer.live:
            return [
                replace(item, status="interrupted") if goes_on(item) else item for item in items
            ]
    return items


def timeline_page(
    connection: Connection,
    generation: Generation,
    conversation_id: UUID,
    *,
    before: int | tuple[int, int] | None,
    limit: int,
    kinds: Collection[str],
    now: bool = True,
) -> list[TimelineItem]:
    """Return the last items of the active branch before a version or an item, in reading order."""
    table = generation.tables["timeline_items"]
    query = tables.shown(table, connection.dialect.name).where(
        table.c.conversation_id == conversation_id, table.c.inactive.is_not(True)
    )
    if isinstance(before, tuple):
        query = query.where(tuple_(table.c.version, table.c.part) < tuple_(*before))
    elif before is not None:
        query = query.where(table.c.version < before)
    if kinds:
        query = query.where(table.c.kind.in_(kinds))
    query = query.order_by(table.c.version.desc(), table.c.part.desc()).limit(at_most(limit))
    rows = connection.execute(query).mappings().all()
    items = [TimelineItem.from_row(row) for row in reversed(rows)]
    return _as_of_now(connection, conversation_id, items) if now else items


def model_calls(
    connection: Connection,
    generation: Generation,
    *,
    conversation_id: UUID | None,
    before: int | None,
    model: str | None,
    status: str | None,
    since: datetime | None,
    limit: int,
    owned_by: Owner,
) -> list[UsageRow]:
    """Return the model calls that match all given filters, newest first."""
    table = generation.tables["usage_by_call"]
    query = tables.shown(table, connection.dialect.name)
    if conversation_id is None:
        query = owned_by.limit_by_id(query, table.c.conversation_id, connection.dialect.name)
        query = query.order_by(table.c.started_at.desc(), table.c.conversation_id)
    else:
        query = query.where(table.c.conversation_id == conversation_id)
    query = query.order_by(table.c.version.desc(), table.c.llm_call_id)
    if before is not None:
        query = query.where(table.c.version < before)
    if model is not None:
        query = query.where(table.c.model == model)
    if status is not None:
        query = query.where(table.c.status == status)
    if since is not None:  # Only the day is indexed.
        query = query.where(table.c.day >= day_of(since), table.c.started_at >= since)
    rows = connection.execute(query.limit(at_most(limit))).mappings()
    return [UsageRow.from_row(row) for row in rows]


def _last_change(
    connection: Connection, table: Table, conditions: tuple[ColumnElement[bool], ...], limit: int
) -> int | None:
    """Return the version of the last change on a page; None if all items fit on it.

    The items that one event changed are not divided: the next page begins after its version.
    """
    changed = table.c.end_version
    query = select(changed).where(*conditions).order_by(changed).offset(limit - 1).limit(2)
    ends = connection.execute(query).scalars().all()
    if len(ends) < 2:
        return None
    if ends[0] < ends[1]:
        return int(ends[0])
    fits = select(changed).where(*conditions, changed < ends[0]).order_by(changed.desc()).limit(1)
    return int(connection.execute(fits).scalar() or ends[0])


def branch_rows(
    connection: Connection, generation: Generation, conversation_id: UUID
) -> list[BranchRow]:
    """Return the alternatives of a conversation, including nested ones."""
    table = generation.tables[BRANCHES.name]
    query = select(table).where(table.c.conversation_id == conversation_id)
    found = connection.execute(query.order_by(table.c.version)).mappings()
    return [BranchRow.from_row(row) for row in found]


def goes_on(item: TimelineItem) -> bool:
    """Whether an item shows work that its writer is doing; runs and tasks need no writer."""
    return item.kind in _WRITERS and item.status in _GOING_ON


def tool_calls(
    connection: Connection,
    generation: Generation,
    *,
    conversation_id: UUID | None,
    tool: str | None,
    status: str | None,
    call_id: str | None,
    alias: str | None,
    limit: int,
    owned_by: Owner,
) -> list[ToolCallRow]:
    """Return the tool calls that match all given filters, newest first.

    Raises:
        ValueError: The status is unknown, or the limit is negative.
    """
    if status is not None and status not in TOOL_STATUSES:
        raise ValueError(f"unknown status {status!r}: choose from {', '.join(TOOL_STATUSES)}")
    table = generation.tables["tool_calls"]
    wanted = (
        (table.c.conversation_id, conversation_id),
        (table.c.name, tool),
        (table.c.status, status),
        (table.c.call_id, call_id),
        (table.c.alias, alias),
    )
    query = select(table).where(table.c.replaced.is_not(True))
    query = query.order_by(
        table.c.requested_at.desc(),
        table.c.conversation_id,
        # Never NULL (the databases sort NULL to different ends). Events of one append share a time.
        table.c.requested_version.desc(),
        table.c.call_index.desc(),
        table.c.call_id,
    )
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    if conversation_id is None:
        query = owned_by.limit_by_id(query, table.c.conversation_id, connection.dialect.name)
    rows = connection.execute(query.limit(at_most(limit))).mappings()
    return [ToolCallRow.from_row(row) for row in rows]


def unsettled_calls(
    connection: Connection,
    generation: Generation,
    conversation_id: UUID,
    run_id: str,
    after: int,
) -> list[ToolCallRow]:
    """Return a run's tool calls without a known result, in order.

    Args:
        connection: The connection.
        generation: The generation of the tool calls.
        conversation_id: The conversation.
        run_id: The run.
        after: Only calls requested after this version. Retracted calls are left out.
    """
    table = generation.tables["tool_calls"]
    query = select(table).where(
        table.c.conversation_id == conversation_id,
        table.c.run_id == run_id,
        table.c.status.in_(_UNSETTLED),
        table.c.withdrawn.is_not(True),
        table.c.requested_version > after,
    )
    query = query.order_by(table.c.requested_version, table.c.call_index, table.c.call_id)
    return [ToolCallRow.from_row(row) for row in connection.execute(query).mappings()]


def open_work(connection: Connection, generation: Generation, conversation_id: UUID) -> OpenWork:
    """Return a conversation's open work."""
    table = generation.tables["open_work"]
    query = select(table).where(table.c.conversation_id == conversation_id)
    return OpenWork.from_row(connection.execute(query).mappings().one())


def start_of_turn(
    connection: Connection, generation: Generation, *, stream: UUID, turn: int
) -> int | None:
    """Return the version of the start of a conversation's turn; None if there is none."""
    if not 0 < turn < 2**31:
        return None
    table = generation.tables["turns"]
    query = select(table.c.version).where(table.c.conversation_id == stream, table.c.turn == turn)
    return connection.execute(query).scalar()


def tasks(
    connection: Connection,
    generation: Generation,
    conversation_id: UUID,
    *,
    task_id: str | None,
    open_only: bool,
) -> list[TaskRow]:
    """Return the tasks in a conversation's queue, in the order in which they were enqueued."""
    table = generation.tables[TASKS.name]
    query = select(table).where(table.c.conversation_id == conversation_id)
    if task_id is not None:
        query = query.where(table.c.task_id == task_id)
    if open_only:
        query = query.where(table.c.status.in_(("pending", "running")))
    query = query.order_by(table.c.enqueued_version, table.c.task_id)
    return [TaskRow.from_row(row) for row in connection.execute(query).mappings()]


def conversations_with_open_work(
    connection: Connection,
    generation: Generation,
    *,
    after: UUID | None,
    limit: int,
    owned_by: Owner,
) -> list[UUID]:
    """Return the ids above ``after``, in order, of the conversations that have open work."""
    table = generation.tables["open_work"]
    query = select(table.c.conversation_id).where(table.c.open_count > 0)
    if after is not None:
        query = query.where(table.c.conversation_id > after)
    query = owned_by.limit_by_id(query, table.c.conversation_id, connection.dialect.name)
    query = query.order_by(table.c.conversation_id).limit(at_most(limit))
    return list(connection.execute(query).scalars())
