"""Appends of a hundred events, as imports, recovery and other bulk writers make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from benchmarks import peers
from benchmarks.bench import POSTGRESQL, SQLITE, Bench
from benchmarks.floors import BarePostgres, bare, rows_of
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import conversation
from eventstore import EventStore, new_id

__all__ = ["batch_appends"]

_BATCH = 100
_RATES = {SQLITE: 60_000, POSTGRESQL: 40_000}
_OURS = "EventStore.append"


def batch_appends(bench: Bench) -> Iterator[Work]:
    """Measure one hundred events per transaction, on each database."""
    for database in bench.databases:
        yield _batches(bench, database)


def _batches(bench: Bench, database: str) -> Work:
    batch = list(conversation(_BATCH, Random(1)))
    with (
        bench.fresh(database) as url,
        EventStore.open(url) as store,
        peers.writers(url) as others,
    ):
        floor, conversation_id = bare(url), new_id()
        rows = rows_of(batch, database == POSTGRESQL)
        candidates: dict[str, Callable[[], object]] = {}
        if isinstance(floor, BarePostgres):
            candidates[f"{floor.name} COPY"] = lambda: floor.copy(rows)
        candidates[f"{floor.name} executemany"] = lambda: floor.insert(rows)
        candidates[_OURS] = lambda: store.append(conversation_id, batch)
        for peer in others:
            candidates[peer.name] = partial(peer.stream(), batch)
        figures = in_turns(candidates, max(bench.scale.rounds // 10, 1), events=_BATCH)
        floor.close()
    return work(
        f"Appends of {_BATCH} events, {database}",
        figures,
        {_OURS: Target(rate=_RATES[database])},
        note="Each append is one durable transaction (FULL). Peers encode their events within it, "
        "as the store does; the floor's rows are ready.",
    )
