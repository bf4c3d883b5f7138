"""Row changes, collected while folding and written together.

Changes of the same row are merged first, so that a page of a thousand chunks writes its timeline
item once. Patches of rows that were written earlier go before the merged rows, which already hold
what later changes made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table, update
from sqlalchemy.dialects import postgresql, sqlite

from projections.base import Change, Patch, Projection, Put, ReadTable

__all__ = ["RowBuffer"]

Key = tuple[Any, ...]


class RowBuffer:
    """The rows that a fold has changed, by table and key, not yet written.

    ``fresh`` says that nothing of the conversation is in the tables: then rows are complete, and
    are inserted without looking for older ones.
    """

    def __init__(self, projection: Projection, *, fresh: bool) -> None:
        self._declared: dict[str, ReadTable] = {table.name: table for table in projection.tables}
        self._fresh = fresh
        self.rows: dict[str, dict[Key, dict[str, Any]]] = {name: {} for name in self._declared}
        self._patches: list[Patch] = []

    def add(self, changes: Iterable[Change]) -> None:
        """Merge changes, in the order in which the fold gave them."""
        for change in changes:
            if isinstance(change, Put):
                self.rows[change.table].setdefault(change.key, {}).update(change.values)
            else:
                self._patch(change)

    def complete_rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table's rows with every column, those never set as None."""
        declared = self._declared[table]
        blank = dict.fromkeys(column.name for column in declared.columns)
        return [
            blank | dict(zip(declared.key, key, strict=True)) | values
            for key, values in self.rows[table].items()
        ]

    def write(
        self, connection: Connection, tables: Mapping[str, Table], conversation_id: UUID
    ) -> None:
        """Write the changes, in the caller's transaction, and forget them."""
        identity = {"conversation_id": conversation_id}
        for patch in () if self._fresh else self._patches:
            table = tables[patch.table]
            column = table.c[patch.column]
            connection.execute(
                update(table)
                .where(
                    table.c.conversation_id == conversation_id,
                    column.between(patch.first, patch.last),
                )
                .values(patch.values)
            )
        for name, rows in self.rows.items():
            if not rows:
                continue
            if self._fresh:
                complete = [identity | row for row in self.complete_rows(name)]
                connection.execute(tables[name].insert(), complete)
            else:
                self._upsert(connection, tables[name], self._declared[name], identity)
        self.rows = {name: {} for name in self._declared}
        self._patches = []
        self._fresh = False

    def _patch(self, patch: Patch) -> None:
        self._patches.append(patch)
        declared = self._declared[patch.table]
        place = declared.key.index(patch.column) if patch.column in declared.key else None
        for key, row in self.rows[patch.table].items():
            value = row.get(patch.column) if place is None else key[place]
            if value is not None and patch.first <= value <= patch.last:
                row.update(patch.values)

    def _upsert(
        self,
        connection: Connection,
        table: Table,
        declared: ReadTable,
        identity: dict[str, Any],
    ) -> None:
        # Rows that set the same columns share a statement.
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for key, values in self.rows[declared.name].items():
            row = identity | dict(zip(declared.key, key, strict=True)) | values
            groups.setdefault(tuple(sorted(values)), []).append(row)
        insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        for columns, group in groups.items():
            statement = insert(table)
            keys = ["conversation_id", *declared.key]
            if columns:
                changed = {name: statement.excluded[name] for name in columns}
                upsert = statement.on_conflict_do_update(index_elements=keys, set_=changed)
            else:
                upsert = statement.on_conflict_do_nothing(index_elements=keys)
            connection.execute(upsert, group)
