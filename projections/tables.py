"""The tables of a generation: built from a projection's declaration, created and dropped by code.

A table is called ``<name>_g<generation>``; the stable SQL view ``<name>`` shows the generation
that is live. Both are disposable, and no migration knows of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
)
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.types import TypeEngine

from eventstore.sql.types import Id, SafeJson, SafeText, Timestamp
from projections.base import ColumnType, Projection, ReadTable

__all__ = ["analyse", "create", "drop", "point_views", "table_name", "tables_of"]

_TYPES: dict[ColumnType, type[TypeEngine[Any]]] = {
    "text": SafeText,
    "json": SafeJson,
    "integer": BigInteger,
    "float": Double,
    "boolean": Boolean,
    "timestamp": Timestamp,
    "uuid": Id,
}


def table_name(name: str, generation: int) -> str:
    """Return the name of a generation's table."""
    return f"{name}_g{generation}"


def tables_of(projection: Projection, generation: int) -> Mapping[str, Table]:
    """Return the generation's tables, by the stable name of each."""
    return _build(tuple(projection.tables), generation)


@cache
def _build(declared: tuple[ReadTable, ...], generation: int) -> Mapping[str, Table]:
    metadata = MetaData()
    return {table.name: _table(metadata, table, generation) for table in declared}


def _table(metadata: MetaData, declared: ReadTable, generation: int) -> Table:
    name = table_name(declared.name, generation)
    indexes = [("conversation_id", *columns) for columns in declared.indexes]
    return Table(
        name,
        metadata,
        Column("conversation_id", Id, nullable=False),
        *(
            Column(
                column.name,
                _TYPES[column.type],
                nullable=column.name not in declared.key,
                autoincrement=False,
            )
            for column in declared.columns
        ),
        PrimaryKeyConstraint("conversation_id", *declared.key, name=f"pk_{name}"),
        *(
            Index(f"ix_{name}_{number}", *columns)
            for number, columns in enumerate((*indexes, *declared.lookups))
        ),
    )


def create(connection: Connection, projection: Projection, generation: int) -> None:
    """Create a generation's tables, in the caller's transaction."""
    for table in tables_of(projection, generation).values():
        table.create(connection, checkfirst=True)


def analyse(connection: Connection, projection: Projection, generation: int) -> None:
    """Tell PostgreSQL's planner of tables that were filled at once, in the caller's transaction.

    Until its own daemon comes by, it would plan for tables that are nearly empty.
    """
    if connection.dialect.name == "postgresql":
        for table in tables_of(projection, generation).values():
            name = connection.dialect.identifier_preparer.quote_identifier(table.name)
            connection.exec_driver_sql(f"ANALYZE {name}")


def drop(connection: Connection, names: list[str]) -> None:
    """Drop tables of a generation that is no longer live, in the caller's transaction."""
    for name in names:
        quoted = connection.dialect.identifier_preparer.quote_identifier(name)
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quoted}")


def point_views(connection: Connection, projection: Projection, generation: int) -> None:
    """Make the stable views show a generation, in the caller's transaction.

    On PostgreSQL a view keeps its grants, and what others have built on it, unless its columns
    have changed; then it is dropped and made anew, which fails while others build on it.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    for name, table in tables_of(projection, generation).items():
        columns = ", ".join(quote(column.name) for column in table.columns)
        view = f"VIEW {quote(name)} AS SELECT {columns} FROM {quote(table.name)}"  # noqa: S608 - quoted
        if connection.dialect.name == "postgresql":
            with suppress(ProgrammingError), connection.begin_nested():
                connection.exec_driver_sql(f"CREATE OR REPLACE {view}")
                continue
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quote(name)}")
        connection.exec_driver_sql(f"CREATE {view}")
