"""The registry of generations: which tables of a projection are live, being built, or dead.

A generation belongs to one version of a projection's fold. Code always uses the newest live
generation of its own version, so an old and a new version of a product can run side by side; the
stable views show the newest. A generation may go live while it lacks conversations: every read
catches its conversation up first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import psycopg
from sqlalchemy import Connection, Table, delete, exists, insert, not_, select, update
from sqlalchemy.exc import DBAPIError

from eventstore.database import AnyConnection, Statement, metadata_for
from eventstore.errors import RowDamaged, StatementRefused
from eventstore.events.codec import dumps, loads
from projections.engine import tables
from projections.engine.projection import Projection
from projections.errors import GenerationGone

__all__ = [
    "IN_MEMORY",
    "Generation",
    "LiveRow",
    "Status",
    "all_live",
    "building",
    "cut_over",
    "drop_dead",
    "find_all_live",
    "find_live",
    "forget_heads",
    "gone",
    "install",
    "is_gone",
    "newest",
    "newest_live",
    "registered",
    "start_building",
    "whole_number",
]

IN_MEMORY = 0
"""The number of a generation that exists only in memory."""

Status = Literal["building", "live", "dead"]

LiveRow = tuple[str | None, int, int, str | None]
"""Name, version, generation and cursor of a live generation."""

_LIVE = Statement("SELECT name, version, generation, cursor FROM projections WHERE status = 'live'")


@dataclass(frozen=True, slots=True)
class Generation:
    """One set of a projection's tables, filled by one version of its fold.

    ``cursor`` is the place in the feed up to which every conversation has been caught up.
    """

    projection: Projection
    number: int
    cursor: str | None
    tables: Mapping[str, Table] = field(init=False, compare=False, repr=False)
    """The tables, by their stable names."""

    def __post_init__(self) -> None:
        """Find the tables once, because they are looked up often."""
        object.__setattr__(self, "tables", tables.tables_of(self.projection, self.number))

    @property
    def in_memory(self) -> bool:
        """Whether it is a temporary copy in memory."""
        return self.number == IN_MEMORY


@contextmanager
def gone() -> Iterator[None]:
    """Raise `GenerationGone` if a table has disappeared between finding and using it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, GenerationGone) or not is_gone(error):
            raise
        raise GenerationGone(str(_cause(error)).splitlines()[0]) from error


def is_gone(error: BaseException) -> bool:
    """Whether an error says that a table is missing, as after a cut-over."""
    cause = _cause(error)
    return isinstance(cause, GenerationGone | psycopg.errors.UndefinedTable) or (
        isinstance(cause, sqlite3.OperationalError) and str(cause).startswith("no such table")
    )


def _cause(error: BaseException) -> BaseException | None:
    """Return the driver's error, wrapped by SQLAlchemy in a transaction and by us outside one."""
    if isinstance(error, StatementRefused):
        return error.__cause__
    return error.orig if isinstance(error, DBAPIError) else error


def whole_number(value: Any, what: str) -> int:
    """Return an integer of a row; SQLite accepts any value in any column.

    Raises:
        RowDamaged: The value is not an integer; ``what`` says which value.
    """
    if type(value) is not int:
        raise RowDamaged(what)
    return value


def registered(connection: Connection) -> list[dict[str, Any]]:
    """Return every row of the registry, oldest generation first."""
    registry = _registry(connection)
    rows = connection.execute(select(registry).order_by(registry.c.name, registry.c.generation))
    return [dict(row._mapping) for row in rows]


def find_live(connection: Connection, projection: Projection) -> Generation | None:
    """Return the newest live generation of this version of the projection, or None."""
    return find_all_live(connection, [projection])[0]


def find_all_live(
    connection: AnyConnection, projections: Sequence[Projection]
) -> list[Generation | None]:
    """Return the result of `find_live` for each of these projections, in one query."""
    rows = [tuple(row) for row in _LIVE.rows(connection)]
    return [newest(rows, projection) for projection in projections]


def all_live(
    projections: Sequence[Projection], found: Sequence[Generation | None]
) -> list[Generation]:
    """Return the live generations found for projections.

    Raises:
        GenerationGone: A projection has none.
    """
    live = [each for each in found if each is not None]
    if len(live) < len(found):
        lacking = [each.name for each, one in zip(projections, found, strict=True) if one is None]
        raise GenerationGone(", ".join(lacking))
    return live


def newest(rows: Iterable[LiveRow], projection: Projection) -> Generation | None:
    """Return the newest generation of this version of the projection among live ones."""
    numbered = {
        number: cursor
        for name, version, number, cursor in rows
        if (name, version) == (projection.name, projection.version)
    }
    if not numbered:
        return None
    invalid = f"an invalid generation of {projection.name}"
    number = max(whole_number(each, invalid) for each in numbered)
    return Generation(projection, number, numbered[number])


