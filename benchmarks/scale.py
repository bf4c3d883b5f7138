"""Beyond one process and one server: workers that share, a pooler, partitions, a standby."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial

import psycopg
from psycopg import sql

from agent_eventstore.transcripts import read_transcripts
from agent_eventstore.transcripts.transcript import Transcript
from benchmarks.bench import POSTGRESQL, Bench
from benchmarks.floors import conninfo
from benchmarks.measure import Amount, Figure, in_turns
from benchmarks.results import Work, work
from eventstore import EventStore, events, new_id
from eventstore.database import partition, schema_lock
from projections import Views
from tests.distributed import CITUS, CitusDatabase
from tests.docs.audit_store import TRANSCRIPTS
from tests.pgbouncer import HAS_PGBOUNCER, PgBouncer
from tests.postgres import PostgresServer, place_of_many_files
from tests.shim import distribute_on_shim

__all__ = ["beyond_one_process", "fill"]

_WORKERS = (1, 2, 4)
_EVENTS_OF_ONE = 26


def beyond_one_process(bench: Bench) -> Iterator[Work]:
    """Measure backlogs and reads on a PostgreSQL of its own; nothing without one."""
    if POSTGRESQL not in bench.databases:
        return
    yield from _backlogs(bench)
    yield from _ways(bench)


def _backlogs(bench: Bench) -> Iterator[Work]:
    count = max(bench.scale.small // _EVENTS_OF_ONE, 4)
    with bench.fresh(POSTGRESQL) as url:
        with EventStore.open(url) as store:
            Views(store)
            total = fill(store, count)
        times, folded = [], []
        for workers in _WORKERS:
            _forget(url)
            took_s, conversations = _caught_up(url, workers)
            times.append(Figure(f"{workers} workers", (took_s,), total))
            folded.append(Amount(f"{workers} workers", conversations, "conversations"))
    yield work(
        f"A backlog of {count:,} conversations, {POSTGRESQL}",
        times,
        {},
        note=f"{total:,} events of real transcripts, folded by processes of "
        "`eventstore projections run --once`, their start included, on the server's own cores.",
    )
    yield work(f"Conversations folded of that backlog, {POSTGRESQL}", folded, {})


def fill(store: EventStore, count: int) -> int:
    """Append real transcripts as so many conversations; return the number of events."""
    found = [each for each in read_transcripts(TRANSCRIPTS) if isinstance(each, Transcript)]
    total = 0
    for number in range(count):
        payloads = [event.data for event in found[number % len(found)].events]
        store.append(new_id(), payloads, allow_empty=True)
        total += len(payloads)
    return total


def _forget(url: str) -> None:
    """Empty all read models, as if no worker had run."""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        connection.execute("DELETE FROM projection_heads")
        connection.execute("UPDATE projections SET cursor = NULL")
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename ~ '_g\\d+$'"
        )
        for (name,) in tables.fetchall():
            connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(name)))


def _caught_up(url: str, workers: int) -> tuple[float, int]:
    command = [sys.executable, "-m", "agent_eventstore.cli", "--db", url, "projections", "run"]
    started = time.perf_counter()
    running = [
        subprocess.Popen([*command, "--once"], stdout=subprocess.PIPE, text=True)
        for _ in range(workers)
    ]
    # caught up 1,234 conversations
    said = [process.communicate()[0].split() for process in running]
    took_s = time.perf_counter() - started
    return took_s, sum(int(words[2].replace(",", "")) for words in said)


def _divided(store: EventStore) -> None:
    with schema_lock(store.engine) as connection:
        partition(connection, 16)


def _made(server: PostgresServer, name: str, divide: Callable[[EventStore], None]) -> EventStore:
    """Return a store of its own on the server, in parts."""
    server.execute(f"CREATE DATABASE {name}")
    with EventStore.open(server.url(name)) as store:
        Views(store).conversations()
        divide(store)
    return EventStore.open(server.url(name))


def _ways(bench: Bench) -> Iterator[Work]:
    """Compare the direct way with a pooler, with partitions, and with a standby for reads."""
    with ExitStack() as stack:
        primary = stack.enter_context(PostgresServer(directory=place_of_many_files()))
        with EventStore.open(primary.url()) as store:
            Views(store).conversations()
        standby = primary.standby(place_of_many_files())
        stack.callback(standby.close)
        standby.start()
        stores = {"direct": EventStore.open(primary.url())}
        if HAS_PGBOUNCER:
            pooler = stack.enter_context(PgBouncer(primary.url(), pool_size=5))
            stores["through PgBouncer"] = EventStore.open(pooler.url(primary.url()))
        stores["in 16 partitions"] = _made(primary, "divided", _divided)
        stores["as on Citus, one server"] = _made(
            primary, "shim", partial(distribute_on_shim, shards=16)
        )
        if CITUS is not None:
            spread = stack.enter_context(closing(CitusDatabase(CITUS, installed=True)))
            stores["on Citus"] = EventStore.open(spread.url())
        stores["with read_url"] = EventStore.open(primary.url(), read_url=standby.url())
        for store in stores.values():
            stack.enter_context(store)
        cid = new_id()
        said = [events.UserMessage.text("hello")] * 50
        views = {name: Views(store) for name, store in stores.items()}
        for name in stores.keys() - {"through PgBouncer", "with read_url"}:
            stores[name].append(cid, said)
            views[name].conversations()
        primary.wait_for_standby(60)
        own = {name: new_id() for name in stores}
        works: dict[str, dict[str, Callable[[], object]]] = {
            "An append": {
                name: partial(store.append, own[name], events.UserMessage.text("hello"))
                for name, store in stores.items()
            },
            "A timeline of 50 messages that another wrote": {
                name: partial(each.timeline, cid) for name, each in views.items()
            },
            "The list of conversations": {
                name: partial(each.conversations, limit=20) for name, each in views.items()
            },
        }
        for what, calls in works.items():
            figures = in_turns(calls, rounds=max(bench.scale.rounds // 10, 3))
            yield work(f"{what}, {POSTGRESQL}", figures, {})
