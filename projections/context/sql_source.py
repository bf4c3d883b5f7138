"""The rows of one conversation in a generation's table: what the builder reads, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, Table, select, tuple_

from projections.context.rows import ContextRow
from projections.context.source import Head

__all__ = ["SqlRowSource"]


class SqlRowSource:
    """A `RowSource` over SQL; every query is a short range of an index."""

    def __init__(self, connection: Connection, table: Table, conversation_id: UUID) -> None:
        self._connection = connection
        self._table = table
        self._conversation_id = conversation_id

    def head(self) -> Head:
        """Return the system part, and the oldest user row that is not hidden."""
        notebooks = self._rows(self._of_kind("notebook", newest=True).limit(1))
        users = self._rows(self._of_kind("user", newest=False).limit(1))
        return Head(
            system=tuple(self._rows(self._of_kind("system", newest=False))),
            notebook=notebooks[0] if notebooks else None,
            first_user=users[0] if users else None,
        )

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""
        rows = self._rows(self._of_kind("user", newest=True).limit(1))
        return rows[0] if rows else None

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order of (version, part), read in pages."""
        columns = self._table.c
        place = tuple_(columns.version, columns.part)
        query = (
            select(self._table)
            .where(
                columns.conversation_id == self._conversation_id,
                columns.hidden.is_(None),
                columns.summarised_by.is_(None),
                columns.kind.not_in(("system", "notebook")),
            )
            .order_by(columns.version.desc(), columns.part.desc())
            .limit(page)
        )
        rows = self._rows(query)
        while rows:
            yield from rows
            if len(rows) < page:
                return
            rows = self._rows(query.where(place < rows[-1].key))

    def _of_kind(self, kind: str, *, newest: bool) -> Select[Any]:
        columns = self._table.c
        query = select(self._table).where(
            columns.conversation_id == self._conversation_id,
            columns.kind == kind,
            columns.hidden.is_(None),
        )
        order = (columns.version, columns.part)
        return query.order_by(*(each.desc() for each in order) if newest else order)

    def _rows(self, query: Select[Any]) -> list[ContextRow]:
        return [ContextRow.of(row) for row in self._connection.execute(query).mappings()]
