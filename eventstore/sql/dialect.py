"""The small differences between the two databases, for the statements that bypass SQLAlchemy.

Appending and reading events talk to the driver's own cursor, because building a SQLAlchemy result
costs more than the database does. Their SQL is written once, with ``:name`` parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from eventstore.sql.types import escape, text_to_time, time_to_text, unescape

__all__ = ["Dialect", "Statement", "cursor", "dialect_of"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database's driver takes and gives ids and times."""

    name: str
    from_id: Callable[[UUID], Any]
    to_id: Callable[[Any], UUID]
    from_time: Callable[[datetime], Any]
    to_time: Callable[[Any], datetime]

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite."""
        return self.name == "sqlite"


def _same(value: Any) -> Any:
    return value


_SQLITE = Dialect("sqlite", str, UUID, time_to_text, text_to_time)
_POSTGRESQL = Dialect("postgresql", _same, _same, _same, lambda moment: moment.astimezone(UTC))


class Statement:
    """A SQL statement with ``:name`` parameters, in each driver's own style."""

    __slots__ = ("_by_dialect",)

    def __init__(self, sqlite: str, postgresql: str | None = None) -> None:
        self._by_dialect = {
            "sqlite": sqlite,
            "postgresql": re.sub(
                r"(?<!:):([a-z_]+)",
                r"%(\1)s",
                (sqlite if postgresql is None else postgresql).replace("%", "%%"),
            ),
        }

    def on(self, dialect: Dialect) -> str:
        """Return the text for a database."""
        return self._by_dialect[dialect.name]


def dialect_of(connection: Connection) -> Dialect:
    """Return the dialect of a connection."""
    return _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL


def cursor(connection: Connection) -> Any:
    """Return a cursor of the driver itself, within the connection's transaction."""
    return connection.connection.cursor()


def text_in(value: str | None) -> str | None:
    """Return an optional text as it is stored."""
    return None if value is None else escape(value)


def text_out(value: str | None) -> str | None:
    """Return an optional text as it was given."""
    return None if value is None else unescape(value)
