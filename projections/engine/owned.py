"""Whose a row is: columns that the database fills from the conversation, and indexes over them.

A fold knows events alone, and no event says whose its conversation is; the row of the conversation
does, for good. So the database itself copies the owner into each row that is written, whichever way
it comes in, and a list of one user's rows is read from an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnClause, column

from eventstore.sql.types import SafeText

__all__ = ["TENANT", "USER", "OwnerColumns", "fills_owner"]

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
            *fills_owner(table, dialect),
            *(
                f"CREATE INDEX ix_{table}_beside_{number} ON {table} ({', '.join(columns)})"
                for number, columns in enumerate(self.indexes)
            ),
        )


def fills_owner(table: str, dialect: str) -> Sequence[str]:
    """Return the SQL of the trigger that fills the owner's columns of new rows."""
    if dialect == "sqlite":
        fill = f"UPDATE {table} SET (tenant_id, user_id) = ({_OWNER}) WHERE rowid = new.rowid"  # noqa: S608 - names of tables
        return (f"CREATE TRIGGER {table}_owner AFTER INSERT ON {table} BEGIN {fill}; END",)
    fill = f"{_OWNER.replace(' FROM', ' INTO new.tenant_id, new.user_id FROM')}; RETURN new"
    function = f"CREATE FUNCTION {table}_beside() RETURNS trigger LANGUAGE plpgsql"
    trigger = f"CREATE TRIGGER {table}_owner BEFORE INSERT ON {table}"
    return (
        f"{function} AS $$ BEGIN {fill}; END $$",
        f"{trigger} FOR EACH ROW EXECUTE FUNCTION {table}_beside()",
    )
