"""The cost of one durable append, compared with the bare driver at the same sync level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from benchmarks import peers
from benchmarks.bench import SQLITE, Bench
from benchmarks.floors import bare, rows_of
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import turn
from eventstore import EventStore, new_id
from eventstore.sql.engines import Synchronous

__all__ = ["single_appends"]

_OURS = "EventStore.append"
_LEVELS: tuple[tuple[Synchronous, float], ...] = (("FULL", 1.5), ("NORMAL", 4.0))


def single_appends(bench: Bench) -> Iterator[Work]:
    """Measure one event per transaction: SQLite at both sync levels, and PostgreSQL."""
    for level, ratio in _LEVELS:
        yield _appends(bench, SQLITE, level, Target(ratio=ratio))
    for database in bench.databases:
        if database != SQLITE:
            yield _appends(bench, database, "FULL", None)


def _appends(bench: Bench, database: str, level: Synchronous, target: Target | None) -> Work:
    message = turn(1, 1, Random(1))[1]
    with (
        bench.fresh(database) as url,
        EventStore.open(url, synchronous=level) as store,
        peers.writers(url, level) as others,
    ):
        floor, conversation_id = bare(url, level), new_id()
        row = rows_of([message], database != SQLITE)
        candidates: dict[str, Callable[[], object]] = {
            f"{floor.name} insert": lambda: floor.insert(row),
            _OURS: lambda: store.append(conversation_id, [message]),
        }
        for peer in others:
            candidates[peer.name] = partial(peer.stream(), [message])
        figures = in_turns(candidates, bench.scale.rounds, events=1)
        floor.close()
    title = f"One durable event, {database}"
    return work(
        f"{title} {level}" if database == SQLITE else title,
        figures,
        {_OURS: target} if target else None,
        note="Median of single transactions, one after the other. Peers encode their event within "
        "it, as the store does; the floor's row is ready. Peers run at SQLite's default, FULL.",
    )
