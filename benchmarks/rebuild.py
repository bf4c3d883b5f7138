"""Rebuilding every projection with two processes: speed and memory."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg

from agent_eventstore.transcripts import Transcript, load, read_transcripts
from benchmarks import peers
from benchmarks.bench import POSTGRESQL, SQLITE, Bench
from benchmarks.context.transcripts import TAU_BENCH
from benchmarks.floors import BareSqlite, bare, conninfo
from benchmarks.measure import Amount, Figure
from benchmarks.processes import run_watched
from benchmarks.results import Target, Work, work
from eventstore import EventStore, new_id
from projections.catalogue import PROJECTIONS

__all__ = ["fill_with_transcripts", "rebuilds"]

_WORKERS = 2
_RATES = {SQLITE: 40_000, POSTGRESQL: 20_000}
_RATE_OF_TRANSCRIPTS = {SQLITE: 20_000, POSTGRESQL: 10_000}
_FLAT = 1.2
_FIRST, _AGAIN = "first, tokens to be counted", "again, tokens known"
_PAGE = 5_000
_TABLES = tuple(table.name for projection in PROJECTIONS for table in projection.tables)


def rebuilds(bench: Bench) -> Iterator[Work]:
    """Measure the rebuild of a large database, its memory, and the rebuild of real transcripts."""
    for database in bench.databases:
        yield from _rebuilds(bench, database)
        if TAU_BENCH.exists():
            yield _transcripts(bench, database)


def _rebuilds(bench: Bench, database: str) -> Iterator[Work]:
    scale = bench.scale
    small = bench.filled(database, "small", scale.small)
    _, memory_small = _rebuild(small)
    large = bench.filled(database, "large", scale.large)
    first, memory_large = _rebuild(large)
    again: list[float] = []
    floor: list[float] = []
    while not again or (len(again) < scale.repeats and sum(again) + sum(floor) < scale.patience_s):
        floor.append(_floor(large))
        seconds, peak = _rebuild(large)
        again.append(seconds)
        memory_large = max(memory_large, peak)
    reach = Target(rate=_RATES[database])
    figures = [
        Figure("bare driver, one process", tuple(floor), scale.large),
        Figure(_FIRST, (first,), scale.large),
        Figure(_AGAIN, tuple(again), scale.large),
        *peers.projected(bench, database),
    ]
    yield work(
        f"Rebuild of all projections, {scale.large:,} events, {database}",
        figures,
        {_FIRST: reach, _AGAIN: reach},
        note=f"{len(PROJECTIONS)} projections, {_WORKERS} processes; the rebuild's own time, "
        "including the start of its workers. The first rebuild of a database also counts the "
        "tokens of every message, once, and is measured once; later ones find the counts. The "
        "floor reads and parses the same events and inserts as many rows as the fold produced, "
        "ready-made, into tables without an index. PostgreSQL has run VACUUM ANALYZE since the "
        "events were written. eventsourcing's projection runner handles one event per transaction "
        "and writes one row for each; it is measured once, with fewer events, and cannot rebuild "
        "on SQLite.",
    )
    amounts = [
        Amount(f"{scale.small:,} events", memory_small, "MB"),
        Amount(f"{scale.large:,} events", memory_large, "MB"),
    ]
    yield work(
        f"Memory of the largest process of a rebuild, {database}",
        amounts,
        {amounts[1].name: Target(ratio=_FLAT, against=amounts[0].name)},
        note=f"Flat means at most {_FLAT:g} x for {scale.large // scale.small} times the "
        "events. `--million` compares 1,000,000 with 100,000.",
    )


def _transcripts(bench: Bench, database: str) -> Work:
    with bench.fresh(database) as url:
        events = fill_with_transcripts(url, bench.scale.small)
        first, _ = _rebuild(url)
        again, floor = [], []
        for _ in range(bench.scale.repeats):
            floor.append(_floor(url))
            again.append(_rebuild(url)[0])
    figures = [
        Figure("bare driver, one process", tuple(floor), events),
        Figure(_FIRST, (first,), events),
        Figure(_AGAIN, tuple(again), events),
    ]
    reach = Target(rate=_RATE_OF_TRANSCRIPTS[database])
    return work(
        f"Rebuild of all projections, {events:,} events of real transcripts, {database}",
        figures,
        {_AGAIN: reach},
        note=f"tau-bench's airline conversations, repeated; {_WORKERS} processes. No usage "
        "is reported, so every answer is counted; results are JSON of up to some thousand "
        "characters.",
    )


def fill_with_transcripts(url: str, least: int) -> int:
    """Import tau-bench's conversations until there are this many events; return how many."""
    imported = [each for each in read_transcripts(TAU_BENCH) if isinstance(each, Transcript)]
    if not imported:
        raise ValueError(f"no transcript of {TAU_BENCH} could be imported")
    events = 0
    with EventStore.open(url, synchronous="NORMAL") as store:
        while events < least:
            some = [replace(each, conversation_id=new_id()) for each in imported]
            load(store, some)
            events += sum(len(each.events) for each in some)
    return events


