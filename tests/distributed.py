"""Databases of tests on a distributed PostgreSQL: a coordinator with Citus, named by a variable.

Each process that runs tests has databases of its own there, with the same name on every node, and
empties them after each test: making one takes five seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from eventstore import EventStore
from eventstore.database import distribute
from projections import Views

__all__ = ["CITUS", "REFUSED", "CitusDatabase", "citus_databases"]

VARIABLE = "EVENTSTORE_TEST_CITUS_URL"
CITUS = os.environ.get(VARIABLE)
"""Any database of a coordinator with Citus, whose nodes are all reached by the same login."""

REFUSED = (
    "test_change_is_refused_by_postgresql[merge]",
    "test_ciphertexts_cannot_be_exchanged[postgresql]",
    "test_any_other_column[postgresql-async-chain",
    "test_a_row_of_another_conversation[postgresql",
    "test_an_order_of_the_feed_that_no_append_gave[postgresql",
)
"""Beginnings of the names of tests that alter rows by a statement that Citus does not have."""

_SHARDS = 4
_NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE noderole = 'primary'"
_EMPTY = """
DO $$ DECLARE each text; BEGIN
    SET LOCAL citus.enable_manual_changes_to_shards = on;
    SET LOCAL citus.show_shards_for_app_name_prefixes = '*';
    FOR each IN SELECT oid::regclass FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        AND (relname ~ '_[0-9]{6}$' OR relname = 'projection_workers')
        AND NOT relname ~ '^(eventstore_version|store_|projections_|shared_tables)'
        AND pg_relation_size(oid) > 0
    LOOP EXECUTE 'TRUNCATE ' || each; END LOOP;
END $$
"""
_SCHEMA = """
    SELECT (SELECT array_agg(relname::text ORDER BY relname) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')),
    (SELECT array_agg(tgname || tgenabled::text ORDER BY tgname) FROM pg_trigger
        WHERE NOT tgisinternal),
    (SELECT array_agg(relname || relacl::text ORDER BY relname) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'),
    (SELECT array_agg(name || generation || status || version ORDER BY name, generation)
        FROM projections)
"""


class CitusDatabase:
    """A distributed database that each test finds empty.

    Args:
        url: Any database of the coordinator.
        installed: Whether it has the tables of all projections.
        is_distributed: Whether the store is distributed from the beginning.
    """

    def __init__(self, url: str, *, installed: bool, is_distributed: bool = True) -> None:
        self._server = make_url(url).set(drivername="postgresql")
        self._installed = installed
        self._is_distributed = is_distributed
        self._nodes: list[URL] = []
        self._name = ""

    def url(self) -> str:
        """Return the database's SQLAlchemy URL; nobody but this test uses it until `reset`."""
        if not self._name:
            self._make()
        coordinator = self._nodes[0].set(drivername="postgresql+psycopg")
        return coordinator.render_as_string(hide_password=False)

    def reset(self) -> None:
        """Empty it, or drop it if its tables are not what they were."""
        with _connected(self._nodes[0]) as run:
            found = run.execute(_SCHEMA).fetchone()
        if found != self._schema:
            self.close()
            return
        for node in self._nodes:
            with _connected(node) as run:
                run.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                    "AND state <> 'idle' AND backend_type = 'client backend'"
                )
                run.execute(_EMPTY)
        with _connected(self._nodes[0]) as run:
            run.execute("SELECT setval('events_position_seq', 1, false)")

    def close(self) -> None:
        """Drop the database on every node."""
        name, self._name = self._name, ""
        if name:
            for node in reversed(self._nodes):
                with _connected(node.set(database=self._server.database)) as run:
                    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
                    run.execute(drop.format(sql.Identifier(name)))

    def _make(self) -> None:
        self._name = f"test_{uuid4().hex}"
        with _connected(self._server) as run:
            places = run.execute(_NODES).fetchall()
        workers = [self._server.set(host=host, port=port) for host, port in places]
        first = self._server
        others = [each for each in workers if each.port != first.port or each.host != first.host]
        for node in (first, *others):
            with _connected(node) as run:
                create = sql.SQL(
                    "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' STRATEGY FILE_COPY"
                )
                run.execute(create.format(sql.Identifier(self._name)))
            with _connected(node.set(database=self._name)) as run:
                run.execute("CREATE EXTENSION citus")
                # Tests turn off what keeps rows from being changed.
                unsafe = sql.SQL("ALTER DATABASE {} SET citus.enable_unsafe_triggers = on")
                run.execute(unsafe.format(sql.Identifier(self._name)))
        self._nodes = [node.set(database=self._name) for node in (first, *others)]
        with _connected(self._nodes[0]) as run:
            run.execute("SELECT citus_set_coordinator_host(%s, %s)", [first.host, first.port])
            for node in others:
                run.execute("SELECT citus_add_node(%s, %s)", [node.host, node.port])
        url = self._nodes[0].set(drivername="postgresql+psycopg")
        with EventStore.open(url) as store:
            if self._is_distributed:
                distribute(store.engine, _SHARDS)
            if self._installed:
                Views(store)
        with _connected(self._nodes[0]) as run:
            self._schema = run.execute(_SCHEMA).fetchone()


@contextmanager
def citus_databases(url: str) -> Iterator[Callable[[bool], CitusDatabase]]:
    """Give databases of this process, with the tables of projections or without."""
    with ExitStack() as stack:

        @cache
        def find(installed: bool) -> CitusDatabase:
            found = CitusDatabase(url, installed=installed)
            stack.callback(found.close)
            return found

        yield find


@contextmanager
def _connected(url: URL) -> Iterator[psycopg.Connection[Any]]:
    address = url.render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection
