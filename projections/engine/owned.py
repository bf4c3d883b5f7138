"""Whose a row is: columns that the database fills from the conversation, and indexes over them.

A fold knows events alone, and no event says whose its conversation is; the row of the conversation
does, for good. So the database itself copies the owner into each row that is written, whichever way
it comes in, and a list of one user's rows is read from an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnClause, column

from eventstore.sql.backend import backend_named
from eventstore.sql.types import SafeText

__all__ = ["TENANT", "USER", "OwnerColumns"]

TENANT: ColumnClause[str | None] = column("tenant_id", SafeText)
USER: ColumnClause[str | None] = column("user_id", SafeText)

_OWNER = "SELECT tenant_id, user_id FROM conversations WHERE conversation_id = new.conversation_id"


@dataclass(frozen=True, slots=True)
class OwnerColumns:
    """Rows that know their tenant and user.

    Attributes:
        indexes: Lists of columns, each indexed as it stands, for reading across conversations.
    """

    indexes: tuple[tuple[str, ...], ...]

    def made(self, table: str, dialect: str) -> Sequence[str]:
        """Return the SQL that adds the columns, the trigger that fills them, and the indexes."""
        return (
            *(f"ALTER TABLE {table} ADD COLUMN {name} TEXT" for name in ("tenant_id", "user_id")),
            *backend_named(dialect).fills(table, ("tenant_id", "user_id"), _OWNER),
            *(
                f"CREATE INDEX ix_{table}_beside_{number} ON {table} ({', '.join(columns)})"
                for number, columns in enumerate(self.indexes)
            ),
        )

    def marked(self, table: str, dialect: str) -> None:
        """Rows that come together are filled as any others."""
