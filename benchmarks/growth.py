"""Whether stored events slow down an append: a large database, compared with a small one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from uuid import UUID

from benchmarks.bench import POSTGRESQL, Bench
from benchmarks.floors import bare, rows_of
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import turn
from eventstore import EventStore

__all__ = ["appends_by_size"]

_RATIO = 1.3
_STREAMS = 1_000


def appends_by_size(bench: Bench) -> Iterator[Work]:
    """Measure one durable event in databases of both sizes, in turns, on each database."""
    for database in bench.databases:
        yield _appends(bench, database)


def _appends(bench: Bench, database: str) -> Work:
    message = turn(1, 1, Random(1))[1]
    sizes = (bench.scale.few, bench.scale.stored)
    candidates: dict[str, Callable[[], object]] = {}
    with ExitStack() as stack:
        small = bench.filled(database, "few", sizes[0])
        large = bench.filled(database, "large", sizes[1])
        floor = bare(small)
        stack.callback(floor.close)
        row = rows_of([message], database == POSTGRESQL)
        candidates[f"{floor.name} insert, empty table"] = lambda: floor.insert(row)
        for size, url in zip(sizes, (small, large), strict=True):
            store = stack.enter_context(EventStore.open(url))
            candidates[f"at {size:,} events"] = _appending(store, _streams(store))
        figures = in_turns(candidates, bench.scale.rounds, events=1)
    before, after = (f"at {size:,} events" for size in sizes)
    return work(
        f"Append by stored events, {database}",
        figures,
        {after: Target(ratio=_RATIO, against=before)},
        note=f"One event, durable (FULL), to a conversation drawn from up to {_STREAMS:,} existing "
        "ones.",
    )


def _streams(store: EventStore) -> list[UUID]:
    with store.reading() as connection:
        found = connection.exec_driver_sql("SELECT conversation_id FROM conversations ORDER BY 1")
        every = [UUID(str(row[0])) for row in found]
    return Random(1).sample(every, min(len(every), _STREAMS))


def _appending(store: EventStore, streams: list[UUID]) -> Callable[[], object]:
    rng, message = Random(2), turn(1, 1, Random(1))[1]
    return lambda: store.append(rng.choice(streams), [message])
