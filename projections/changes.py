"""Row changes, collected while folding and written together.

Changes of the same row are merged first, so that a page of a thousand chunks writes its timeline
item once. While nothing of the conversation is in the tables, patches are applied in memory.
Otherwise a patch may concern rows that only the tables hold: then what was merged before it is
written before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Table

from eventstore.sql.dialect import AnyConnection
from projections import row_statements
from projections.base import Change, Patch, Projection, Put, ReadTable
from projections.tables import stored

__all__ = ["RowBuffer"]

Key = tuple[Any, ...]
_Rows = dict[str, dict[Key, dict[str, Any]]]


class RowBuffer:
    """The rows that a fold has changed, by table and key, not yet written.

    ``fresh`` says that nothing of the conversation is in the tables: then rows are complete, and
    are inserted without looking for older ones.
    """

    def __init__(self, projection: Projection, *, fresh: bool) -> None:
        self._declared: dict[str, ReadTable] = {table.name: table for table in projection.tables}
        self._fresh = fresh
        self._earlier: list[_Rows | Patch] = []
        self._rows: _Rows = {name: {} for name in self._declared}

    def add(self, changes: Iterable[Change]) -> None:
        """Merge changes, in the order in which the fold gave them."""
        for change in changes:
            if isinstance(change, Put):
                self._rows[change.table].setdefault(change.key, {}).update(change.values)
            elif self._fresh:
                self._patch_in_memory(change)
            else:
                self._earlier += [self._rows, change]
                self._rows = {name: {} for name in self._declared}

    def complete_rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table's rows with every column, those never set as None."""
        declared = self._declared[table]
        blank = dict.fromkeys(column.name for column in declared.columns)
        return [
            blank | dict(zip(declared.key, key, strict=True)) | values
            for key, values in self._rows[table].items()
        ]

    def new_rows(self, table: str) -> Mapping[Key, Mapping[str, Any]]:
        """Return the rows that a fold of the whole conversation made of a table, by key."""
        return self._rows[table]

    def write(
        self, connection: AnyConnection, tables: Mapping[str, Table], conversation_id: UUID
    ) -> None:
        """Write the changes, in the caller's transaction, and forget them."""
        if self._fresh:
            for name, rows in self._rows.items():
                if rows:
                    complete = [
                        {"conversation_id": conversation_id, **stored(tables[name], row)}
                        for row in self.complete_rows(name)
                    ]
                    row_statements.insert(connection, tables[name], complete)
        else:
            for step in (*self._earlier, self._rows):
                if isinstance(step, Patch):
                    within = (step.column, step.first, step.last)
                    table = tables[step.table]
                    row_statements.patch(connection, table, conversation_id, within, step.values)
                else:
                    self._upsert_all(connection, tables, conversation_id, step)
        self._earlier = []
        self._rows = {name: {} for name in self._declared}
        self._fresh = False

    def _patch_in_memory(self, patch: Patch) -> None:
        declared = self._declared[patch.table]
        place = declared.key.index(patch.column) if patch.column in declared.key else None
        for key, row in self._rows[patch.table].items():
            value = row.get(patch.column) if place is None else key[place]
            if value is not None and patch.first <= value <= patch.last:
                row.update(patch.values)

    def _upsert_all(
        self,
        connection: AnyConnection,
        tables: Mapping[str, Table],
        conversation_id: UUID,
        batch: _Rows,
    ) -> None:
        for name, rows in batch.items():
            keys = self._declared[name].key
            # Rows that set the same columns share a statement.
            groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
            for key, values in rows.items():
                row = {"conversation_id": conversation_id, **dict(zip(keys, key, strict=True))}
                row |= stored(tables[name], values)
                groups.setdefault(tuple(sorted(values)), []).append(row)
            for columns, group in groups.items():
                row_statements.upsert(connection, tables[name], columns, group)
