"""Rows are stored as the columns' own types store them, whichever statement writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Table

from eventstore import EventStore, new_id
from eventstore.sql.backend import backend_of
from projections.engine import tables
from projections.engine import tables as row_statements
from projections.engine.projection import Column, ReadTable
from tests.projections.toys import Notes

KINDS = ReadTable(
    "kinds",
    ("number",),
    (
        Column("number", "integer"),
        Column("order", "text"),
        Column("data", "json"),
        Column("share", "float"),
        Column("done", "boolean"),
        Column("at", "timestamp"),
        Column("other", "uuid"),
    ),
)


@dataclass(frozen=True, slots=True)
class Kinds(Notes):
    """A table with a column of every type, one of them named by a word of SQL."""

    name: str = "kinds"
    tables: tuple[ReadTable, ...] = (KINDS,)


PROJECTION = Kinds()
OTHER = UUID("0190f0a0-0000-7000-8000-000000000001")
AT = datetime(2024, 5, 20, 12, 0, 0, 5, tzinfo=UTC)
Row = dict[str, Any]
VALUES = [
    pytest.param({}, id="nothing"),
    pytest.param({"order": "50 % of it: 'a' \"b\" ? :c"}, id="marks of SQL"),
    pytest.param({"order": "a\x00b\ud800", "data": {"k\x00": ["\ud800", "é"]}}, id="unsafe text"),
    pytest.param({"data": []}, id="empty JSON"),
    pytest.param({"data": "null", "share": 0.1, "done": True}, id="scalars"),
    pytest.param({"share": 1e300, "done": False, "other": OTHER}, id="an id"),
    pytest.param({"at": AT, "other": OTHER}, id="a time"),
    pytest.param({"at": AT.astimezone(timezone(timedelta(hours=8)))}, id="a time elsewhere"),
]
BLANK: Row = dict.fromkeys(column.name for column in KINDS.columns)


def plainly(connection: Connection, table: Table, owner: UUID, values: Row) -> None:
    """Write a row as SQLAlchemy does."""
    connection.execute(table.insert(), [{**BLANK, "conversation_id": owner, "number": 1, **values}])


def by_insert(connection: Connection, table: Table, owner: UUID, values: Row) -> None:
    """Write a row at once."""
    row = {**BLANK, "conversation_id": owner, "number": 1, **values}
    row_statements.insert(backend_of(connection), table, [row]).run(connection)


def by_upsert(connection: Connection, table: Table, owner: UUID, values: Row) -> None:
    """Write a row where there is none."""
    row = {"conversation_id": owner, "number": 1, **values}
    backend = backend_of(connection)
    row_statements.upsert(backend, table, tuple(values), [row]).run(connection)


def by_upsert_over(connection: Connection, table: Table, owner: UUID, values: Row) -> None:
    """Write a row over another one."""
    by_insert(connection, table, owner, dict.fromkeys(values))
    by_upsert(connection, table, owner, values)


def by_patch(connection: Connection, table: Table, owner: UUID, values: Row) -> None:
    """Write a blank row, and then its values."""
    by_insert(connection, table, owner, {})
    if values:
        within = ("number", 1, 1)
        backend = backend_of(connection)
        row_statements.patch(backend, table, owner, within, values).run(connection)


def by_load(connection: Connection, table: Table, owner: UUID, values: Row) -> None:
    """Write a row as a rebuild does."""
    row_statements.load(connection, table, bound(connection, table, {owner: {(1,): values}}))


def bound(
    connection: Connection, table: Table, rows: dict[UUID, dict[tuple[int], Row]]
) -> row_statements.NewRows:
    """Return rows as the driver of the connection takes them."""
    backend = backend_of(connection)
    owned = {backend.from_id(owner): own for owner, own in rows.items()}
    return row_statements.bind_new(table, backend, owned)


Write = Callable[[Connection, Table, UUID, Row], None]


@pytest.fixture
def table(store: EventStore) -> Table:
    """Give the table, created."""
    with store.writing() as connection:
        tables.create(connection, PROJECTION, 1)
    return tables.tables_of(PROJECTION, 1)["kinds"]


def kept(connection: Connection, table: Table, owner: UUID) -> list[Any]:
    """Return a conversation's rows as the database keeps them, without its id."""
    names = [column.name for column in KINDS.columns]
    sqlite = connection.dialect.name == "sqlite"
    as_kept = 'hex("{0}"), typeof("{0}")' if sqlite else '"{0}"::text'
    columns = ", ".join(as_kept.format(name) for name in names)
    rows = connection.exec_driver_sql(
        f"SELECT {columns} FROM {table.name} WHERE conversation_id = '{owner}' ORDER BY number"
    )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("write", [by_insert, by_upsert, by_upsert_over, by_patch, by_load])
