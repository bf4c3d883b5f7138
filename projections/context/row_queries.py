"""The SQL by which a request finds its rows: each query is a range of an index, in its order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Table

from eventstore.sql.backend import Backend
from projections.context.rows import COLUMNS, CONTEXT_MESSAGES
from projections.engine.quoting import said
from projections.engine.tables import storage_of

__all__ = ["Queries", "queries"]


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries of one table's rows, as the driver takes them."""

    newest: str
    older: str
    since: str
    shown_since: str
    at: str
    lasting: str
    beside: str
    apart: str
    oldest_user: str
    newest_users: str
    newest_error: str


@lru_cache(maxsize=64)
def queries(table: Table, excluded: bool, backend: Backend) -> Queries:
    """Return the queries of a generation's table; ``excluded`` shows what was kept out."""

    def select(rest: str) -> str:
        return backend.sql(f"SELECT {', '.join(columns)}, {_quoted(table)} {rest}")

    # As text, which keeps PostgreSQL's driver from parsing what may not be looked at.
    types = {column.name: column.type for column in CONTEXT_MESSAGES.columns}
    columns = [f"{name}::text" if types[name] == "json" else name for name in COLUMNS]

    hidden = "(hidden IS NULL OR hidden = 'excluded')" if excluded else "hidden IS NULL"
    shown = f"FROM {table.name} WHERE conversation_id = :conversation_id AND {hidden}"
    window = f"{shown} AND summarised_by IS NULL AND kind NOT IN ('system', 'notebook')"
    # Columns that are NULL in every row are named in the order too: PostgreSQL does not see that
    # they are constant, and would not recognise the order of the index.
    constant = "" if excluded else "hidden DESC, "
    down = "ORDER BY version DESC, part DESC"
    backwards = f"ORDER BY {constant}summarised_by DESC, version DESC, part DESC LIMIT :page"
    first = "ORDER BY version, part" if excluded else "ORDER BY hidden, version, part"
    last = f"ORDER BY {constant}version DESC, part DESC"
    apart = (
        "kind IN ('system', 'notebook', 'summary') AND (kind <> 'summary' OR summarised_by IS NULL)"
    )
    # In words that no index knows: by what is hidden, PostgreSQL goes through the conversation.
    why = "nullif(hidden, 'excluded')" if excluded else "hidden"
    lasting = (
        f"FROM {table.name} WHERE conversation_id = :conversation_id AND lasting < :version "
        f"AND coalesce({why}, CAST(summarised_by AS text)) IS NULL "
        "AND kind NOT IN ('system', 'notebook')"
    )
    some = f"{window} AND version"
    found = f"(SELECT DISTINCT version {some} = ANY(:versions)) e"
    # As an order and a limit: of max() and min(), PostgreSQL makes a walk through all rows.
    before = f"ORDER BY {constant}summarised_by DESC, version DESC LIMIT 1"
    after = before.replace(" DESC", "")
    beside = (
        f"SELECT version FROM {found} "  # noqa: S608
        f"UNION SELECT (SELECT version {some} < e.version {before}) FROM {found} "
        f"UNION SELECT (SELECT version {some} > e.version {after}) FROM {found}"
    )
    return Queries(
        newest=select(f"{window} {backwards}"),
        older=select(f"{window} AND (version, part) < (:version, :part) {backwards}"),
        since=select(f"{some} > :version {down}"),
        shown_since=select(f"{shown} AND version > :version {down} LIMIT :page"),
        at=select(f"{some} = ANY(:versions) {down}"),
        lasting=select(f"{lasting} ORDER BY lasting DESC LIMIT :page"),
        beside=backend.sql(beside),
        # In no order: for its sake, SQLite would go through the whole conversation.
        apart=select(f"{shown} AND {apart}"),
        oldest_user=select(f"{shown} AND kind = 'user' {first} LIMIT 1"),
        newest_users=select(f"{shown} AND kind = 'user' {last} LIMIT 2"),
        newest_error=select(f"{shown} AND kind = 'error' AND summarised_by IS NULL {last} LIMIT 1"),
    )


def _quoted(table: Table) -> str:
    """Return the SQL of the text that a row quotes, NULL if it quotes none."""
    storage = storage_of(table)
    if storage is None:
        return "NULL"
    owned = f"events.conversation_id = {table.name}.conversation_id"
    named = f"events.version = {table.name}.{storage.event}"
    text = said(table.name)
    return f"(SELECT {text} FROM events WHERE {owned} AND {named})"  # noqa: S608 - names of columns