def newest_live(connection: Connection, projection: Projection) -> tuple[Generation, int] | None:
    """Return the newest live generation of any version, and that version."""
    found = _newest(connection, projection, "live", None)
    if found is None:
        return None
    registry = _registry(connection)
    version = connection.execute(
        select(registry.c.version).where(
            registry.c.name == projection.name, registry.c.generation == found.number
        )
    ).scalar_one()
    return found, version


def building(connection: Connection, projection: Projection) -> Generation | None:
    """Return the generation of this version whose rebuild has begun and not ended, or None."""
    return _newest(connection, projection, "building", projection.version)


def install(connection: Connection, projections: Sequence[Projection]) -> None:
    """Create an empty live generation for each projection whose version has none.

    Call it under the schema lock, in the caller's transaction.
    """
    for projection in projections:
        if find_live(connection, projection) is None:
            number = _add(connection, projection, "live", None)
            tables.point_views(connection, projection, number)


def start_building(
    connection: Connection, projection: Projection, cursor: str | None
) -> Generation:
    """Return the generation to rebuild into: an unfinished one, or a new one.

    ``cursor`` is the current end of the feed: later events are caught up once the generation is
    live. Call it under the schema lock, in the caller's transaction.
    """
    existing = building(connection, projection)
    if existing is not None:
        return existing
    return Generation(projection, _add(connection, projection, "building", cursor), cursor)


def cut_over(connection: Connection, generation: Generation) -> None:
    """Make a generation live and every older one dead, in the caller's transaction.

    This includes generations of older versions: code of such a version that still runs installs a
    new one. A generation that another rebuild has made live, or replaced, is left unchanged.
    """
    registry = _registry(connection)
    name = generation.projection.name
    status = connection.execute(
        select(registry.c.status).where(
            registry.c.name == name, registry.c.generation == generation.number
        )
    ).scalar()
    if status != "building":
        return
    older = (registry.c.name == name) & (registry.c.generation < generation.number)
    connection.execute(update(registry).where(older).values(status="dead"))
    connection.execute(
        update(registry)
        .where(registry.c.name == name, registry.c.generation == generation.number)
        .values(status="live")
    )
    tables.point_views(connection, generation.projection, generation.number)


def drop_dead(connection: Connection) -> bool:
    """Drop one table of a dead generation; return whether there was one.

    Use one transaction per table: a reader that reads one table after another could deadlock with
    a transaction that drops both in the opposite order. Heads are left to `forget_heads` for the
    same reason.
    """
    registry = _registry(connection)
    dead = next((row for row in registered(connection) if row["status"] == "dead"), None)
    if dead is None:
        return False
    try:
        name, *others = loads(dead["tables"])
    except (TypeError, ValueError) as error:
        raise RowDamaged(f"invalid table names of {dead['name']}") from error
    tables.drop(connection, name)
    row = (registry.c.name == dead["name"]) & (registry.c.generation == dead["generation"])
    # An erasure searches every registered table.
    connection.execute(
        update(registry).where(row).values(tables=dumps(others))
        if others
        else delete(registry).where(row)
    )
    return True


def forget_heads(connection: Connection) -> None:
    """Delete the heads of generations that are no longer registered."""
    registry = _registry(connection)
    heads = metadata_for(connection.dialect.name).tables["projection_heads"]
    known = exists().where(
        registry.c.name == heads.c.projection, registry.c.generation == heads.c.generation
    )
    connection.execute(delete(heads).where(not_(known)))


def _registry(connection: Connection) -> Table:
    return metadata_for(connection.dialect.name).tables["projections"]


def _newest(
    connection: Connection, projection: Projection, status: Status, version: int | None
) -> Generation | None:
    registry = _registry(connection)
    query = select(registry.c.generation, registry.c.cursor).where(
        registry.c.name == projection.name, registry.c.status == status
    )
    if version is not None:
        query = query.where(registry.c.version == version)
    row = connection.execute(query.order_by(registry.c.generation.desc()).limit(1)).first()
    if row is None:
        return None
    return Generation(
        projection, whole_number(row[0], f"an invalid generation of {projection.name}"), row[1]
    )


def _add(connection: Connection, projection: Projection, status: Status, cursor: str | None) -> int:
    registry = _registry(connection)
    last = connection.execute(
        select(registry.c.generation)
        .where(registry.c.name == projection.name)
        .order_by(registry.c.generation.desc())
        .limit(1)
    ).scalar()
    number = whole_number(last or 0, f"an invalid generation of {projection.name}") + 1
    names = [tables.table_name(table.name, number) for table in projection.tables]
    connection.execute(
        insert(registry).values(
            name=projection.name,
            generation=number,
            version=projection.version,
            status=status,
            tables=dumps(names),
            cursor=cursor,
            created_at=datetime.now(UTC),
        )
    )
    tables.create(connection, projection, number)
    if status == "building":
        tables.begin_filling(connection, projection, number)
    return number
