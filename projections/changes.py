"""Row changes, collected while folding and written together.

Changes of the same row are merged first, so that a page of a thousand chunks writes its timeline
item once. While nothing of the conversation is in the tables, patches are applied in memory.
Otherwise a patch may concern rows that only the tables hold: then what was merged before it is
written before it. Values are converted, and texts encoded, before anything is written (`bind`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Table

from eventstore.sql.dialect import AnyConnection, Bound, Dialect, dialect_of
from projections import row_statements
from projections.base import Change, Patch, Projection, Put, ReadTable
from projections.patching import PatchedRows
from projections.tables import stored

__all__ = ["RowBuffer"]

Key = tuple[Any, ...]
_FEW = 4  # patches; more are worth reading what they may match
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
        self._rows: _Rows = {}
        self._patched: dict[str, PatchedRows] = {}
        self._begin()

    def add(self, changes: Iterable[Change]) -> None:
        """Merge changes, in the order in which the fold gave them."""
        for change in changes:
            if isinstance(change, Put):
                self._patched[change.table].put(change.key, change.values)
            elif self._fresh:
                self._patched[change.table].patch(change)
            else:
                self._earlier += [self._rows, change]
                self._begin()

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
        for each in self.bind(connection, tables, conversation_id):
            each.run(connection)

    def bind(
        self, connection: AnyConnection, tables: Mapping[str, Table], conversation_id: UUID
    ) -> list[Bound]:
        """Return the statements that write the changes, in order, and forget these.

        Reads alone, in the caller's transaction: what the rows hold that many patches may match.
        The statements are good as long as nobody else has written rows of the conversation.
        """
        dialect = dialect_of(connection)
        bound: list[Bound] = []
        if self._fresh:
            for name, rows in self._rows.items():
                if rows:
                    complete = [
                        {"conversation_id": conversation_id, **stored(tables[name], row)}
                        for row in self.complete_rows(name)
                    ]
                    bound.append(row_statements.insert(dialect, tables[name], complete))
        else:
            steps: Sequence[_Rows | Patch] = (*self._earlier, self._rows)
            if len(self._earlier) > 2 * _FEW:
                steps = [self._replayed(connection, tables, conversation_id, steps)]
            for step in steps:
                if isinstance(step, Patch):
                    within = (step.column, step.first, step.last)
                    made = (dialect, tables[step.table], conversation_id, within, step.values)
                    bound.append(row_statements.patch(*made))
                else:
                    bound += self._upserts(dialect, tables, conversation_id, step)
        self._earlier = []
        self._begin()
        self._fresh = False
        return bound

    def _begin(self) -> None:
        self._patched = {name: PatchedRows(each) for name, each in self._declared.items()}
        self._rows = {name: each.rows for name, each in self._patched.items()}

    def _replayed(
        self,
        connection: AnyConnection,
        tables: Mapping[str, Table],
        conversation_id: UUID,
        steps: Sequence[_Rows | Patch],
    ) -> _Rows:
        """Return what many steps come to, as changes of rows by key.

        The database would look through the conversation's rows for each of the patches.
        """
        known: dict[str, PatchedRows] = {}
        for name, declared in self._declared.items():
            columns = {
                each.column for each in steps if isinstance(each, Patch) and each.table == name
            }
            known[name] = PatchedRows(declared)
            if columns:
                wanted = (*declared.key, *sorted(columns.difference(declared.key)))
                for row in row_statements.columns_of(
                    connection, tables[name], conversation_id, wanted
                ):
                    values = dict(zip(wanted, row, strict=True))
                    known[name].put(tuple(row[: len(declared.key)]), values)
        changed: _Rows = {name: {} for name in self._declared}
        for step in steps:
            if isinstance(step, Patch):
                for key in known[step.table].patch(step):
                    changed[step.table].setdefault(key, {}).update(step.values)
                continue
            for name, rows in step.items():
                for key, values in rows.items():
                    known[name].put(key, values)
                    changed[name].setdefault(key, {}).update(values)
        return changed

    def _upserts(
        self,
        dialect: Dialect,
        tables: Mapping[str, Table],
        conversation_id: UUID,
        batch: _Rows,
    ) -> Iterator[Bound]:
        for name, rows in batch.items():
            keys = self._declared[name].key
            # Rows that set the same columns share a statement.
            groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
            for key, values in rows.items():
                row = {"conversation_id": conversation_id, **dict(zip(keys, key, strict=True))}
                row |= stored(tables[name], values)
                groups.setdefault(tuple(sorted(values)), []).append(row)
            for columns, group in groups.items():
                yield row_statements.upsert(dialect, tables[name], columns, group)
