"""The tables of a generation: built from a projection's declaration, created and dropped by code.

A table is named ``<name>_g<generation>``; the stable SQL view ``<name>`` shows the live generation.
Both are disposable, and migrations do not touch them. Generation 0 is in memory, in a database
without the store's own tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
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

from eventstore.database import (
    AnyConnection,
    Backend,
    Bound,
    Id,
    IndexedText,
    SafeJson,
    SafeText,
    Timestamp,
    all_json_in,
    backend_named,
    backend_of,
    cursor,
    escape,
    fetch,
    has_table,
    indexed,
    json_in,
    metadata_for,
    share_rights,
    unescape,
    without_statistics,
)
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
    "NewRows",
    "OwnerColumns",
    "begin_filling",
    "bind_new",
    "columns_of",
    "create",
    "drop",
    "end_filling",
    "insert",
    "kinds_of",
    "load",
    "marked",
    "patch",
    "point_views",
    "shown",
    "storage_of",
    "stored",
    "table_name",
    "tables_of",
    "upsert",
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
    condition = text(f'"{columns[-1]}" IS NOT NULL')
    return Index(
        f"ix_{table}_sparse_{number}",
        *columns,
        sqlite_where=condition,
        postgresql_where=condition,
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


_SELECT_OWNER = (
    "SELECT tenant_id, user_id FROM conversations WHERE conversation_id = new.conversation_id"
)


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
            *backend_named(dialect).fills(table, ("tenant_id", "user_id"), _SELECT_OWNER),
            *(
                f"CREATE INDEX ix_{table}_beside_{number} ON {table} ({', '.join(columns)})"
                for number, columns in enumerate(self.indexes)
            ),
        )

    def marked(self, table: str, dialect: str) -> None:
        """Return None: rows written together are filled like any others."""

    def filling(self, table: str, dialect: str) -> None:
        """Return None: a rebuild needs no extra statements."""


Row = Mapping[str, Any]


Key = tuple[Any, ...]


Convert = Callable[[Any], Any]


ConvertAll = Callable[[Convert, list[Any]], list[Any]]


_OWNER = "conversation_id"


# Both drivers accept values of unlisted types unchanged.
_CONVERTERS: dict[type[TypeEngine[Any]], Callable[[Backend], Convert]] = {
    SafeText: lambda backend: escape,
    IndexedText: lambda backend: indexed,
    SafeJson: lambda backend: json_in,
    Timestamp: lambda backend: backend.from_time,
    Id: lambda backend: backend.from_id,
}


_COPIED_AS: dict[type[TypeEngine[Any]], str] = {
    SafeText: "text",
    IndexedText: "text",
    SafeJson: "text",  # JSON is already text when it is bound
    BigInteger: "int8",
    Double: "float8",
    Boolean: "bool",
    Timestamp: "timestamptz",
    Id: "uuid",
}


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of one table in the driver's form, and the columns that they set."""

    columns: tuple[str, ...]
    bound: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement and the columns of its parameters, in order, with their converters."""

    sql: str
    columns: tuple[tuple[str, Convert | None], ...]

    def bind(self, row: Row) -> list[Any]:
        """Return a row's values in the driver's form."""
        if len(row) != len(self.columns):
            expected = [name for name, _ in self.columns]
            raise KeyError(f"a row sets the columns {sorted(row)}, expected {expected}")
        return [
            value if (value := row[name]) is None or convert is None else convert(value)
            for name, convert in self.columns
        ]

    def of(self, rows: Sequence[Row]) -> Bound:
        """Return the statement with these rows' values."""
        return Bound(self.sql, [self.bind(row) for row in rows])


