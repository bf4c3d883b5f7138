"""The store of ``docs/sql-audit.md`` on both databases, and plain clients to ask it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from eventstore import EventStore
from tests.docs.audit_store import fill
from tests.postgres import fresh_database

Ask = Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]
"""Runs a query; gives the names of the columns, and the rows."""


@pytest.fixture(scope="session")
def sqlite_ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Ask the store on SQLite."""
    path: Path = tmp_path_factory.mktemp("audit") / "agent.db"
    with EventStore.open(f"sqlite:///{path}") as store:
        fill(store)
    connection = sqlite3.connect(path)
    yield _asking(connection)
    connection.close()


@pytest.fixture(scope="session")
def postgres_ask(postgres_server_url: str) -> Iterator[Ask]:
    """Ask the store on PostgreSQL, in UTC as the document says."""
    with fresh_database(postgres_server_url) as url:
        with EventStore.open(url) as store:
            fill(store)
        plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True, options="-c TimeZone=UTC") as connection:
            yield _asking(connection)


def _asking(connection: Any) -> Ask:
    def ask(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = connection.cursor()
        cursor.execute(sql)
        rows = cursor.fetchall()
        return [column[0] for column in cursor.description], rows

    return ask
