"""A generation's fold of one conversation: events in, merged row changes, statements out.

Folding, converting values and encoding texts hold no lock: everything to write is bound beforehand
(`bind`), so that the write transaction only runs statements.

Changes of the same row are merged first, so that a page of a thousand chunks writes its timeline
item once. While the tables have no rows of the conversation, patches are applied in memory.
Otherwise a patch may match rows that are only in the tables; changes merged before the patch are
then written before it.

A patch in memory costs only the rows that it matches, because a conversation may be retracted or
summarised thousands of times. Patches compare one column, so rows are indexed by its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Table

from eventstore.database import AnyConnection, Backend, Bound, backend_of, is_away
from eventstore.errors import KeyUnavailable
from eventstore.events import RecordedEvent
from projections.engine import heads
from projections.engine import tables as row_statements
from projections.engine.generations import Generation, is_gone
from projections.engine.heads import FoldHead
from projections.engine.projection import Change, Counter, Patch, Projection, Put, ReadTable, State
from projections.engine.tables import stored
from projections.errors import ProjectionFailed

__all__ = [
    "BoundFolds",
    "Fold",
    "PatchedRows",
    "RowBuffer",
    "begin",
    "blamed",
    "go_on",
    "is_own_fault",
]

Key = tuple[Any, ...]

_FEW = 4  # patches; for more, it pays to read the rows that they may match
_Rows = dict[str, dict[Key, dict[str, Any]]]


class PatchedRows:
    """Rows of one table by key, indexed by their values in the columns of patches."""

    __slots__ = ("_found", "_key", "rows")

    def __init__(self, declared: ReadTable) -> None:
        self.rows: dict[Key, dict[str, Any]] = {}
        self._key = declared.key
        self._found: dict[str, dict[int, dict[Key, None]]] = {}

    def put(self, key: Key, values: Mapping[str, Any]) -> None:
        """Set columns of a row; create the row if it does not exist."""
        row = self.rows.get(key)
        if row is None:
            self.rows[key] = dict(values)
        else:
            row.update(values)
        if self._found:
            self._note(key, values)

    def _note(self, key: Key, values: Mapping[str, Any]) -> None:
        for column, found in self._found.items():
            place = self._key.index(column) if column in self._key else None
            value = values.get(column) if place is None else key[place]
            if value is not None:
                found.setdefault(value, {})[key] = None

    def patch(self, patch: Patch) -> list[Key]:
        """Set columns of the rows that match; return their keys."""
        keys = list(self._matching(patch))
        if patch.only is not None:
            column, value = patch.only
            keys = [key for key in keys if self.rows[key].get(column) == value]
        for key in keys:
            self.put(key, patch.values)
        return keys

    def _matching(self, patch: Patch) -> Iterator[Key]:
        column, first, last = patch.column, patch.first, patch.last
        place = self._key.index(column) if column in self._key else None
        found = self._found.get(column)
        if found is None:
            found = self._found[column] = {}
            for key, row in self.rows.items():
                value = row.get(column) if place is None else key[place]
                if value is not None:
                    found.setdefault(value, {})[key] = None
        is_short = last - first < len(found)
        values = (
            range(first, last + 1)
            if is_short
            else [each for each in found if first <= each <= last]
        )
        for value in values:
            rows_of_value = found.get(value, {})
            # Rows that have a different value by now are removed here, once.
            for key in [
                key for key in rows_of_value if place is None and self.rows[key][column] != value
            ]:
                del rows_of_value[key]
            yield from rows_of_value


class RowBuffer:
    """The unwritten rows that a fold has changed, by table and key.

    ``fresh`` means that the tables have no rows of the conversation: the rows are then complete,
    and are inserted without looking for older ones.
    """

    def __init__(self, projection: Projection, *, fresh: bool) -> None:
        self._declared: dict[str, ReadTable] = {table.name: table for table in projection.tables}
        self._fresh = fresh
        self._earlier: list[_Rows | Patch] = []
        self._begin()

    def add(self, changes: Iterable[Change]) -> None:
        """Merge changes, in the order in which the fold returned them."""
        patched = self._patched
        for change in changes:
            if isinstance(change, Put):
                patched[change.table].put(change.key, change.values)
            elif self._fresh:
                patched[change.table].patch(change)
            else:
                self._earlier += [self._rows, change]
                self._begin()
                patched = self._patched

    def fill(self, counter: Counter) -> None:
        """Set the rows' token counts; see `Counting`."""
        for name, declared in self._declared.items():
            if (counting := declared.counting) is None:
                continue
            for step in (*self._earlier, self._rows):
                if not isinstance(step, Patch):
                    for values in step[name].values():
                        counting.fill(values, counter)
                elif step.table == name:
                    counting.fill(step.values, counter)

    def complete_rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table's rows with every column; columns never set are None."""
        declared = self._declared[table]
        blank = dict.fromkeys(column.name for column in declared.columns)
        return [
            blank | dict(zip(declared.key, key, strict=True)) | values
            for key, values in self._rows[table].items()
        ]

    def new_rows(self, table: str) -> Mapping[Key, Mapping[str, Any]]:
        """Return a table's rows by key, as made by a fold of the whole conversation."""
        return self._rows[table]

    def only_new(self, table: str, after: int) -> Mapping[Key, dict[str, Any]] | None:
        """Return the new rows of a table, if the fold has made no other change.

        None if anything else has changed: another table, or a row whose key does not begin with a
        version above ``after``.
        """
        if self._declared[table].key[:1] != ("version",):
            return None
        others = any(rows for name, rows in self._rows.items() if name != table)
        if self._earlier or others or any(key[0] <= after for key in self._rows[table]):
            return None
        return self._rows[table]

    def write(
        self, connection: AnyConnection, tables: Mapping[str, Table], conversation_id: UUID
    ) -> None:
        """Write the changes, in the caller's transaction, and clear the buffer."""
        for each in self.bind(connection, tables, conversation_id):
            each.run(connection)

    def bind(
        self, connection: AnyConnection, tables: Mapping[str, Table], conversation_id: UUID
    ) -> list[Bound]:
        """Return the statements that write the changes, in order, and clear the buffer.

        Only reads, in the caller's transaction: if there are many patches, the columns of the rows
        that they may match. The statements are valid until another process writes rows of the
        conversation.
        """
        backend = backend_of(connection)
        bound: list[Bound] = []
        if self._fresh:
            for name, rows in self._rows.items():
                if rows:
                    complete = [
                        {"conversation_id": conversation_id, **stored(tables[name], row)}
                        for row in self.complete_rows(name)
                    ]
                    bound.append(row_statements.insert(backend, tables[name], complete))
        else:
            steps: Sequence[_Rows | Patch] = (*self._earlier, self._rows)
            if len(self._earlier) > 2 * _FEW:
                steps = [self._replayed(connection, tables, conversation_id, steps)]
            for step in steps:
                if isinstance(step, Patch):
                    within = (step.column, step.first, step.last)
                    made = (backend, tables[step.table], conversation_id, within, step.values)
                    bound.append(row_statements.patch(*made, only=step.only))
                else:
                    bound += self._upserts(backend, tables, conversation_id, step)
        self._earlier = []
        self._begin()
        self._fresh = False
        return bound

    def _begin(self) -> None:
        self._patched = {name: PatchedRows(each) for name, each in self._declared.items()}
        self._rows: _Rows = {name: each.rows for name, each in self._patched.items()}

    def _replayed(
        self,
        connection: AnyConnection,
        tables: Mapping[str, Table],
        conversation_id: UUID,
        steps: Sequence[_Rows | Patch],
    ) -> _Rows:
        """Return the combined effect of many steps, as changes of rows by key.

        The database would search the conversation's rows for each of the patches.
        """
        known: dict[str, PatchedRows] = {}
        for name, declared in self._declared.items():
            patches = [each for each in steps if isinstance(each, Patch) and each.table == name]
            columns = {each.column for each in patches}
            columns.update(each.only[0] for each in patches if each.only is not None)
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
            for name, put in step.items():
                for key, values in put.items():
                    known[name].put(key, values)
                    changed[name].setdefault(key, {}).update(values)
        return changed

    def _upserts(
        self,
        backend: Backend,
        tables: Mapping[str, Table],
        conversation_id: UUID,
        batch: _Rows,
    ) -> Iterator[Bound]:
        for name, merged in batch.items():
            keys = self._declared[name].key
            # Rows that set the same columns share a statement.
            groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
            for key, values in merged.items():
                row = {"conversation_id": conversation_id, **dict(zip(keys, key, strict=True))}
                row |= stored(tables[name], values)
                groups.setdefault(tuple(sorted(values)), []).append(row)
            for columns, group in groups.items():
                yield row_statements.upsert(backend, tables[name], columns, group)


