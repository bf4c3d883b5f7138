"""The rows of one conversation in a generation's table: what the builder reads, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, Table, bindparam, select, tuple_

from eventstore.sql.types import Id
from projections.context.rows import ContextRow
from projections.context.source import Head

__all__ = ["SqlRowSource"]


_ALL = 1_000_000


class SqlRowSource:
    """A `RowSource` over SQL; every query is a short range of an index."""

    def __init__(self, connection: Connection, table: Table, conversation_id: UUID) -> None:
        self._connection = connection
        self._queries = _queries(table)
        self._conversation_id = conversation_id

    def head(self) -> Head:
        """Return the system part, and the oldest user row that is not hidden."""
        notebooks = self._rows(self._queries.newest_of_kind, kind="notebook", page=1)
        users = self._rows(self._queries.oldest_of_kind, kind="user", page=1)
        return Head(
            system=tuple(self._rows(self._queries.oldest_of_kind, kind="system", page=_ALL)),
            notebook=notebooks[0] if notebooks else None,
            first_user=users[0] if users else None,
        )

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""
        rows = self._rows(self._queries.newest_of_kind, kind="user", page=1)
        return rows[0] if rows else None

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order of (version, part), read in pages."""
        rows = self._rows(self._queries.newest, page=page)
        while rows:
            yield from rows
            if len(rows) < page:
                return
            version, part = rows[-1].key
            rows = self._rows(self._queries.older, page=page, version=version, part=part)

    def _rows(self, query: Select[Any], **parameters: Any) -> list[ContextRow]:
        bound = {"conversation_id": self._conversation_id, **parameters}
        return [ContextRow(*row) for row in self._connection.execute(query, bound)]


@dataclass(frozen=True, slots=True)
class _Queries:
    """The queries over one table, built once: building them costs more than running them."""

    newest: Select[Any]
    older: Select[Any]
    oldest_of_kind: Select[Any]
    newest_of_kind: Select[Any]


@lru_cache(maxsize=64)
def _queries(table: Table) -> _Queries:
    columns = table.c
    # Columns that are NULL in every row are named in the order too: PostgreSQL does not see that
    # they are constant, and would not recognise the order of the index.
    order = (columns.version, columns.part)
    shown = (
        select(*(columns[field.name] for field in fields(ContextRow)))
        .where(
            columns.conversation_id == bindparam("conversation_id", type_=Id),
            columns.hidden.is_(None),
        )
        .limit(bindparam("page"))
    )
    newest = shown.where(
        columns.summarised_by.is_(None), columns.kind.not_in(("system", "notebook"))
    ).order_by(*(column.desc() for column in (columns.hidden, columns.summarised_by, *order)))
    older = newest.where(tuple_(*order) < tuple_(bindparam("version"), bindparam("part")))
    of_kind = shown.where(columns.kind == bindparam("kind"))
    return _Queries(
        newest=newest,
        older=older,
        oldest_of_kind=of_kind.order_by(columns.hidden, *order),
        newest_of_kind=of_kind.order_by(*(column.desc() for column in (columns.hidden, *order))),
    )
