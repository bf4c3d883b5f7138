"""A database that goes back to an older state under living processes: a backup, and its restore.

SQLite's file is written over by the backup API, so that open connections see the older state at
once. PostgreSQL's database is dropped and made again under the same name, which ends its sessions.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import LiteralString, Self
from uuid import uuid4

import psycopg
from psycopg import sql
from sqlalchemy import make_url

__all__ = ["Backup"]

_ATTEMPTS = 3


class Backup:
    """The state of a database at the moment of its making; deleted at the end of the block.

    Args:
        url: The database's SQLAlchemy URL.
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._name = str(self._url.database)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        if self._is_sqlite:
            self._copy = f"{self._name}.backup"
            _copy_file(self._name, self._copy)
        else:
            self._copy = f"backup_{uuid4().hex}"
            self._copy_database(self._name, self._copy)

    def restore(self) -> None:
        """Put the database back to that state."""
        if self._is_sqlite:
            _copy_file(self._copy, self._name)
        else:
            self._on_server("DROP DATABASE {} WITH (FORCE)", self._name)
            self._copy_database(self._copy, self._name)

    def _copy_database(self, source: str, target: str) -> None:
        """Copy a database that nobody can connect to meanwhile, an autovacuum worker apart."""
        self._on_server("ALTER DATABASE {} ALLOW_CONNECTIONS false", source)
        for left in reversed(range(_ATTEMPTS)):
            sessions = self._end_sessions(source)
            try:
                self._on_server("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", target, source)
                break
            except psycopg.errors.ObjectInUse as error:
                if not left:
                    error.add_note(f"ended before: {sessions}; since: {self._end_sessions(source)}")
                    raise
        self._on_server("ALTER DATABASE {} ALLOW_CONNECTIONS true", source)

    def _end_sessions(self, database: str) -> list[tuple[object, ...]]:
        """Wait until the sessions of a database have ended; return what each was."""
        with self._server() as connection:
            return connection.execute(
                "SELECT pg_terminate_backend(pid, 10000), backend_type, state, query"
                " FROM pg_stat_activity WHERE datname = %s",
                [database],
            ).fetchall()

    def _on_server(self, statement: LiteralString, *names: str) -> None:
        with self._server() as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _server(self) -> psycopg.Connection[tuple[object, ...]]:
        address = self._url.set(drivername="postgresql", database="postgres")
        return psycopg.connect(address.render_as_string(hide_password=False), autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_sqlite:
            Path(self._copy).unlink()
        else:
            self._on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)", self._copy)


def _copy_file(source: str, target: str) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