@dataclass(slots=True)
class Fold:
    """A generation's fold of one conversation, up to a version."""

    generation: Generation
    version: int
    state: State
    buffer: RowBuffer
    chain: bytes | None = None

    def feed(self, events: Sequence[RecordedEvent]) -> None:
        """Fold events, in order; events at or below the fold's version are skipped.

        Raises:
            ProjectionFailed: The projection's fold raised.
        """
        projection, add, state = self.generation.projection, self.buffer.add, self.state
        last: RecordedEvent | None = None
        if events and events[0].version <= self.version:
            events = [event for event in events if event.version > self.version]
        try:
            for event in events:
                state, changes = projection.fold(state, event)
                if changes:
                    add(changes)
                last = event
        except Exception as error:
            raise ProjectionFailed(projection.name, event.conversation_id, event.version) from error
        finally:
            self.state = state
            if last is not None:
                self.version, self.chain = last.version, last.chain

    def fill(self, counter: Counter, conversation_id: UUID) -> None:
        """Set the rows' token counts, before the rows are bound.

        Raises:
            ProjectionFailed: The fold's rows cannot be counted.
        """
        if any(table.counting for table in self.generation.projection.tables):
            with blamed(self.generation, conversation_id, self.version):
                self.buffer.fill(counter)


def is_own_fault(error: Exception) -> bool:
    """Whether the folded or written data caused an error, so that waiting or retrying cannot help.

    True for every error that is not known to come from the state of the database, from a store
    without keys, or from a cut-over. The key of one conversation may be unavailable for a while:
    the others must not wait for it.
    """
    if isinstance(error, KeyUnavailable):
        return error.lasting or error.passing
    return not is_away(error) and not is_gone(error)


