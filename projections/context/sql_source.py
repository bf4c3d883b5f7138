"""The rows of one conversation in a generation's table: what the builder reads, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table

from eventstore.events.codec import dumps
from eventstore.sql.dialect import Statement, cursor, dialect_of
from projections.compression.vector_search import Embedding
from projections.context.rows import CONTEXT_MESSAGES, ContextRow
from projections.context.search_memory import search_in_memory
from projections.context.source import Head, head_of
from projections.context.stored_rows import COLUMNS, StoredRow

__all__ = ["SqlRowSource"]

_SEARCHED = 500  # rows that a search without an index reads at a time


class SqlRowSource:
    """A `RowSource` over SQL; every query is a short range of an index."""

    def __init__(
        self,
        connection: Connection,
        table: Table,
        conversation_id: UUID,
        *,
        excluded: bool = False,
    ) -> None:
        """Read a generation's table, in the caller's transaction.

        Args:
            connection: In a transaction.
            table: The generation's ``context_messages``.
            conversation_id: The conversation.
            excluded: Whether rows that were kept out of the context count as shown.
        """
        self._connection = connection
        self._dialect = dialect_of(connection)
        self._cursor = cursor(connection)
        self._queries = _queries(table.name, excluded)
        self._conversation_id = self._dialect.from_id(conversation_id)

    def head(self) -> Head:
        """Return the system part, the summaries, and the oldest user row that is not hidden."""
        apart = sorted(self._rows(self._queries.apart), key=lambda row: row.key)
        return head_of(apart, self._rows(self._queries.oldest_user))

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""
        rows = self._rows(self._queries.newest_user)
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

    def since(self, version: int) -> list[ContextRow]:
        """Return the visible rows that stand after a version, in descending order."""
        return self._rows(self._queries.since, version=version)

    def rows_at(self, versions: Sequence[int]) -> list[ContextRow]:
        """Return the visible rows at these versions, in descending order."""
        listed = list(versions)
        some = dumps(listed) if self._dialect.is_sqlite else listed
        return self._rows(self._queries.at, versions=some)

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: tuple[int, int] | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[tuple[int, int], float]:
        """Return the groups that answer an intent best, with their scores; reads every row."""
        rows = self.newest(_SEARCHED)
        return search_in_memory(rows, intent, limit, until=until, embedding=embedding)

    def _rows(self, query: Statement, **parameters: Any) -> list[ContextRow]:
        bound = {"conversation_id": self._conversation_id, **parameters}
        self._cursor.execute(query.on(self._dialect), bound)
        return [StoredRow(row) for row in self._cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class _Queries:
    newest: Statement
    older: Statement
    since: Statement
    at: Statement
    apart: Statement
    oldest_user: Statement
    newest_user: Statement


@lru_cache(maxsize=64)
def _queries(table: str, excluded: bool) -> _Queries:
    hidden = "(hidden IS NULL OR hidden = 'excluded')" if excluded else "hidden IS NULL"
    shown = f"FROM {table} WHERE conversation_id = :conversation_id AND {hidden}"
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
    some = f"{window} AND version"
    listed = "(SELECT value FROM json_each(:versions))"
    return _Queries(
        newest=_select(f"{window} {backwards}"),
        older=_select(f"{window} AND (version, part) < (:version, :part) {backwards}"),
        since=_select(f"{some} > :version {down}"),
        at=_select(
            f"{some} IN {listed} {down}",
            f"{some} = ANY(:versions) {down}",
        ),
        # In no order: for its sake, SQLite would go through the whole conversation.
        apart=_select(f"{shown} AND {apart}"),
        oldest_user=_select(f"{shown} AND kind = 'user' {first} LIMIT 1"),
        newest_user=_select(f"{shown} AND kind = 'user' {last} LIMIT 1"),
    )


def _select(rest: str, postgresql: str | None = None) -> Statement:
    types = {column.name: column.type for column in CONTEXT_MESSAGES.columns}
    # As text, which keeps PostgreSQL's driver from parsing what may not be looked at.
    cast = [f"{name}::text" if types[name] == "json" else name for name in COLUMNS]
    return Statement(
        f"SELECT {', '.join(COLUMNS)} {rest}", f"SELECT {', '.join(cast)} {postgresql or rest}"
    )
