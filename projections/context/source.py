"""The sources of the builder's rows: the protocol, and its SQL implementation.

`RowSource` is a protocol, so that building needs no database. `SqlRowSource` reads the rows of one
conversation from a generation's table: the newest in pages, and single rows by kind. It never reads
more rows than a window needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import Table

from eventstore.database import END, AnyConnection, Backend, backend_of, cursor
from eventstore.errors import RowDamaged
from projections.context.compression.search import Embedding
from projections.context.rows import (
    COLUMNS,
    CONTEXT_MESSAGES,
    ContextRow,
    StoredRow,
    unsaved_rows,
)
from projections.context.search_tables import search_in_memory
from projections.engine.heads import FoldHead, NotSaved
from projections.engine.quoting import quoted_text
from projections.engine.tables import storage_of

__all__ = ["RENDERED_FIRST", "ContextHead", "RowSource", "SqlRowSource"]
__all__ += ["head_of", "pending"]


RENDERED_FIRST = ("system", "notebook")
"""Kinds of rows that are sent before the history, wherever they are in it, summarised or not."""

_SEARCHED = 500  # rows that a search without an index reads at a time

_NUMBERS = [COLUMNS.index(name) for name in ("version", "part", "tokens")]


@dataclass(frozen=True, slots=True)
class ContextHead:
    """The rows with which every request begins; only rows whose ``hidden`` is None.

    Rows of the system part, the notebook and the first user message are included even if a summary
    covers them. There are several system rows if one continues another, and in erased histories;
    they are in order of version. ``summaries`` are those not covered by a later summary, in the
    order of their places.
    """

    system: tuple[ContextRow, ...] = ()
    notebook: ContextRow | None = None
    first_user: ContextRow | None = None
    summaries: tuple[ContextRow, ...] = ()


def head_of(apart: Sequence[ContextRow], users: Sequence[ContextRow]) -> ContextHead:
    """Return the head, given the rows of its kinds and the user rows, in ascending order."""
    notebooks = [row for row in apart if row.kind == "notebook"]
    return ContextHead(
        system=tuple(row for row in apart if row.kind == "system"),
        notebook=notebooks[-1] if notebooks else None,
        first_user=users[0] if users else None,
        summaries=tuple(row for row in apart if row.kind == "summary"),
    )


def pending(users: Sequence[ContextRow], error: ContextRow | None) -> ContextRow | None:
    """Return the newest error, if it is newer than the second-latest user message.

    Args:
        users: The two newest user rows, in either order; fewer if there are fewer.
        error: The newest error row.
    """
    before = min(users, key=lambda row: row.key).key if len(users) > 1 else (0, 0)
    return error if error is not None and error.key > before else None


class RowSource(Protocol):
    """The rows of one conversation, as of one version."""

    def head(self) -> ContextHead:
        """Return the system part, the summaries, and the oldest user row that is not hidden."""

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""

    def latest_error(self) -> ContextRow | None:
        """Return the newest visible error row, if newer than the second-latest user row."""

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order of (version, part), read in pages of ``page``.

        Excludes the kinds ``system`` and ``notebook``, and rows that a summary covers.
        """

    def rows_at(self, versions: Sequence[int]) -> Sequence[ContextRow]:
        """Return the rows at these versions that `newest` yields, in the same order."""

    def lasting(self, before: int, limit: int) -> Sequence[ContextRow]:
        """Return the newest visible rows before a version that contain rules or identifiers."""

    def rows_around(self, versions: Sequence[int]) -> Sequence[ContextRow]:
        """Return the rows at these versions, and at the next version on either side of each.

        Considers only rows that `newest` yields, and returns them in the same order.
        """

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: tuple[int, int] | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[tuple[int, int], float]:
        """Return the keys and scores, above 0.0, of the groups that answer an intent best.

        Args:
            intent: The text to search for: that of a user message.
            limit: The most groups to return.
            until: Ignore everything after this key.
            embedding: Search by meaning as well.
        """


@dataclass(frozen=True, slots=True)
class _Queries:
    """The queries of one table's rows, in the driver's SQL."""

    newest: str
    older: str
    shown_since: str
    at: str
    lasting: str
    beside: str
    apart: str
    oldest_user: str
    newest_users: str
    newest_error: str


