"""The tables of a generation: built from a projection's declaration, created and dropped by code.

A table is named ``<name>_g<generation>``; the stable SQL view ``<name>`` shows the live generation.
Both are disposable, and migrations do not touch them. Generation 0 is in memory, in a database
without the store's own tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnClause,
    Connection,
    Double,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    Table,
    and_,
    column,
    literal_column,
    select,
    text,
)
from sqlalchemy.types import TypeEngine

from eventstore.sql.backend import backend_named, backend_of, has_table
from eventstore.sql.rights import share_rights
from eventstore.sql.schema import metadata_for
from eventstore.sql.traces import without_statistics
from eventstore.sql.types import Id, IndexedText, SafeJson, SafeText, Timestamp
from projections.engine.projection import (
    Attachments,
    ColumnType,
    Filling,
    Marked,
    Projection,
    ReadTable,
    Storage,
)
from projections.engine.projection import Column as ReadColumn

__all__ = [
    "TENANT",
    "USER",
    "OwnerColumns",
    "begin_filling",
    "create",
    "drop",
    "end_filling",
    "kinds_of",
    "marked",
    "point_views",
    "shown",
    "storage_of",
    "stored",
    "table_name",
    "tables_of",
]


_STORAGE = "storage"
_KINDS = "kinds"
_ATTACHED = "attached"

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
    """Return the generation's tables by their stable names."""
    return _build(tuple(projection.tables), generation)


@cache
def _build(declared: tuple[ReadTable, ...], generation: int) -> Mapping[str, Table]:
    metadata = MetaData()
    return {table.name: _table(metadata, table, generation) for table in declared}