def _rebuild(url: str) -> tuple[float, float]:
    """Rebuild with the command; return its seconds, and the megabytes of its largest process."""
    report, peak = run_watched(url, "projections", "rebuild", "--workers", str(_WORKERS), "--json")
    return float(report["seconds"]), peak


def _floor(url: str) -> float:
    """Return how long a bare driver takes to read the events and write the rows, in seconds."""
    floor = bare(url)
    started = time.perf_counter()
    for page in floor.pages("events", _PAGE):
        for _, data, _ in page:
            json.loads(data)
    reading = time.perf_counter() - started
    if isinstance(floor, BareSqlite):
        writing = sum(_written_sqlite(floor, table) for table in _TABLES)
    else:
        writing = sum(_written_postgresql(url, table) for table in _TABLES)
    floor.close()
    return reading + writing


def _written_sqlite(floor: BareSqlite, table: str) -> float:
    connection = floor.connection
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"CREATE TABLE floor_{table} AS SELECT * FROM {table} LIMIT 0")
    rows = connection.execute(f"SELECT * FROM {table}")
    connection.execute("BEGIN IMMEDIATE")
    marks = ", ".join("?" * len(rows.description))

    def insert(page: Sequence[Any]) -> None:
        connection.executemany(f"INSERT INTO floor_{table} VALUES ({marks})", page)

    seconds = _inserting(iter(lambda: rows.fetchmany(_PAGE), []), insert)
    started = time.perf_counter()
    connection.execute("COMMIT")
    seconds += time.perf_counter() - started
    connection.execute(f"DROP TABLE floor_{table}")
    return seconds


def _written_postgresql(url: str, table: str) -> float:
    with psycopg.connect(conninfo(url)) as reader, psycopg.connect(conninfo(url)) as writer:
        writer.execute(f"CREATE TABLE floor_{table} AS SELECT * FROM {table} LIMIT 0")
        with reader.cursor("rows", binary=True) as rows:
            rows.execute(f"SELECT {_as_text(reader, table)} FROM {table}")

            def insert(page: Sequence[Any]) -> None:
                with writer.cursor().copy(f"COPY floor_{table} FROM STDIN") as stream:
                    for row in page:
                        stream.write_row(row)

            seconds = _inserting(iter(lambda: rows.fetchmany(_PAGE), []), insert)
        writer.rollback()
    return seconds


def _as_text(connection: psycopg.Connection, table: str) -> str:
    """Return the columns of a table, all as text, so that nothing is parsed."""
    found = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()
    return ", ".join(f"{column.name}::text" for column in found)


def _inserting(pages: Iterator[Sequence[Any]], insert: Callable[[Sequence[Any]], None]) -> float:
    """Insert pages of rows; return the time, excluding the time to fetch them."""
    seconds = 0.0
    for page in itertools.takewhile(bool, pages):
        started = time.perf_counter()
        insert(page)
        seconds += time.perf_counter() - started
    return seconds
