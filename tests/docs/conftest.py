"""The store of ``docs/sql-audit.md`` on both databases, and plain clients to ask it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL, make_url

from eventstore import EventStore
from tests.cli.once import once
from tests.docs.audit_store import fill

Ask = Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]
"""Runs a query; gives the names of the columns, and the rows."""


@pytest.fixture(scope="session")
def sqlite_ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Ask the store on SQLite."""

    def make(directory: Path) -> str:
        path = directory / "agent.db"
        _fill(f"sqlite:///{path}")
        return str(path)

    with once(tmp_path_factory, "audit-sqlite", make) as path:
        connection = sqlite3.connect(path)
        yield _asking(connection)
        connection.close()


@pytest.fixture(scope="session")
def postgres_ask(
    tmp_path_factory: pytest.TempPathFactory, postgres_server_url: str
) -> Iterator[Ask]:
    """Ask the store on PostgreSQL, in UTC as the document says."""
    server = make_url(postgres_server_url).set(drivername="postgresql")

    def execute(statement: str, name: str) -> None:
        with psycopg.connect(_text(server), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def make(_: Path) -> str:
        name = f"test_{uuid4().hex}"
        execute("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'", name)
        _fill(_text(server.set(drivername="postgresql+psycopg", database=name)))
        return name

    def discard(name: str) -> None:
        execute("DROP DATABASE {} WITH (FORCE)", name)

    # Workers have servers of their own, unless they were given one for all.
    which = hashlib.sha256(postgres_server_url.encode()).hexdigest()[:8]
    with once(tmp_path_factory, f"audit-postgresql-{which}", make, discard) as name:
        plain = _text(server.set(database=name))
        with psycopg.connect(plain, autocommit=True, options="-c TimeZone=UTC") as connection:
            yield _asking(connection)


def _fill(url: str) -> None:
    with EventStore.open(url) as store:
        fill(store)


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def _asking(connection: Any) -> Ask:
    def ask(query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = connection.cursor()
        cursor.execute(query)
        rows = cursor.fetchall()
        return [column[0] for column in cursor.description], rows

    return ask