def test_a_row_is_kept_as_sqlalchemy_keeps_it(
    store: EventStore, table: Table, write: Write, values: Row
) -> None:
    """Each statement leaves, byte for byte, the row that the columns' types describe."""
    plain, own = new_id(), new_id()
    with store.writing() as connection:
        plainly(connection, table, plain, values)
        write(connection, table, own, values)
        assert kept(connection, table, plain) == kept(connection, table, own)


def test_many_rows_are_kept_as_one_by_one(store: EventStore, table: Table) -> None:
    """Rows that share a statement are all written."""
    single, together = new_id(), new_id()
    rows = [{"number": number, "order": f"{number}", "data": [number]} for number in (1, 70_000)]
    with store.writing() as connection:
        for row in rows:
            plainly(connection, table, single, row)
        owned = [{"conversation_id": together, **row} for row in rows]
        bound = row_statements.upsert(backend_of(connection), table, ("order", "data"), owned)
        bound.run(connection)
        assert kept(connection, table, single) == kept(connection, table, together)


def test_rows_of_a_rebuild_are_kept_as_one_by_one(store: EventStore, table: Table) -> None:
    """Plain and awkward values of a column are bound together, and each is kept as if alone."""
    cases = [dict(case.values[0]) for case in VALUES]  # type: ignore[call-overload]
    rows = [{**case, "number": number} for number, case in enumerate(cases)]
    single, together, other = new_id(), new_id(), new_id()
    with store.writing() as connection:
        for row in rows:
            plainly(connection, table, single, row)
        own = {(number,): case for number, case in enumerate(cases)}
        row_statements.load(
            connection, table, bound(connection, table, {together: own, other: own})
        )
        expected = kept(connection, table, single)
        assert expected == kept(connection, table, together)
        assert expected == kept(connection, table, other)


def test_rows_that_set_other_columns_are_kept_as_one_by_one(
    store: EventStore, table: Table
) -> None:
    """Each value goes to its own column, whatever a row sets, and in which order."""
    rows: dict[tuple[int], Row] = {
        (1,): {"order": "a", "data": [1], "done": True},
        (2,): {"done": False, "order": "b"},
        (3,): {},
        (4,): {"data": {"NaN": "Infinity"}, "share": 0.5},
        (5,): {"order": "c", "data": [2], "done": None},
    }
    single, together = new_id(), new_id()
    with store.writing() as connection:
        for (number,), values in rows.items():
            plainly(connection, table, single, {"number": number, **values})
        row_statements.load(connection, table, bound(connection, table, {together: rows}))
        assert kept(connection, table, single) == kept(connection, table, together)


def test_columns_that_no_row_sets_are_left_out(store: EventStore, table: Table) -> None:
    """What is false, zero or empty is set; what is NULL in every row is not sent at all."""
    values = {"order": "", "data": None, "share": 0.0, "done": False}
    with store.writing() as connection:
        rows = bound(connection, table, {new_id(): {(1,): values, (2,): {}}})
    assert ("conversation_id", "number", "order", "share", "done") == rows.columns


def test_an_upsert_leaves_other_columns_alone(store: EventStore, table: Table) -> None:
    """Columns that a row does not name keep what they held."""
    plain, own = new_id(), new_id()
    with store.writing() as connection:
        plainly(connection, table, plain, {"order": "new", "data": {"a": 1}})
        by_insert(connection, table, own, {"order": "old", "data": {"a": 1}})
        by_upsert(connection, table, own, {"order": "new"})
        assert kept(connection, table, plain) == kept(connection, table, own)


def test_a_patch_keeps_to_its_conversation_and_range(store: EventStore, table: Table) -> None:
    """Only rows of the conversation within the range are changed."""
    own, other = new_id(), new_id()
    with store.writing() as connection:
        for owner, number in ((own, 1), (own, 2), (own, 3), (own, 4), (other, 2)):
            plainly(connection, table, owner, {"number": number})
        within, patched = ("number", 2, 3), {"order": "patched"}
        backend = backend_of(connection)
        row_statements.patch(backend, table, own, within, patched).run(connection)
        found = connection.execute(table.select().order_by(table.c.number)).all()
    changed = {(row.conversation_id, row.number) for row in found if row.order == "patched"}
    assert {(own, 2), (own, 3)} == changed


@pytest.mark.parametrize("write", [by_insert, by_upsert, by_patch, by_load])
def test_a_column_that_the_table_lacks_is_refused(
    store: EventStore, table: Table, write: Write
) -> None:
    """A fold that names a column that was never declared is told so, and not passed over."""
    with store.writing() as connection, pytest.raises(KeyError, match="nowhere"):
        write(connection, table, new_id(), {"nowhere": 1})
