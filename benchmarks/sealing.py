"""The cost of encrypting an append, compared with the same append in the clear, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from benchmarks.bench import SQLITE, Bench
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import turn
from eventstore import DirectoryKeys, EventStore, Meta, new_id
from eventstore.sql.engines import Synchronous

__all__ = ["sealed_appends"]

_MOST = 1.2
_PLAIN, _SEALED, _READ, _OPENED = "append", "append, sealed", "read", "read, sealed"
_EVENTS = 1_000


def sealed_appends(bench: Bench) -> Iterator[Work]:
    """Measure one event per transaction: SQLite at both sync levels, PostgreSQL; then reading."""
    for level in ("FULL", "NORMAL"):
        yield _appends(bench, SQLITE, level)
    for database in bench.databases:
        if database != SQLITE:
            yield _appends(bench, database, "FULL")
        yield _reads(bench, database)


def _appends(bench: Bench, database: str, level: Synchronous) -> Work:
    message, meta = turn(1, 1, Random(1))[1], Meta(session_id=str(new_id()), turn=1, mode="agent")
    with (
        tempfile.TemporaryDirectory() as directory,
        bench.fresh(database) as url,
        EventStore.open(url, synchronous=level) as plain,
        EventStore.open(url, synchronous=level, keys=DirectoryKeys(Path(directory))) as sealed,
    ):

        def appending(store: EventStore) -> Callable[[], object]:
            conversation_id = new_id()
            return lambda: store.append(conversation_id, [message], meta=meta)

        candidates = {_PLAIN: appending(plain), _SEALED: appending(sealed)}
        figures = in_turns(candidates, bench.scale.rounds, events=1)
    title = f"One durable event, sealed, {database}"
    return work(
        f"{title} {level}" if database == SQLITE else title,
        figures,
        {_SEALED: Target(ratio=_MOST)},
        note="An event with metadata, in the clear and encrypted with its conversation's key.",
    )


def _reads(bench: Bench, database: str) -> Work:
    message = turn(1, 1, Random(1))[1]
    with (
        tempfile.TemporaryDirectory() as directory,
        bench.fresh(database) as url,
        EventStore.open(url) as plain,
        EventStore.open(url, keys=DirectoryKeys(Path(directory))) as sealed,
    ):

        def reading(store: EventStore) -> Callable[[], object]:
            conversation_id = new_id()
            store.append(conversation_id, [message.data] * _EVENTS, meta=Meta(turn=1))
            return lambda: sum(1 for _ in store.read(conversation_id))

        candidates = {_READ: reading(plain), _OPENED: reading(sealed)}
        figures = in_turns(candidates, max(5, bench.scale.rounds // 50), events=_EVENTS)
    return work(
        f"{_EVENTS:,} events read, sealed, {database}",
        figures,
        None,
        note="Each event's payload and metadata are decrypted separately.",
    )