def begin(generation: Generation) -> Fold:
    """Return the fold of a conversation before its first event."""
    projection: Projection = generation.projection
    return Fold(generation, 0, projection.initial(), RowBuffer(projection, fresh=True))


def go_on(head: FoldHead) -> Fold:
    """Return the fold of a conversation from its head, with the head's unsaved rows."""
    if head.version == 0:
        return begin(head.generation)
    buffer = RowBuffer(head.generation.projection, fresh=False)
    if head.unsaved is not None:
        table = head.generation.projection.tables[0].name
        buffer.add(Put(table, key, row) for key, row in head.unsaved.rows.items())
    return Fold(head.generation, head.version, head.state, buffer, head.chain)


@dataclass(frozen=True, slots=True)
class BoundFolds:
    """The statements that write rows, states and heads of folds of one conversation."""

    conversation_id: UUID
    _steps: Sequence[tuple[Generation, int, Sequence[Bound]]]

    @classmethod
    def of(
        cls, connection: AnyConnection, folds: Sequence[Fold], conversation_id: UUID
    ) -> BoundFolds:
        """Bind the folds' changes, in a read transaction; do not use the folds afterwards.

        Raises:
            ProjectionFailed: A fold's rows cannot be converted.
        """
        steps: list[tuple[Generation, int, Sequence[Bound]]] = []
        for fold in folds:
            generation = fold.generation
            with blamed(generation, conversation_id, fold.version):
                bound = fold.buffer.bind(connection, generation.tables, conversation_id)
            steps.append((generation, fold.version, bound))
        first = folds[0]
        with blamed(first.generation, conversation_id, first.version):
            reached = [FoldHead(each.generation, each.version, each.state) for each in folds]
            saved = heads.save(backend_of(connection), conversation_id, reached)
        return cls(conversation_id, [*steps, (first.generation, first.version, [saved])])

    def write(self, connection: AnyConnection) -> None:
        """Run the statements, in the caller's write transaction.

        Raises:
            ProjectionFailed: The database or its driver rejects a fold's rows.
        """
        for generation, version, statements in self._steps:
            with blamed(generation, self.conversation_id, version):
                for each in statements:
                    each.run(connection)


@contextmanager
def blamed(generation: Generation, conversation_id: UUID, version: int) -> Iterator[None]:
    """Raise `ProjectionFailed` for any error that the block's own data caused."""
    try:
        yield
    except ProjectionFailed:
        raise
    except Exception as error:
        if not is_own_fault(error):
            raise
        raise ProjectionFailed(generation.projection.name, conversation_id, version) from error