def _table(metadata: MetaData, declared: ReadTable, generation: int) -> Table:
    name = table_name(declared.name, generation)
    indexes = [("conversation_id", *columns) for columns in declared.indexes]
    sparse = [
        *(("conversation_id", column) for column in declared.sparse),
        *((column,) for column in declared.sparse_lookups),
    ]
    indexed = {*declared.key, *declared.sparse_lookups}.union(*declared.indexes, *declared.lookups)
    made = Table(
        name,
        metadata,
        Column("conversation_id", Id, nullable=False),
        *(
            Column(
                column.name,
                _type(column, column.name in indexed),
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
        *(_sparse(name, number, *columns) for number, columns in enumerate(sparse)),
        info={
            _STORAGE: declared.storage if generation else None,
            _ATTACHED: declared.attachments,
        },
    )
    made.info[_KINDS] = {column.name: type(column.type) for column in made.columns}
    return made


def _sparse(table: str, number: int, *columns: str) -> Index:
    held = text(f'"{columns[-1]}" IS NOT NULL')
    return Index(
        f"ix_{table}_sparse_{number}",
        *columns,
        sqlite_where=held,
        postgresql_where=held,
    )


def _type(column: ReadColumn, indexed: bool) -> type[TypeEngine[Any]]:
    return IndexedText if indexed and column.type == "text" else _TYPES[column.type]


def storage_of(table: Table) -> Storage | None:
    """Return how the table stores its rows; None if unchanged, as always in memory."""
    storage: Storage | None = table.info[_STORAGE]
    return storage


def kinds_of(table: Table) -> Mapping[str, type[TypeEngine[Any]]]:
    """Return the types of a table's columns by name; faster than asking SQLAlchemy."""
    kinds: Mapping[str, type[TypeEngine[Any]]] = table.info[_KINDS]
    return kinds


def marked(table: Table, dialect: str) -> Marked | None:
    """Return how new rows of the table are marked when many are written at once."""
    attached: Attachments | None = table.info[_ATTACHED]
    return None if attached is None else attached.marked(table.name, dialect)


def stored(table: Table, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values to write into the table for a row that sets these columns."""
    storage = storage_of(table)
    return values if storage is None else storage.stored(values)


def shown(table: Table, dialect: str) -> Select[Any]:
    """Return the query for all complete rows of the table, on ``sqlite`` or ``postgresql``."""
    storage = storage_of(table)
    if storage is None:
        return select(table)
    special = storage.shown(table.name, dialect)
    columns = (
        literal_column(special[column.name], column.type).label(column.name)
        if column.name in special
        else column
        for column in table.columns
    )
    events = metadata_for(dialect).tables["events"]
    owned = events.c.conversation_id == table.c.conversation_id
    named = events.c.version == table.c[storage.event]
    return select(*columns).select_from(table.outerjoin(events, and_(owned, named)))


def create(connection: Connection, projection: Projection, generation: int) -> None:
    """Create a generation's tables, in the caller's transaction."""
    made, built = [], tables_of(projection, generation)
    for declared in projection.tables:
        table = built[declared.name]
        if has_table(connection, table.name):
            continue
        table.create(connection, checkfirst=False)
        if declared.attachments is not None:
            for statement in declared.attachments.made(table.name, connection.dialect.name):
                connection.exec_driver_sql(statement)
        made.append(table.name)
    without_statistics(connection, made)
    share_rights(connection, made)


def begin_filling(connection: Connection, projection: Projection, generation: int) -> None:
    """Prepare the generation's new tables for being filled at once, before anyone reads them."""
    for filling in _fillings(connection, projection, generation):
        for statement in filling.begin:
            connection.exec_driver_sql(statement)


def end_filling(connection: Connection, projection: Projection, generation: int) -> None:
    """Prepare a generation that was filled at once for readers, in the caller's transaction.

    Analyses the tables: until autovacuum does so, PostgreSQL's planner would assume that they are
    nearly empty.
    """
    for filling in _fillings(connection, projection, generation):
        for statement in filling.end:
            connection.exec_driver_sql(statement)
    for table in tables_of(projection, generation).values():
        name = connection.dialect.identifier_preparer.quote_identifier(table.name)
        for statement in backend_of(connection).analyse:
            connection.exec_driver_sql(statement.format(name))


def _fillings(connection: Connection, projection: Projection, generation: int) -> Iterator[Filling]:
    for table in tables_of(projection, generation).values():
        attached: Attachments | None = table.info[_ATTACHED]
        if attached and (found := attached.filling(table.name, connection.dialect.name)):
            yield found


def drop(connection: Connection, name: str) -> None:
    """Drop a table of a generation that is no longer live, in the caller's transaction.

    Its attachments are dropped too.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    beside = quote(f"{name}_beside")
    backend_of(connection).empty(connection, name)
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quote(name)}")
    connection.exec_driver_sql(backend_of(connection).drop_beside.format(beside))


def point_views(connection: Connection, projection: Projection, generation: int) -> None:
    """Make the stable views show a generation, in the caller's transaction.

    On PostgreSQL a view keeps its grants and its dependent objects, unless its columns have
    changed.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    views = tables_of(projection, generation)
    for name, table in views.items():
        backend_of(connection).point_view(connection, quote(name), _query(connection, table))
    share_rights(connection, views)


def _query(connection: Connection, table: Table) -> str:
    """Return `shown` as SQL text in which columns keep the table's types."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    own, source = quote(table.name), quote(table.name)
    special: Mapping[str, str] = {}
    storage = storage_of(table)
    if storage is not None:
        special = storage.shown(own, connection.dialect.name)
        source += f" LEFT JOIN events ON events.conversation_id = {own}.conversation_id"
        source += f" AND events.version = {own}.{quote(storage.event)}"
    columns = ", ".join(
        f"{special[column.name]} AS {quote(column.name)}"
        if column.name in special
        else f"{own}.{quote(column.name)}"
        for column in table.columns
    )
    return f"SELECT {columns} FROM {source}"  # noqa: S608 - names of tables and columns


TENANT: ColumnClause[str | None] = column("tenant_id", SafeText)
USER: ColumnClause[str | None] = column("user_id", SafeText)

_OWNER = "SELECT tenant_id, user_id FROM conversations WHERE conversation_id = new.conversation_id"


@dataclass(frozen=True, slots=True)
class OwnerColumns:
    """Columns with the tenant and user of each row.

    Attributes:
        indexes: Lists of columns, each indexed as given, for reading across conversations.
    """

    indexes: tuple[tuple[str, ...], ...]

    def made(self, table: str, dialect: str) -> Sequence[str]:
        """Return the SQL that adds the columns, the trigger that fills them, and the indexes."""
        return (
            *(f"ALTER TABLE {table} ADD COLUMN {name} TEXT" for name in ("tenant_id", "user_id")),
            *backend_named(dialect).fills(table, ("tenant_id", "user_id"), _OWNER),
            *(
                f"CREATE INDEX ix_{table}_beside_{number} ON {table} ({', '.join(columns)})"
                for number, columns in enumerate(self.indexes)
            ),
        )

    def marked(self, table: str, dialect: str) -> None:
        """Return None: rows written together are filled like any others."""

    def filling(self, table: str, dialect: str) -> None:
        """Return None: a rebuild needs no extra statements."""
