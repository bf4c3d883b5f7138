"""Comparing the live tables with a fresh fold, row by row.

Writes only what any read would: conversations that are behind are caught up first, if the store is
writable. Each conversation is compared at the version that the live generation has reached. Rows of
conversations that do not exist are found too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, Table, exists, not_, select

from eventstore import EventStore
from eventstore.arguments import require_several
from eventstore.database import count_events, metadata_for
from eventstore.events.codec import dumps, loads
from projections.engine import tables
from projections.engine.catch_up import fold_from_start
from projections.engine.folds import Fold
from projections.engine.follower import catch_up_behind
from projections.engine.generations import Generation, find_live, whole_number
from projections.engine.projection import Projection, ReadTable, named
from projections.engine.setup import install_all

__all__ = ["DiffReport", "Difference", "compare"]

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is missing from the live table, is extra there, or differs in one ``column``."""

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
    """The number of conversations and rows compared, and every difference."""

    conversations: int
    rows: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no differences."""
        return not self.differences


def compare(
    store: EventStore,
    names: Iterable[str] | None = None,
    *,
    projections: Sequence[Projection],
    conversations: Iterable[UUID] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> DiffReport:
    """Compare the live tables with a fresh fold of all events; see `projections.upkeep`."""
    chosen = named(projections, names)
    install_all(store, projections)
    if not store.read_only:
        catch_up_behind(store, chosen)
    with store.reading() as connection:
        found = [find_live(connection, projection) for projection in chosen]
        live = [generation for generation in found if generation is not None]
        require_several(conversations=conversations)
        everywhere = conversations is None
        total = count_events(connection) if everywhere else 0
        strays = [stray for each in live if everywhere for stray in _strays(connection, each)]
    compared = events = 0
    rows, differences = len(strays), strays
    for conversation_id in _all(store) if conversations is None else conversations:
        with store.reading(snapshot=True) as connection:
            version, seen, differing = _compare(connection, live, conversation_id)
        compared, events, rows = compared + 1, events + version, rows + seen
        differences += differing
        if on_progress is not None:
            on_progress(events, max(total, events))
    return DiffReport(compared, rows, tuple(differences))


def _all(store: EventStore) -> Iterator[UUID]:
    after: UUID | None = None
    while page := store.list(after=after, limit=_PAGE):
        yield from (info.conversation_id for info in page)
        after = page[-1].conversation_id


def _strays(connection: Connection, generation: Generation) -> list[Difference]:
    """Return the rows of conversations that do not exist in the store."""
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
    connection: Connection, live: Sequence[Generation], conversation_id: UUID
) -> tuple[int, int, list[Difference]]:
    """Return the highest version, the rows and the differences of a conversation."""
    heads = metadata_for(connection.dialect.name).tables["projection_heads"]
    reached: dict[tuple[str, int], int] = {
        (name, number): whole_number(version, f"an invalid head of {name} in {conversation_id}")
        for name, number, version in connection.execute(
            select(heads.c.projection, heads.c.generation, heads.c.version).where(
                heads.c.conversation_id == conversation_id
            )
        )
    }
    # Generations at the same version, usually all of them, share one pass over the events.
    alike: dict[int, list[Generation]] = defaultdict(list)
    for generation in live:
        alike[reached.get((generation.projection.name, generation.number), 0)].append(generation)
    rows = 0
    differences: list[Difference] = []
    for version, generations in alike.items():
        for fold in fold_from_start(connection, generations, conversation_id, before=version + 1):
            seen, differing = _compare_fold(connection, fold, conversation_id)
            rows += seen
            differences += differing
    return max(alike, default=0), rows, differences


def _compare_fold(
    connection: Connection, fold: Fold, conversation_id: UUID
) -> tuple[int, list[Difference]]:
    projection, seen = fold.generation.projection, 0
    differences: list[Difference] = []
    for declared in projection.tables:
        table = fold.generation.tables[declared.name]
        live = _live_rows(connection, table, declared, conversation_id)
        fresh = {
            tuple(row[name] for name in declared.key): row
            for row in fold.buffer.complete_rows(declared.name)
        }
        seen += len(live)
        differences += [
            Difference(projection.name, declared.name, conversation_id, *found)
            for found in _differences(declared, live, fresh)
        ]
    return seen, differences


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
            was, would_be = row[column.name], fresh[key][column.name]
            if was == would_be:
                continue
            was, would_be = _plain(was), _plain(would_be)
            if was != would_be:
                yield name, "changed", column.name, was, would_be
    for key, row in fresh.items():
        if key not in live:
            yield dict(zip(declared.key, key, strict=True)), "missing", None, None, row


def _plain(value: Any) -> Any:
    """Return a value in the form in which the database returns it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, (dict, list, tuple)):
        return loads(dumps(value))
    return value
