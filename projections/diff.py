"""Comparing what the live tables hold with what a fresh fold gives, row by row.

Writes nothing but what any read would: conversations that are behind are caught up first, where
the store can be written to. Each is compared at the version that the live generation has reached;
rows of conversations that do not exist are found too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, Table, exists, func, not_, select

from eventstore import EventStore
from eventstore.events.codec import dumps, loads
from eventstore.sql.schema import metadata_for
from projections import tables
from projections.base import ReadTable
from projections.catalogue import named
from projections.engine import fold_anew
from projections.following import catch_up_behind
from projections.generations import Generation, find_live
from projections.setup import install_all

__all__ = ["DiffReport", "Difference", "compare"]

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that the live table lacks, has too much, or holds otherwise in one ``column``."""

    projection: str
    table: str
    conversation_id: UUID
    key: dict[str, Any]
    kind: Literal["missing", "extra", "changed"]
    column: str | None
    live: Any
    rebuilt: Any


@dataclass(frozen=True, slots=True)
class DiffReport:
    """How much was compared, and every difference."""

    conversations: int
    rows: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def compare(
    store: EventStore,
    names: Iterable[str] | None = None,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> DiffReport:
    """Compare the live tables of projections with a fresh fold of all events.

    Each conversation is read in one transaction with a snapshot of its own.

    Args:
        store: The store.
        names: The projections; all of them by default.
        on_progress: Called with the events folded so far and those to be folded in all.

    Raises:
        UnknownProjection: A name is none of a projection.
        ProjectionFailed: A fold raised.
    """
    projections = named(names)
    install_all(store)
    if not store.read_only:
        catch_up_behind(store, projections)
    with store.reading() as connection:
        found = [find_live(connection, projection) for projection in projections]
        live = [generation for generation in found if generation is not None]
        total = _events(connection)
        strays = [stray for generation in live for stray in _strays(connection, generation)]
    conversations = events = 0
    rows, differences = len(strays), strays
    for conversation_id in _conversations(store):
        version = 0
        with store.reading(snapshot=True) as connection:
            for generation in live:
                version, seen, differing = _compare(connection, generation, conversation_id)
                rows += seen
                differences.extend(differing)
        conversations, events = conversations + 1, events + version
        if on_progress is not None:
            on_progress(events, max(total, events))
    return DiffReport(conversations, rows, tuple(differences))


def _events(connection: Connection) -> int:
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    return int(
        connection.execute(select(func.coalesce(func.sum(streams.c.version), 0))).scalar_one()
    )


def _conversations(store: EventStore) -> Iterator[UUID]:
    after: UUID | None = None
    while page := store.list(after=after, limit=_PAGE):
        yield from (info.conversation_id for info in page)
        after = page[-1].conversation_id


def _strays(connection: Connection, generation: Generation) -> list[Difference]:
    """Return the rows of conversations that the store does not know."""
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    differences: list[Difference] = []
    for declared in generation.projection.tables:
        table = generation.tables[declared.name]
        known = exists().where(streams.c.conversation_id == table.c.conversation_id)
        for row in connection.execute(select(table).where(not_(known))):
            live = dict(row._mapping)
            key = {name: live[name] for name in declared.key}
            place = (generation.projection.name, declared.name, row.conversation_id, key)
            differences.append(Difference(*place, "extra", None, live, None))
    return differences


def _compare(
    connection: Connection, generation: Generation, conversation_id: UUID
) -> tuple[int, int, list[Difference]]:
    heads = metadata_for(connection.dialect.name).tables["projection_heads"]
    head = connection.execute(
        select(heads.c.version).where(
            heads.c.conversation_id == conversation_id,
            heads.c.projection == generation.projection.name,
            heads.c.generation == generation.number,
        )
    ).scalar()
    version = int(head or 0)
    [fold] = fold_anew(connection, [generation], conversation_id, before=version + 1)
    seen = 0
    differences: list[Difference] = []
    for declared in generation.projection.tables:
        live = _live_rows(connection, generation.tables[declared.name], declared, conversation_id)
        fresh = {
            tuple(row[name] for name in declared.key): row
            for row in fold.buffer.complete_rows(declared.name)
        }
        seen += len(live)
        differences += [
            Difference(generation.projection.name, declared.name, conversation_id, *found)
            for found in _differences(declared, live, fresh)
        ]
    return version, seen, differences


def _live_rows(
    connection: Connection, table: Table, declared: ReadTable, conversation_id: UUID
) -> dict[tuple[Any, ...], dict[str, Any]]:
    query = tables.shown(table, connection.dialect.name)
    rows = connection.execute(query.where(table.c.conversation_id == conversation_id))
    found = (dict(row._mapping) for row in rows)
    return {tuple(row[name] for name in declared.key): row for row in found}


def _differences(
    declared: ReadTable,
    live: dict[tuple[Any, ...], dict[str, Any]],
    fresh: dict[tuple[Any, ...], dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], Any, str | None, Any, Any]]:
    for key, row in live.items():
        name = dict(zip(declared.key, key, strict=True))
        if key not in fresh:
            yield name, "extra", None, row, None
            continue
        for column in declared.columns:
            was, would_be = _plain(row[column.name]), _plain(fresh[key][column.name])
            if was != would_be:
                yield name, "changed", column.name, was, would_be
    for key, row in fresh.items():
        if key not in live:
            yield dict(zip(declared.key, key, strict=True)), "missing", None, None, row


def _plain(value: Any) -> Any:
    """Return a value as the database gives it back, whatever the fold wrote."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, (dict, list, tuple)):
        return loads(dumps(value))
    return value