@lru_cache(maxsize=64)
def _queries_of(table: Table, excluded: bool, backend: Backend) -> _Queries:
    """Return the queries of a generation's table.

    With ``excluded``, rows that were kept out of the context are included. Each query is a range of
    an index, in its order.
    """

    def select(rest: str) -> str:
        return backend.sql(f"SELECT {', '.join(columns)}, {_quoted(table)} {rest}")

    # As text, so that PostgreSQL's driver does not parse JSON that may never be read.
    types = {column.name: column.type for column in CONTEXT_MESSAGES.columns}
    columns = [f"{name}::text" if types[name] == "json" else name for name in COLUMNS]

    hidden = "(hidden IS NULL OR hidden = 'excluded')" if excluded else "hidden IS NULL"
    shown = f"FROM {table.name} WHERE conversation_id = :conversation_id AND {hidden}"
    window = f"{shown} AND summarised_by IS NULL AND kind NOT IN ('system', 'notebook')"
    # The order includes columns that are NULL in every row: PostgreSQL does not see that they are
    # constant, and would not recognise the order of the index.
    constant = "" if excluded else "hidden DESC, "
    down = "ORDER BY version DESC, part DESC"
    backwards = f"ORDER BY {constant}summarised_by DESC, version DESC, part DESC LIMIT :page"
    first = "ORDER BY version, part" if excluded else "ORDER BY hidden, version, part"
    last = f"ORDER BY {constant}version DESC, part DESC"
    apart = (
        "kind IN ('system', 'notebook', 'summary') AND (kind <> 'summary' OR summarised_by IS NULL)"
    )
    # An expression without an index: with the index on ``hidden``, PostgreSQL would scan the whole
    # conversation.
    why = "nullif(hidden, 'excluded')" if excluded else "hidden"
    lasting = (
        f"FROM {table.name} WHERE conversation_id = :conversation_id AND lasting < :version "
        f"AND coalesce({why}, CAST(summarised_by AS text)) IS NULL "
        "AND kind NOT IN ('system', 'notebook')"
    )
    some = f"{window} AND version"
    found = f"(SELECT DISTINCT version {some} = ANY(:versions)) e"
    # With an order and a limit: for max() and min(), PostgreSQL scans all rows.
    before = f"ORDER BY {constant}summarised_by DESC, version DESC LIMIT 1"
    after = before.replace(" DESC", "")
    beside = (
        f"SELECT version FROM {found} "  # noqa: S608
        f"UNION SELECT (SELECT version {some} < e.version {before}) FROM {found} "
        f"UNION SELECT (SELECT version {some} > e.version {after}) FROM {found}"
    )
    return _Queries(
        newest=select(f"{window} {backwards}"),
        older=select(f"{window} AND (version, part) < (:version, :part) {backwards}"),
        shown_since=select(f"{shown} AND version > :version {down} LIMIT :page"),
        at=select(f"{some} = ANY(:versions) {down}"),
        lasting=select(f"{lasting} ORDER BY lasting DESC LIMIT :page"),
        beside=backend.sql(beside),
        # Without an order, for which SQLite would scan the whole conversation.
        apart=select(f"{shown} AND {apart}"),
        oldest_user=select(f"{shown} AND kind = 'user' {first} LIMIT 1"),
        newest_users=select(f"{shown} AND kind = 'user' {last} LIMIT 2"),
        newest_error=select(f"{shown} AND kind = 'error' AND summarised_by IS NULL {last} LIMIT 1"),
    )


def _quoted(table: Table) -> str:
    """Return the SQL of the text that a row quotes; NULL if it quotes none."""
    storage = storage_of(table)
    if storage is None:
        return "NULL"
    owned = "events.conversation_id = :conversation_id"
    named = f"events.version = {table.name}.{storage.event}"
    text = quoted_text(table.name)
    return f"(SELECT {text} FROM events WHERE {owned} AND {named})"  # noqa: S608 - names of columns


