"""The statements that write a generation's rows, made once for a table and the columns they set.

A turn writes a handful of rows, and SQLAlchemy would build and compile a statement for each. These
go to the driver, with values converted as the columns' own types convert them. What a rebuild
writes is bound before its transaction begins (`bind_new`), and goes in at once (`load`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Table
from sqlalchemy.types import TypeEngine

from eventstore.sql.dialect import AnyConnection, Dialect, cursor, dialect_of, run_each
from eventstore.sql.types import Id, SafeJson, SafeText, Timestamp, escape, json_in

__all__ = ["Bound", "bind_new", "insert", "load", "patch", "upsert"]

Row = Mapping[str, Any]
Key = tuple[Any, ...]
Bound = list[Any]
"""The values of a new row as the driver takes them: the owner's id, the key, the other columns."""
Convert = Callable[[Any], Any]

_OWNER = "conversation_id"
_MADE = 512  # statements that are kept: of each table there are a few

# A type that is not listed is taken by both drivers as it is.
_CONVERTERS: dict[type[TypeEngine[Any]], Callable[[Dialect], Convert]] = {
    SafeText: lambda dialect: escape,
    SafeJson: lambda dialect: json_in,
    Timestamp: lambda dialect: dialect.from_time,
    Id: lambda dialect: dialect.from_id,
}


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement, and the columns whose values it takes, in order, with their converters."""

    sql: str
    columns: tuple[tuple[str, Convert | None], ...]

    def bind(self, row: Row) -> list[Any]:
        """Return a row's values as the driver takes them."""
        if len(row) != len(self.columns):
            expected = [name for name, _ in self.columns]
            raise KeyError(f"a row sets {sorted(row)} where {expected} can be set")
        return [
            value if (value := row[name]) is None or convert is None else convert(value)
            for name, convert in self.columns
        ]


def bind_new(table: Table, dialect: Dialect, owner: Any, rows: Mapping[Key, Row]) -> list[Bound]:
    """Return a conversation's new rows for `load`; columns that a row does not set become NULL.

    Args:
        table: The generation's table.
        dialect: Of the database that they are for.
        owner: The conversation's id.
        rows: By the values of their key, which does not count the owner.

    Raises:
        KeyError: A row sets a column that the table does not have.
    """
    _, others, converters = _new(table, dialect)
    owner = dialect.from_id(owner)
    bound = []
    for place, values in rows.items():
        if not values.keys() <= others.keys():
            raise KeyError(f"a row sets {sorted(values)} where {sorted(others)} can be set")
        row = [owner, *place, *map(values.get, others)]
        for number, convert in converters:
            if row[number] is not None:
                row[number] = convert(row[number])
        bound.append(row)
    return bound


def load(connection: AnyConnection, table: Table, rows: Sequence[Bound]) -> None:
    """Insert many new rows at once, in the caller's transaction: on PostgreSQL by ``COPY``."""
    if not rows:
        return
    dialect = dialect_of(connection)
    key, others, _ = _new(table, dialect)
    columns = (_OWNER, *key, *others)
    run = cursor(connection)
    if dialect.is_sqlite:
        run.executemany(_insert(table, columns, dialect).sql, rows)
    else:
        names = ", ".join(_quoted(table, columns))
        with run.copy(f'COPY "{table.name}" ({names}) FROM STDIN') as copy:
            for row in rows:
                copy.write_row(row)
    run.close()


def insert(connection: AnyConnection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows with every column of the table, in the caller's transaction."""
    dialect = dialect_of(connection)
    _run(connection, _insert(table, tuple(table.columns.keys()), dialect), rows)


def upsert(
    connection: AnyConnection, table: Table, columns: tuple[str, ...], rows: Sequence[Row]
) -> None:
    """Insert rows, or set ``columns`` of those whose key is there, in the caller's transaction.

    Args:
        connection: In a transaction for writing.
        table: The generation's table.
        columns: What every row holds beside the key; nothing is changed if there are none.
        rows: By column, the key's included.
    """
    _run(connection, _upsert(table, columns, dialect_of(connection)), rows)


def patch(
    connection: AnyConnection, table: Table, owner: Any, within: tuple[str, int, int], values: Row
) -> None:
    """Set columns of a conversation's rows, in the caller's transaction.

    Args:
        connection: In a transaction for writing.
        table: The generation's table.
        owner: The conversation's id.
        within: The column that decides which rows, and its lowest and highest value.
        values: What to set, by column.
    """
    column, first, last = within
    made = _patch(table, column, tuple(sorted(values)), dialect_of(connection))
    run = cursor(connection)
    run.execute(made.sql, [*made.bind({**values, _OWNER: owner}), first, last])
    run.close()


def _run(connection: AnyConnection, made: _Prepared, rows: Sequence[Row]) -> None:
    run_each(connection, made.sql, [made.bind(row) for row in rows])


@lru_cache(maxsize=_MADE)
def _new(
    table: Table, dialect: Dialect
) -> tuple[tuple[str, ...], dict[str, None], tuple[tuple[int, Convert], ...]]:
    """Return the key's columns, the others, and who converts the values at which places."""
    key = tuple(column.name for column in table.primary_key if column.name != _OWNER)
    others = dict.fromkeys(name for name in table.columns.keys() if name not in (_OWNER, *key))
    converted = _converted(table, (*key, *others), dialect)
    places = ((number, convert) for number, (_, convert) in enumerate(converted, start=1))
    return key, others, tuple((number, convert) for number, convert in places if convert)


@lru_cache(maxsize=_MADE)
def _insert(table: Table, columns: tuple[str, ...], dialect: Dialect) -> _Prepared:
    names = ", ".join(_quoted(table, columns))
    marks = ", ".join([_mark(dialect)] * len(columns))
    return _Prepared(
        f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})',  # noqa: S608 - names of columns
        _converted(table, columns, dialect),
    )


@lru_cache(maxsize=_MADE)
def _upsert(table: Table, columns: tuple[str, ...], dialect: Dialect) -> _Prepared:
    key = tuple(column.name for column in table.primary_key)
    plain = _insert(table, (*key, *columns), dialect)
    changed = ", ".join(f"{name} = excluded.{name}" for name in _quoted(table, columns))
    action = f"UPDATE SET {changed}" if changed else "NOTHING"
    conflict = f"ON CONFLICT ({', '.join(_quoted(table, key))}) DO {action}"
    return _Prepared(f"{plain.sql} {conflict}", plain.columns)


@lru_cache(maxsize=_MADE)
def _patch(table: Table, within: str, columns: tuple[str, ...], dialect: Dialect) -> _Prepared:
    mark = _mark(dialect)
    [column] = _quoted(table, (within,))
    changed = ", ".join(f"{name} = {mark}" for name in _quoted(table, columns))
    chosen = f"{_OWNER} = {mark} AND {column} BETWEEN {mark} AND {mark}"
    return _Prepared(
        f'UPDATE "{table.name}" SET {changed} WHERE {chosen}',  # noqa: S608 - names of columns
        _converted(table, (*columns, _OWNER), dialect),
    )


def _mark(dialect: Dialect) -> str:
    return "?" if dialect.is_sqlite else "%s"


def _quoted(table: Table, columns: Sequence[str]) -> list[str]:
    return [f'"{table.c[name].name}"' for name in columns]


def _converted(
    table: Table, columns: Sequence[str], dialect: Dialect
) -> tuple[tuple[str, Convert | None], ...]:
    made = [(name, _CONVERTERS.get(type(table.c[name].type))) for name in columns]
    return tuple((name, None if convert is None else convert(dialect)) for name, convert in made)
