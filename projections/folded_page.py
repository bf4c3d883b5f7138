"""A page of a rebuild: conversations that were folded anew, written together.

A reader catches up one conversation, row by row; a rebuild has thousands. Their rows and heads are
bound before the transaction begins, since only one process can write to SQLite, and then go in
with a statement a table (`row_statements.load`). The result is that of `folds.BoundFolds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Table

from eventstore.sql.dialect import Dialect
from projections import heads, row_statements
from projections.folds import Fold
from projections.heads import BoundHead, Head

__all__ = ["AlreadyFolded", "FoldedPage"]


class AlreadyFolded(Exception):
    """Somebody else has folded a conversation of the page meanwhile: nothing of it may be kept."""


@dataclass(frozen=True, slots=True)
class FoldedPage:
    """Heads and rows of many conversations, as the driver takes them."""

    _heads: Sequence[BoundHead]
    _rows: Mapping[Table, row_statements.NewRows]

    @classmethod
    def of(cls, dialect: Dialect, folded: Mapping[UUID, Sequence[Fold]]) -> FoldedPage:
        """Bind folds that began with the first event; by conversation, in order of id."""
        reached: list[BoundHead] = []
        for owner, folds in folded.items():
            standing = [Head(fold.generation, fold.version, fold.state) for fold in folds]
            reached += heads.bind(dialect, owner, standing)
        bound = {}
        for of_generation in zip(*folded.values(), strict=True):
            for name, table in of_generation[0].generation.tables.items():
                made = {
                    owner: fold.buffer.new_rows(name)
                    for owner, fold in zip(folded, of_generation, strict=True)
                }
                bound[table] = row_statements.bind_new(table, dialect, made)
        return cls(reached, bound)

    def write(self, connection: Connection) -> None:
        """Write the page, in the caller's transaction, which has the erasure's locks.

        Raises:
            AlreadyFolded: Some of it was there; the transaction must be rolled back.
        """
        # The heads go first: whoever inserts them is alone with the conversations.
        if not heads.insert(connection, self._heads):
            raise AlreadyFolded
        for table, rows in self._rows.items():
            row_statements.load(connection, table, rows)