def bind_new(table: Table, backend: Backend, rows: Mapping[Any, Mapping[Key, Row]]) -> NewRows:
    """Return new rows for `load`, which leaves columns that no row sets NULL.

    Converts one column at a time, because most columns need no conversion or repeat a value.

    Args:
        table: The generation's table.
        backend: The backend of the target database.
        rows: Complete rows, by conversation id in the driver's form and then by the other values of
            the key.

    Raises:
        KeyError: A row sets a column that the table does not have.
    """
    storage = storage_of(table)
    # Rows that set the same columns in the same order are transposed together.
    shapes: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for owner, own in rows.items():
        for place, values in own.items():
            row = values if storage is None else storage.stored(values)
            row_values = (owner, *place, *row.values())
            if (alike := shapes.get(shape := tuple(row))) is None:
                shapes[shape] = [row_values]
            else:
                alike.append(row_values)
    if not shapes:
        return NewRows((), ())
    key, others = _key_and_others(table)
    known = set().union(*shapes)
    if unknown := known.difference(others):
        raise KeyError(f"a row sets unknown columns {sorted(unknown)}, known: {sorted(others)}")
    columns: dict[str, list[Any]] = {
        name: [] for name in (_OWNER, *key, *others) if name not in others or name in known
    }
    for shape, alike in shapes.items():
        made = dict(zip((_OWNER, *key, *shape), zip(*alike, strict=True), strict=True))
        lacking = [None] * len(alike)
        for name, column_values in columns.items():
            column_values += made.get(name, lacking)
    for name in filter(known.__contains__, others):
        found = columns[name]
        if not any(found) and found.count(None) == len(found):
            del columns[name]
    for name, convert in _converted(table, tuple(columns), backend):
        if convert is not None and name != _OWNER:
            columns[name] = _CONVERT_ALL[kinds_of(table)[name]](convert, columns[name])
    return NewRows(tuple(columns), list(zip(*columns.values(), strict=True)))


def load(connection: AnyConnection, table: Table, rows: NewRows) -> None:
    """Insert many new rows at once, in the caller's transaction; on PostgreSQL with ``COPY``."""
    if not rows.bound:
        return
    kinds = kinds_of(table)
    columns = {name: _COPIED_AS[kinds[name]] for name in rows.columns}
    backend, bound, run = backend_of(connection), rows.bound, cursor(connection)
    mark = marked(table, backend.name)
    if mark is not None:
        columns[mark.column], bound = "int8", [(*row, 0) for row in bound]
    backend.load(run, table.name, columns, bound, triggers=mark is not None)
    for statement in mark.statements if mark is not None else ():
        run.execute(statement)
    run.close()


def insert(backend: Backend, table: Table, rows: Sequence[Row]) -> Bound:
    """Return the statement that inserts rows with values for every column of the table."""
    return _insert(table, tuple(table.columns.keys()), backend).of(rows)


