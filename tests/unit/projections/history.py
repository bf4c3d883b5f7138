"""Recorded events made from payloads, and the rows that a projection makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from eventstore.events import Meta, Payload, RecordedEvent, UnknownEvent
from eventstore.ids import derived_id
from projections.engine.projection import Change, Projection, Put, State
from projections.tokens.counts import TokenCounts

__all__ = ["CONVERSATION", "START", "Entry", "apply", "fold", "history", "record", "rows"]

CONVERSATION = UUID("018f0000-0000-7000-8000-000000000001")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

Entry = Payload | UnknownEvent | str | tuple[Payload | UnknownEvent | str, Meta]
"""A payload, or the type of an erased event; with or without its metadata."""

Tables = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


def record(version: int, entry: Entry) -> RecordedEvent:
    """Return an entry as the store would give it back, ``version`` seconds after the start."""
    data, meta = entry if isinstance(entry, tuple) else (entry, Meta())
    return RecordedEvent(
        conversation_id=CONVERSATION,
        version=version,
        event_id=derived_id(CONVERSATION, version),
        position=version,
        type=data if isinstance(data, str) else data.type,
        schema_version=1 if isinstance(data, str) else data.schema_version,
        recorded_at=START + timedelta(seconds=version),
        data=None if isinstance(data, str) else data,
        meta=meta,
        data_digest=b"",
        chain=b"",
    )


def history(*entries: Entry) -> list[RecordedEvent]:
    """Return entries as the events of one conversation, from version 1."""
    return [record(version, entry) for version, entry in enumerate(entries, start=1)]


def fold(
    projection: Projection, events: Iterable[RecordedEvent], state: State | None = None
) -> tuple[State, list[Change]]:
    """Return the state after the events, and all the changes in order."""
    state = projection.initial() if state is None else state
    changes: list[Change] = []
    for event in events:
        state, new = projection.fold(state, event)
        changes.extend(new)
    return state, changes


def apply(changes: Iterable[Change], projection: Projection | None = None) -> Tables:
    """Return what tables hold after changes: by table and key, the columns that were set.

    With the projection, the rows hold their key columns too, and a `Patch` may match by them.
    """
    keys = {table.name: table.key for table in projection.tables} if projection else {}
    countings = {each.name: each.counting for each in projection.tables} if projection else {}
    tables: Tables = {}
    for change in changes:
        table = tables.setdefault(change.table, {})
        values = dict(change.values)
        if (counting := countings.get(change.table)) is not None:
            counting.fill(values, TokenCounts())
        if isinstance(change, Put):
            key_columns = dict(zip(keys.get(change.table, ()), change.key, strict=False))
            table.setdefault(change.key, key_columns).update(values)
            continue
        for row in table.values():
            value = row.get(change.column)
            matches = value is not None and change.first <= value <= change.last
            if matches and (change.only is None or row.get(change.only[0]) == change.only[1]):
                row.update(values)
    return tables


def rows(projection: Projection, table: str, *entries: Entry) -> list[dict[str, Any]]:
    """Return a table's rows after the entries, in order of their keys."""
    _, changes = fold(projection, history(*entries))
    found = apply(changes, projection).get(table, {})
    return [found[key] for key in sorted(found)]
