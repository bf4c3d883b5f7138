"""What a conversation costs in a store of a hundred thousand, a million, ten million events.

A large store is made of real transcripts that were appended and folded; then the server copies the
rows of all tables, under new ids of conversations. A copied conversation has everything but a chain
that starts with its own id, which nothing that is measured here reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from random import Random
from uuid import UUID

import psycopg
from psycopg import sql

from benchmarks.bench import POSTGRESQL, Bench
from benchmarks.floors import conninfo
from benchmarks.measure import Amount, in_turns
from benchmarks.results import Target, Work, work
from benchmarks.scale import fill
from eventstore import EventStore, events
from eventstore.database import metadata_for, partition, schema_lock
from eventstore.erasure.erase import erase_projected
from projections import PROJECTIONS, Views
from projections.reading import save_current
from projections.worker import run
from tests.postgres import PostgresServer

__all__ = ["costs_by_size"]

SIZES = tuple(map(int, os.environ.get("BENCH_EVENTS", "100000,1000000").split(",")))
_BASE = 769  # conversations: 20,195 events
_RATIO = 1.3
_STREAMS = 2_000
_FEED_PAGE = 100
_TABLES = """
    SELECT c.relname, array_agg(a.attname::text) FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attidentity = ''
    GROUP BY c.relname HAVING bool_or(a.attname = 'conversation_id')
    """
_INDEXES = """
    SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
    WHERE indrelid::regclass::text = ANY(%s)
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
    """


def costs_by_size(bench: Bench) -> Iterator[Work]:
    """Measure stores of several sizes side by side, the largest with partitions too."""
    if POSTGRESQL not in bench.databases:
        return
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        base = server.url("postgres")
        with EventStore.open(base) as store:
            count = fill(store, _BASE)
            Views(store).conversations()
            run(store, once=True)
        urls: dict[str, str] = {}
        bytes_of: list[Amount] = []
        for size in SIZES:
            name = f"{size:,} events"
            urls[name] = _copied(server, f"size_{size}", max(size // count, 1))
            bytes_of.append(Amount(name, _size_of(urls[name]) / 2**20, "MB"))
        divided = f"{SIZES[-1]:,} events, 16 partitions"
        urls[divided] = _created(server, "divided", template=f"size_{SIZES[-1]}")
        stores = {
            name: stack.enter_context(EventStore.open(url, migrate=False))
            for name, url in urls.items()
        }
        with schema_lock(stores[divided].engine, patience_ms=0) as connection:
            partition(connection, 16)
        targets = {name: Target(ratio=_RATIO, against=next(iter(stores))) for name in stores}
        del targets[next(iter(stores))]
        yield work("The database, folded, by stored events", bytes_of, {})
        for what, calls in _works(stores).items():
            figures = in_turns(calls, rounds=bench.scale.rounds)
            yield work(f"{what}, by stored events, {POSTGRESQL}", figures, targets)


def _works(stores: dict[str, EventStore]) -> dict[str, dict[str, Callable[[], object]]]:
    works: dict[str, dict[str, Callable[[], object]]] = {}
    for name, store in stores.items():
        for what, call in _calls(store).items():
            works.setdefault(what, {})[name] = call
    return works


def _calls(store: EventStore) -> dict[str, Callable[[], object]]:
    views, ids, cursors = Views(store), cycle(_streams(store)), cycle(_cursors(store))
    return {
        "An append": lambda: store.append(next(ids), events.UserMessage.text("hello")),
        "A timeline": lambda: views.timeline(next(ids)),
        "A request of 4,000 tokens": lambda: views.context(next(ids), max_tokens=4_000),
        f"A page of {_FEED_PAGE} events of the feed": lambda: store.read_all(
            after=next(cursors), limit=_FEED_PAGE
        ),
        "The newest 20 conversations": lambda: views.conversations(limit=20),
        "A conversation folded anew, all views": lambda: _folded(store, next(ids)),
    }


def _folded(store: EventStore, conversation_id: UUID) -> None:
    """Do for one conversation what a rebuild does for each."""
    with store.writing(durable=False) as connection:
        erase_projected(connection, metadata_for("postgresql").tables, [conversation_id])
    save_current(store, tuple(PROJECTIONS), conversation_id)


def _streams(store: EventStore) -> list[UUID]:
    with store.reading() as connection:
        found = connection.exec_driver_sql(
            "SELECT conversation_id FROM conversations ORDER BY md5(conversation_id::text) "
            f"LIMIT {_STREAMS}"
        )
        every = [UUID(str(row[0])) for row in found]
    Random(1).shuffle(every)
    return every


def _cursors(store: EventStore) -> list[str | None]:
    """Return cursors in the first pages: the feed's cost must not depend on what follows."""
    found: list[str | None] = [None]
    for _ in range(20):
        found.append(store.read_all(after=found[-1], limit=_FEED_PAGE).cursor)
    return found


def _size_of(url: str) -> float:
    with psycopg.connect(conninfo(url)) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return float(row[0]) if row else 0.0


def _copied(server: PostgresServer, name: str, times: int) -> str:
    """Return the URL of a database with so many copies of the conversations in the first one."""
    url = _created(server, name, template="postgres")
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        tables = connection.execute(_TABLES).fetchall()
        # Keys are not looked up again, and what the triggers check was checked in the first place.
        connection.execute("SET session_replication_role = replica")
        for table, _ in tables:
            base = sql.SQL("CREATE TEMP TABLE {} AS SELECT * FROM {}")
            connection.execute(base.format(_base(table), sql.Identifier(table)))
        # An index of many rows is built in a fraction of the time that they take one by one.
        indexes = connection.execute(_INDEXES, [[table for table, _ in tables]]).fetchall()
        for index, _ in indexes:
            connection.execute(f"DROP INDEX {index}")
        for number in range(1, times):
            with connection.transaction():
                for table, columns in tables:
                    connection.execute(_copying(table, columns, number))
        connection.execute("SET maintenance_work_mem = '1GB'")
        for _, definition in indexes:
            connection.execute(definition)
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
    return url


def _created(server: PostgresServer, name: str, *, template: str) -> str:
    with psycopg.connect(conninfo(server.url("template1")), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    return server.url(name)


def _copying(table: str, columns: list[str], number: int) -> sql.Composed:
    mapped = sql.SQL("md5(conversation_id::text || {})::uuid").format(sql.Literal(f":{number}"))
    values = [mapped if each == "conversation_id" else sql.Identifier(each) for each in columns]
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(values),
        _base(table),
    )


def _base(table: str) -> sql.Identifier:
    return sql.Identifier(f"base_of_{table}")