def upsert(backend: Backend, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> Bound:
    """Return the statement that inserts rows, or sets ``columns`` of rows whose key exists.

    Args:
        backend: The backend of the target database.
        table: The generation's table.
        columns: The columns of every row other than the key; if empty, existing rows are unchanged.
        rows: Rows as values by column, including the key's.
    """
    return _upsert(table, columns, backend).of(rows)


def patch(
    backend: Backend,
    table: Table,
    owner: Any,
    within: tuple[str, int, int],
    values: Row,
    *,
    only: tuple[str, str | None] | None = None,
) -> Bound:
    """Return the statement that sets columns of a conversation's rows.

    Args:
        backend: The backend of the target database.
        table: The generation's table.
        owner: The conversation's id.
        within: The column that selects the rows, and its lowest and highest value.
        values: The values to set, by column.
        only: A text column, and the value that it must have.
    """
    column, first, last = within
    checked = None if only is None else (only[0], only[1] is None)
    made = _patch(table, column, tuple(sorted(values)), backend, checked)
    bound = [*made.bind({**values, _OWNER: owner}), first, last]
    return Bound(made.sql, [[*bound, only[1]] if only is not None and only[1] else bound])


def columns_of(
    connection: AnyConnection, table: Table, owner: Any, columns: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return some columns of all rows of a conversation, in the caller's transaction."""
    backend = backend_of(connection)
    names = ", ".join(_quoted(columns))
    chosen = f'SELECT {names} FROM "{table.name}" WHERE {_OWNER} = {backend.mark}'  # noqa: S608
    texts = [isinstance(table.c[name].type, SafeText) for name in columns]
    return [
        tuple(
            unescape(value) if text and value is not None else value
            for value, text in zip(row, texts, strict=True)
        )
        for row in fetch(connection, chosen, [backend.from_id(owner)])
    ]


def _convert_texts(convert: Convert, column: list[Any]) -> list[Any]:
    """Convert texts; usually none needs conversion, which a check of all at once shows."""
    together = "".join(filter(None, column))
    return column if convert(together) == together else _convert_each(convert, column)


def _convert_distinct(convert: Convert, column: list[Any]) -> list[Any]:
    """Convert values, many of which are equal: events of one append have the same time."""
    known = {value: convert(value) for value in set(column) if value is not None}
    return [known.get(value) for value in column]


def _convert_json(_: Convert, column: list[Any]) -> list[Any]:
    return all_json_in(column)


def _convert_each(convert: Convert, column: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in column]


_CONVERT_ALL: dict[type[TypeEngine[Any]], ConvertAll] = {
    SafeText: _convert_texts,
    IndexedText: _convert_distinct,
    SafeJson: _convert_json,
    Timestamp: _convert_distinct,
    Id: _convert_distinct,
}


@lru_cache(maxsize=256)
def _key_and_others(table: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key's columns, without the conversation's id, and all other columns."""
    key = tuple(column.name for column in table.primary_key if column.name != _OWNER)
    return key, tuple(name for name in table.columns.keys() if name not in (_OWNER, *key))


@lru_cache(maxsize=256)
def _insert(table: Table, columns: tuple[str, ...], backend: Backend) -> _Prepared:
    names = ", ".join(_quoted(columns))
    marks = ", ".join([backend.mark] * len(columns))
    return _Prepared(
        f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})',  # noqa: S608 - names of columns
        _converted(table, columns, backend),
    )


@lru_cache(maxsize=256)
def _upsert(table: Table, columns: tuple[str, ...], backend: Backend) -> _Prepared:
    key = tuple(column.name for column in table.primary_key)
    plain = _insert(table, (*key, *columns), backend)
    changed = ", ".join(f"{name} = excluded.{name}" for name in _quoted(columns))
    action = f"UPDATE SET {changed}" if changed else "NOTHING"
    conflict = f"ON CONFLICT ({', '.join(_quoted(key))}) DO {action}"
    return _Prepared(f"{plain.sql} {conflict}", plain.columns)


@lru_cache(maxsize=256)
def _patch(
    table: Table,
    within: str,
    columns: tuple[str, ...],
    backend: Backend,
    checked: tuple[str, bool] | None,
) -> _Prepared:
    mark = backend.mark
    [column] = _quoted((within,))
    changed = ", ".join(f"{name} = {mark}" for name in _quoted(columns))
    chosen = f"{_OWNER} = {mark} AND {column} BETWEEN {mark} AND {mark}"
    if checked is not None:
        [name] = _quoted(checked[:1])
        chosen += f" AND {name} IS NULL" if checked[1] else f" AND {name} = {mark}"
    return _Prepared(
        f'UPDATE "{table.name}" SET {changed} WHERE {chosen}',  # noqa: S608 - names of columns
        _converted(table, (*columns, _OWNER), backend),
    )


def _quoted(columns: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in columns]


def _converted(
    table: Table, columns: Sequence[str], backend: Backend
) -> tuple[tuple[str, Convert | None], ...]:
    kinds = kinds_of(table)
    made = [(name, _CONVERTERS.get(kinds[name])) for name in columns]
    return tuple((name, None if convert is None else convert(backend)) for name, convert in made)
