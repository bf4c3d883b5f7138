"""Many writers at once: tasks of one process with group commit, and connections without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random

from benchmarks import peers
from benchmarks.bench import POSTGRESQL, SQLITE, Bench
from benchmarks.floors import bare, rows_of
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import turn
from eventstore import AsyncEventStore, EventStore, NewEvent, new_id

__all__ = ["concurrent_appends"]

_TASKS = 64
_CONNECTIONS = 16
_EACH = 20
_GROUPED = {SQLITE: 20_000, POSTGRESQL: 15_000}
_UNGROUPED = 3_000


def concurrent_appends(bench: Bench) -> Iterator[Work]:
    """Measure 64 tasks on each database, and 16 connections to PostgreSQL."""
    for database in bench.databases:
        yield _tasks(bench, database)
    if POSTGRESQL in bench.databases:
        yield _connections(bench)


def _tasks(bench: Bench, database: str) -> Work:
    [message], ours = _messages(), "AsyncEventStore.append"
    rows = rows_of([message] * _TASKS, database != SQLITE)
    with bench.fresh(database) as url, _tasks_of(url, message) as append_all, ExitStack() as stack:
        floor = bare(url)
        stack.callback(floor.close)

        def insert_all() -> None:
            for _ in range(_EACH):
                floor.insert(rows)

        figures = in_turns(
            {f"{floor.name}, {_TASKS} rows a commit": insert_all, ours: append_all},
            _rounds(bench),
            events=_TASKS * _EACH,
        )
    return work(
        f"{_TASKS} tasks of one process, one event each, {database}",
        figures,
        {ours: Target(rate=_GROUPED[database])},
        note=f"Each task appends {_EACH} events one after the other to its own conversation; "
        "a time covers all of them. The floor is one connection that receives the rows.",
    )


@contextmanager
def _tasks_of(url: str, message: NewEvent) -> Iterator[Callable[[], None]]:
    streams = [new_id() for _ in range(_TASKS)]
    with asyncio.Runner() as runner:
        store = runner.run(AsyncEventStore.open(url))

        async def task(stream: int) -> None:
            for _ in range(_EACH):
                await store.append(streams[stream], [message])

        async def all_tasks() -> None:
            await asyncio.gather(*map(task, range(_TASKS)))

        try:
            yield lambda: runner.run(all_tasks())
        finally:
            runner.run(store.close())


def _connections(bench: Bench) -> Work:
    messages, ours = _messages(), "EventStore.append"
    row = rows_of(messages, postgresql=True)
    with (
        bench.fresh(POSTGRESQL) as url,
        ThreadPoolExecutor(_CONNECTIONS) as threads,
        # A pool keeps half of its connections open.
        EventStore.open(url, pool_size=2 * _CONNECTIONS) as store,
        peers.writers(url, connections=_CONNECTIONS) as others,
        ExitStack() as stack,
    ):
        floors = [bare(url) for _ in range(_CONNECTIONS)]
        for floor in floors:
            stack.callback(floor.close)
        streams = [new_id() for _ in range(_CONNECTIONS)]

        def at_once(append: Callable[[int], object]) -> Callable[[], None]:
            def repeated(place: int) -> None:
                for _ in range(_EACH):
                    append(place)

            return lambda: list(threads.map(repeated, range(_CONNECTIONS))).clear()

        candidates = {
            f"{floors[0].name} insert": at_once(lambda place: floors[place].insert(row)),
            ours: at_once(lambda place: store.append(streams[place], messages)),
        }
        for peer in others:
            theirs = [peer.stream() for _ in range(_CONNECTIONS)]
            candidates[peer.name] = at_once(partial(_appended, theirs, messages))
        figures = in_turns(candidates, _rounds(bench), events=_CONNECTIONS * _EACH)
    return work(
        f"{_CONNECTIONS} connections, one event each, no grouping, {POSTGRESQL}",
        figures,
        {ours: Target(rate=_UNGROUPED)},
        note=f"{_CONNECTIONS} threads of one process, each with its own connection and "
        f"conversation; a time covers {_EACH} events of each.",
    )


def _appended(
    streams: Sequence[Callable[[Sequence[NewEvent]], object]],
    messages: Sequence[NewEvent],
    place: int,
) -> None:
    streams[place](messages)


def _messages() -> list[NewEvent]:
    return [turn(1, 1, Random(1))[1]]


def _rounds(bench: Bench) -> int:
    return max(bench.scale.rounds // 50, 1)
