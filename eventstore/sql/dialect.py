"""The small differences between the two databases, for the statements that bypass SQLAlchemy.

Appending and reading events talk to the driver's own cursor, because a SQLAlchemy connection and
its results cost more than the database does. Their SQL is written once, with ``:name`` parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from eventstore.sealing import OPTION, Keyring
from eventstore.sql.types import escape, text_to_id, text_to_time, time_to_text, unescape

__all__ = [
    "AnyConnection",
    "Dialect",
    "DriverConnection",
    "Statement",
    "cursor",
    "dialect_of",
    "for_psycopg",
    "keys_of",
    "run_each",
]


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """How a database's driver takes and gives ids and times."""

    name: str
    from_id: Callable[[UUID], Any]
    to_id: Callable[[Any], UUID]
    from_time: Callable[[datetime], Any]
    to_time: Callable[[Any], datetime]
    array: Callable[[Sequence[Any]], Any]
    """How a statement gets many values as one parameter."""
    mark: str
    """What stands for a parameter without a name."""
    is_sqlite: bool


def _same(value: Any) -> Any:
    return value


_SQLITE = Dialect(
    "sqlite", str, text_to_id, time_to_text, text_to_time, json.dumps, "?", is_sqlite=True
)
_POSTGRESQL = Dialect(
    "postgresql",
    _same,
    _same,
    _same,
    lambda moment: moment.astimezone(UTC),
    list,
    "%s",
    is_sqlite=False,
)


class Statement:
    """A SQL statement with ``:name`` parameters, in each driver's own style."""

    __slots__ = ("_by_dialect",)

    def __init__(self, sqlite: str, postgresql: str | None = None) -> None:
        self._by_dialect = {
            "sqlite": sqlite,
            "postgresql": for_psycopg(sqlite if postgresql is None else postgresql),
        }

    def on(self, dialect: Dialect) -> str:
        """Return the text for a database."""
        return self._by_dialect[dialect.name]


def for_psycopg(sql: str) -> str:
    """Return a statement with ``:name`` parameters as psycopg takes it."""
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", sql.replace("%", "%%"))


@dataclass(frozen=True, slots=True)
class DriverConnection:
    """A driver's connection in a transaction, without SQLAlchemy's own around it."""

    raw: Any
    dialect: Dialect
    keys: Keyring | None = None


AnyConnection = Connection | DriverConnection
"""What the functions of appending and reading take: a caller's connection, or the fast one."""


def dialect_named(name: str) -> Dialect:
    """Return the dialect of SQLAlchemy's name for it."""
    return _SQLITE if name == "sqlite" else _POSTGRESQL


def dialect_of(connection: AnyConnection) -> Dialect:
    """Return the dialect of a connection."""
    if isinstance(connection, DriverConnection):
        return connection.dialect
    return dialect_named(connection.dialect.name)


def keys_of(connection: AnyConnection) -> Keyring | None:
    """Return the keyring of the store that a connection belongs to, if it has one."""
    if isinstance(connection, DriverConnection):
        return connection.keys
    found: Keyring | None = connection.get_execution_options().get(OPTION)
    return found


def cursor(connection: AnyConnection, *, binary: bool = False) -> Any:
    """Return a cursor of the driver itself, within the connection's transaction.

    With ``binary`` PostgreSQL sends values as bytes: cheaper to make and to read, for many rows.
    """
    raw = connection.raw if isinstance(connection, DriverConnection) else connection.connection
    if binary and not dialect_of(connection).is_sqlite:
        return raw.cursor(binary=True)
    return raw.cursor()


def run_each(connection: AnyConnection, sql: str, rows: Sequence[Any]) -> None:
    """Run a statement with each of these rows' parameters, in the caller's transaction."""
    run = cursor(connection)
    if len(rows) == 1:  # Many cost PostgreSQL's driver a round trip more.
        run.execute(sql, rows[0])
    else:
        run.executemany(sql, rows)
    run.close()


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement, and its parameters for each time that it is to run, as the driver takes them."""

    sql: str
    rows: Sequence[Any]

    def run(self, connection: AnyConnection) -> None:
        """Run it, in the caller's transaction."""
        run_each(connection, self.sql, self.rows)


def text_in(value: str | None) -> str | None:
    """Return an optional text as it is stored."""
    return None if value is None else escape(value)


def text_out(value: str | None) -> str | None:
    """Return an optional text as it was given."""
    return None if value is None else unescape(value)