class SqlRowSource:
    """A `RowSource` over SQL; every query is a short range of an index."""

    def __init__(
        self,
        connection: AnyConnection,
        table: Table,
        conversation_id: UUID,
        *,
        excluded: bool = False,
        head: FoldHead | None = None,
    ) -> None:
        """Read a generation's table, in the caller's transaction.

        Args:
            connection: A connection in a transaction.
            table: The generation's ``context_messages``.
            conversation_id: The conversation.
            excluded: Whether to include rows that were kept out of the context.
            head: The conversation's head. If it has unsaved rows, `shown_since` includes them, and
                other methods raise `NotSaved` if their result might contain them.
        """
        unsaved = None if head is None else head.unsaved
        self._saved = END if unsaved is None else unsaved.saved[0]
        self._unsaved = {} if unsaved is None else unsaved.rows
        self._backend = backend_of(connection)
        self._row_connection = connection
        self._queries = _queries_of(table, excluded, self._backend)
        self._conversation_id = self._backend.from_id(conversation_id)

    @cached_property
    def _cursor(self) -> Any:
        return cursor(self._row_connection)

    def head(self) -> ContextHead:
        """Return the system part, the summaries, and the oldest user row that is not hidden."""
        first = self.oldest_user()
        return head_of(self.apart(), () if first is None else (first,))

    def apart(self) -> list[ContextRow]:
        """Return system part, notebook and summaries in effect, in ascending order."""
        return sorted(self._rows(self._queries.apart), key=lambda row: row.key)

    def oldest_user(self) -> ContextRow | None:
        """Return the oldest user row that is not hidden."""
        rows = self._rows(self._queries.oldest_user)
        return rows[0] if rows else None

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""
        rows = self.latest_users()
        return rows[0] if rows else None

    def latest_users(self) -> list[ContextRow]:
        """Return the two newest user rows that are not hidden, newest first."""
        return self._rows(self._queries.newest_users)

    def latest_error(self) -> ContextRow | None:
        """Return the newest visible error row, if newer than the second-latest user row."""
        error = self.newest_error()
        return None if error is None else pending(self.latest_users(), error)

    def newest_error(self) -> ContextRow | None:
        """Return the newest visible error row."""
        rows = self._rows(self._queries.newest_error)
        return rows[0] if rows else None

    def newest(self, page: int, before: tuple[int, int] | None = None) -> Iterator[ContextRow]:
        """Yield the visible rows, or those before a key, in descending order, read in pages."""
        rows = self.page(page, before)
        while rows:
            yield from rows
            if len(rows) < page:
                return
            rows = self.page(page, rows[-1].key)

    def page(self, size: int, before: tuple[int, int] | None = None) -> list[ContextRow]:
        """Return the newest visible rows, or those before a key, in descending order."""
        if before is None:
            return self._rows(self._queries.newest, page=size)
        version, part = before
        reach = END if any(key < before for key in self._unsaved) else 0
        return self._rows(self._queries.older, reach, page=size, version=version, part=part)

    def shown_since(self, version: int, limit: int) -> list[ContextRow]:
        """Return the rows of every kind after a version that are not hidden, in descending order.

        Includes rows that a summary covers.
        """
        new: list[ContextRow] = [*unsaved_rows(self._unsaved, version)]
        if version >= self._saved or len(new) >= limit:
            return new[:limit]
        rest = limit - len(new)
        return new + self._rows(self._queries.shown_since, 0, version=version, page=rest)

    def rows_at(self, versions: Sequence[int]) -> list[ContextRow]:
        """Return the visible rows at these versions, in descending order."""
        listed = list(versions)
        some = self._backend.array(listed)
        return self._rows(self._queries.at, max(listed, default=0), versions=some)

    def lasting(self, before: int, limit: int) -> list[ContextRow]:
        """Return the newest visible rows before a version that contain rules or identifiers."""
        return self._rows(self._queries.lasting, before - 1, version=before, page=limit)

    def rows_around(self, versions: Sequence[int]) -> list[ContextRow]:
        """Return the rows at these versions, and at the next version on either side of each."""
        if self._saved < END:
            raise NotSaved
        bound = {"conversation_id": self._conversation_id}
        self._cursor.execute(
            self._queries.beside, bound | {"versions": self._backend.array(list(versions))}
        )
        return self.rows_at(sorted({version for (version,) in self._cursor.fetchall() if version}))

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: tuple[int, int] | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[tuple[int, int], float]:
        """Return the scores of the groups that answer an intent best; reads every row."""
        rows = self.newest(_SEARCHED)
        return search_in_memory(rows, intent, limit, until=until, embedding=embedding)

    def _rows(self, query: str, reach: int = END, **parameters: Any) -> list[ContextRow]:
        """Return the rows of a query, none of which can be after the version ``reach``."""
        if reach > self._saved:
            raise NotSaved
        bound = {"conversation_id": self._conversation_id, **parameters}
        self._cursor.execute(query, bound)
        rows = self._cursor.fetchall()
        # SQLite accepts any value in any column.
        if not {type(row[place]) for row in rows for place in _NUMBERS} <= {int}:
            raise RowDamaged("not a number")
        return [StoredRow(row) for row in rows]
