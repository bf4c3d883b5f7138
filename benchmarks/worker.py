"""The worker in its own process: how soon an event is visible, and the cost of an idle one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from uuid import UUID

import psutil
import psycopg

from benchmarks.bench import POSTGRESQL, Bench
from benchmarks.floors import conninfo
from benchmarks.measure import Amount, Figure
from benchmarks.processes import background
from benchmarks.results import Target, Work, work
from benchmarks.workload import text
from eventstore import EventStore, events, new_id
from projections import worker

__all__ = ["worker_latency_and_load"]

_P99_MS = 50.0
_CONSTANT = 1.25
_STREAMS = 20
_PAUSE_S = (0.005, 0.05)
_POLL_S = 0.0005
_START_S = 60.0
_SETTLE_S = 2.0
_TABLE = "timeline_items"


def worker_latency_and_load(bench: Bench) -> Iterator[Work]:
    """Measure the PostgreSQL worker with its default settings; nothing without a server."""
    if POSTGRESQL not in bench.databases:
        return
    yield _latency(bench)
    loads = [_idle(bench, count) for count in bench.scale.idle]
    few, many = (f"{count:,} conversations" for count in bench.scale.idle)
    target = {many: Target(ratio=_CONSTANT, against=few)}
    for place, (what, unit) in enumerate(
        (("transactions", "a second"), ("CPU, worker and server", "ms a second"))
    ):
        amounts = [
            Amount(name, load[place], unit) for name, load in zip((few, many), loads, strict=True)
        ]
        yield work(
            f"Idle worker: {what}, {POSTGRESQL}",
            amounts,
            target,
            note=f"Observed for {bench.scale.idle_s:g} s after everything is caught up. Constant "
            f"means at most {_CONSTANT:g} x. CPU is counted in ticks of 10 ms, and a few of them "
            "differ by chance.",
        )


def _latency(bench: Bench) -> Work:
    rng, streams = Random(1), [new_id() for _ in range(_STREAMS)]
    written: list[float] = []
    visible: list[float] = []
    with (
        bench.fresh(POSTGRESQL) as url,
        EventStore.open(url) as store,
        psycopg.connect(conninfo(url), autocommit=True) as third,
    ):
        for stream in streams:
            store.append(stream, [events.UserMessage.text(text(rng))])
        worker.run(store, once=True)
        with background(url, "projections", "run"):
            _append_and_wait(store, third, _TABLE, streams[0], rng)
            for _ in range(max(bench.scale.rounds // 6, 1)):
                time.sleep(rng.uniform(*_PAUSE_S))
                stream = rng.choice(streams)
                written.append(_append_and_wait(store, third, "events", stream, rng))
                time.sleep(rng.uniform(*_PAUSE_S))
                visible.append(_append_and_wait(store, third, _TABLE, stream, rng))
    ours = f"in {_TABLE}"
    return work(
        f"Commit to visible in a warm projection, {POSTGRESQL}",
        [Figure("in events: the look itself", tuple(written)), Figure(ours, tuple(visible))],
        {ours: Target(p99_ms=_P99_MS)},
        note="From the return of `append` until a third connection, which polls in a loop, sees "
        "the row by SQL. `eventstore projections run` with its defaults; one event at a time, "
        "after pauses of 5 to 50 ms.",
    )


def _append_and_wait(
    store: EventStore, third: psycopg.Connection, table: str, stream: UUID, rng: Random
) -> float:
    """Append an event; return the seconds until its row is visible."""
    version = store.append(stream, [events.UserMessage.text(text(rng))]).version
    committed = time.perf_counter()
    query = f"SELECT 1 FROM {table} WHERE conversation_id = %s AND version = %s"
    while not third.execute(query, (stream, version), prepare=True).fetchone():
        if time.perf_counter() - committed > _START_S:
            raise TimeoutError(f"the worker has not written to {table} within {_START_S:g} s")
        time.sleep(_POLL_S)
    return time.perf_counter() - committed


def _idle(bench: Bench, conversations: int) -> tuple[float, float]:
    """Return what an idle worker uses per second: transactions, and milliseconds of CPU."""
    rng = Random(1)
    with bench.fresh(POSTGRESQL) as url, ExitStack() as stack:
        store = stack.enter_context(EventStore.open(url))
        for _ in range(conversations):
            store.append(new_id(), [events.UserMessage.text(text(rng, 40))])
        worker.run(store, once=True)
        third = stack.enter_context(psycopg.connect(conninfo(url), autocommit=True))
        process = stack.enter_context(background(url, "projections", "run"))
        stream = new_id()
        _append_and_wait(store, third, _TABLE, stream, rng)
        store.close()
        time.sleep(_SETTLE_S)
        before, started = _spent(third, process), time.perf_counter()
        time.sleep(bench.scale.idle_s)
        after, seconds = _spent(third, process), time.perf_counter() - started
    return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds * 1e3


def _spent(third: psycopg.Connection, process: psutil.Process) -> tuple[float, float]:
    """Return the database's transactions so far, and the CPU seconds of worker and backends."""
    third.execute("SELECT pg_stat_clear_snapshot()")
    [count] = third.execute(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database "
        "WHERE datname = current_database()"
    ).fetchone() or [0]
    backends = third.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND "
        "backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ).fetchall()
    every = [process, *(psutil.Process(pid) for (pid,) in backends)]
    times = [each.cpu_times() for each in every]
    return float(count), sum(each.user + each.system for each in times)
