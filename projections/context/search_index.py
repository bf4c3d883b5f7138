"""Catch-up of the search index with the words of every visible group of one conversation.

The first use indexes all rows; later uses read only new rows and those that may have changed:
groups that waited for a result, and failures that a retry may have superseded. After a retraction
or a summary, which may affect any row, every group is compared, and those that differ are written.
All of these go through the rows from the newest to the oldest, in pieces.
Texts are split into terms in read transactions. Write transactions hold the lock on the
projection's head, so that only one writer works on a conversation, and check that the rows have not
changed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import merge
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, text

from eventstore.database import AnyConnection, Id, Statement
from eventstore.erasure.erase import erasure_count, erasure_lock
from eventstore.events import BranchSwitch, Erasure, Retraction, Summary
from projections.context.rows import ContextRow, Key
from projections.context.search_tables import (
    VERSION,
    Document,
    documents,
    fingerprint,
    indexed_terms,
    prefix_of,
)
from projections.context.source import SqlRowSource
from projections.context.state import movable
from projections.engine import heads
from projections.engine.generations import Generation

__all__ = ["IndexCatchUp", "covers", "folded_to", "is_indexed"]

_Mark = tuple[bytes, bool]
"""The fingerprint of a document, and whether it is unsettled."""
_key = itemgetter(0)
_LAST: Key = (2**63 - 1, 0)  # above every key
_PAGE = 500
_LARGEST_PIECE = 500_000  # characters of texts to index in one transaction
_ATTEMPTS = 3  # after which `save` looks again under the lock
_LARGEST = 500_000  # bytes of the distinct words of one row; PostgreSQL refuses 1 MB
_REACHING = (Retraction.type, BranchSwitch.type, Summary.type, Erasure.type)

_HEAD = Statement("SELECT source, version FROM search_heads WHERE conversation_id = :cid")
_UNSETTLED = Statement(
    "SELECT 1 FROM search_rows WHERE conversation_id = :cid AND unsettled LIMIT 1"
)
_REACHED = Statement(
    "SELECT 1 FROM events WHERE conversation_id = :cid AND version > :after "
    "AND type = ANY(:types) LIMIT 1"
)
_FOLDED = Statement(
    "SELECT version FROM projection_heads WHERE conversation_id = :cid "
    "AND projection = :projection AND generation = :generation"
)
_SET_HEAD = text(
    "INSERT INTO search_heads (conversation_id, source, version, documents, length) "
    "VALUES (:cid, :source, :version, :documents, :length) ON CONFLICT (conversation_id) DO UPDATE "
    "SET source = excluded.source, version = excluded.version, "
    "documents = excluded.documents, length = excluded.length"
).bindparams(bindparam("cid", type_=Id))
_TOTALS = text(
    "SELECT count(*), coalesce(sum(length), 0) FROM search_rows "
    "WHERE conversation_id = :cid AND piece = 0"
).bindparams(bindparam("cid", type_=Id))
_TOTALS_BEFORE = text(
    "SELECT documents, length FROM search_heads WHERE conversation_id = :cid"
).bindparams(bindparam("cid", type_=Id))
_IS_THERE = text(
    "SELECT 1 FROM search_rows "
    "WHERE conversation_id = :cid AND version = :version AND part = :part AND piece = 0"
).bindparams(bindparam("cid", type_=Id))
# With 0 all rows; otherwise those that are new since a version, or may have changed.
_HELD = text(
    "SELECT version, part, fingerprint, unsettled FROM search_rows "
    "WHERE conversation_id = :cid AND piece = 0 AND (version > :after OR version IN "
    "(SELECT version FROM search_rows WHERE conversation_id = :cid AND unsettled)) "
    "AND (version, part) < (:version, :part) ORDER BY version DESC, part DESC LIMIT :page"
).bindparams(bindparam("cid", type_=Id))
_DELETE = text(
    "DELETE FROM search_rows WHERE conversation_id = :cid AND version = :version AND part = :part"
).bindparams(bindparam("cid", type_=Id))
_COLUMNS = "conversation_id, version, part, piece, length, unsettled, fingerprint, words"
_VALUES = ":cid, :version, :part, :piece, :length, :unsettled, :fingerprint"
_INSERT = {
    "sqlite": f"INSERT INTO search_rows ({_COLUMNS}) VALUES ({_VALUES}, :words)",  # noqa: S608
    "postgresql": f"INSERT INTO search_rows ({_COLUMNS}, repeated) "  # noqa: S608
    f"VALUES ({_VALUES}, array_to_tsvector(CAST(:words AS text[])), CAST(:repeated AS jsonb))",
}


def is_indexed(connection: AnyConnection, conversation_id: UUID) -> bool:
    """Whether a conversation has been indexed, however far; the index's tables must exist."""
    return bool(_HEAD.rows(connection, cid=conversation_id))


def covers(
    connection: AnyConnection,
    generation: Generation,
    conversation_id: UUID,
    until: Key,
    unsaved: Iterable[Key] = (),
) -> bool:
    """Whether the index has all rows up to a key as they are now; later ones may be missing.

    Its tables must exist.

    Args:
        connection: A connection in a transaction.
        generation: The generation of the projection ``context``.
        conversation_id: The conversation.
        until: The key.
        unsaved: The keys of rows that the generation's table does not have yet.
    """
    found = _HEAD.rows(connection, cid=conversation_id)
    if not found or found[0][0] != _source(generation):
        return False
    version = found[0][1]
    if version == folded_to(connection, generation, conversation_id) and not unsaved:
        return True
    if any(version < key[0] <= until[0] for key in unsaved):
        return False
    values = {"cid": conversation_id, "after": version}
    name = generation.tables["context_messages"].name
    return not (
        _UNSETTLED.rows(connection, cid=conversation_id)
        or _reached(connection, conversation_id, version)
        or _between(name).rows(connection, until=until[0], **values)
    )


@cache
def _between(table: str) -> Statement:
    return Statement(
        f"SELECT 1 FROM {table} WHERE conversation_id = :cid "  # noqa: S608 - a generation's name
        "AND version > :after AND version <= :until LIMIT 1"
    )


@dataclass(frozen=True, slots=True)
class _IndexStatus:
    """The inputs of an index: how far the rows are folded, the index's head, and erasures."""

    folded: int | None
    head: tuple[str, int] | None
    erasures: int


class IndexCatchUp:
    """Brings one conversation's index up to date, piece by piece.

    `look` finds a piece and splits its texts into terms, without writing; `save` then writes it,
    unless the rows have changed in between.

    Attributes:
        done: Whether the index is up to date.
    """

    def __init__(self, generation: Generation, conversation_id: UUID) -> None:
        self.done = False
        self._generation = generation
        self._conversation_id = conversation_id
        self._expected: _IndexStatus | None = None
        self._before: Key | None = None
        self._gone: list[Key] = []
        self._new: list[dict[str, Any]] = []
        self._adds = self._last = False
        self._missed = 0

    def look(self, connection: Connection) -> None:
        """Find the next piece that the index lacks; needs a transaction with one snapshot."""
        cid, stands = self._conversation_id, self._status(connection)
        if stands != self._expected:
            self._expected, self._before = stands, None
        source = SqlRowSource(connection, self._generation.tables["context_messages"], cid)
        head, own = stands.head, _source(self._generation)
        folded = stands.folded
        self.done = folded is None or head == (own, folded)
        if folded is None or self.done:
            return
        from_start = head is None or head[0] != own or _reached(connection, cid, head[1])
        after = 0 if head is None or from_start else head[1]
        page = min(2 * max(folded - after, 1), _PAGE)
        indexed: Iterable[tuple[Key, _Mark]] = _indexed(
            connection, cid, after, self._before or _LAST
        )
        unsettled: list[int] = []
        if after:
            indexed = [*indexed]
            unsettled = sorted({version for (version, _), _ in indexed if version <= after})
        [at] = heads.of(connection, [self._generation], cid)
        found = documents(self._rows(source, after, page, unsettled), movable(at.state))
        self._adds = self._before is None and bool(after)
        self._take(connection.dialect.name, found, indexed)

    def _rows(
        self, source: SqlRowSource, after: int, page: int, unsettled: Sequence[int]
    ) -> Iterator[ContextRow]:
        """Yield the rows after a version, then older unsettled ones; only those not yet taken."""
        before = self._before
        if before is None or before[0] > after:
            yield from takewhile(lambda row: row.version > after, source.newest(page, before))
        while unsettled:
            some, unsettled = unsettled[-_PAGE:], unsettled[:-_PAGE]
            yield from (row for row in source.rows_at(some) if before is None or row.key < before)

    def save(self, connection: Connection) -> None:
        """Write the piece that was found, in the caller's write transaction.

        If the rows have changed since, write nothing: call `look` again. After some attempts this
        method looks itself, under the lock that excludes other writers.
        """
        cid = self._conversation_id
        erasure_lock(connection, cid)
        heads.lock(connection, [self._generation], cid)
        if self._status(connection) != self._expected:
            self._missed += 1
            if self._missed < _ATTEMPTS:
                return
            self.look(connection)
        if self.done or self._expected is None:
            return
        gained = self._gained(connection) if self._last and self._adds else None
        _delete(connection, cid, self._gone)
        _insert(connection, self._new)
        if self._last:
            own, folded = _source(self._generation), self._expected.folded
            totals = gained or tuple(connection.execute(_TOTALS, {"cid": cid}).one())
            values = {"documents": totals[0], "length": totals[1]}
            connection.execute(_SET_HEAD, {"cid": cid, "source": own, "version": folded, **values})
            self.done = True

    def _gained(self, connection: Connection) -> tuple[int, int] | None:
        """Return the totals after a piece that only adds rows; None to count them all.

        So it is not enough to add if a part of the rows is there already: from an attempt that was
        interrupted, or from another process that is at work.
        """
        cid = self._conversation_id
        for version, part in self._gone:
            values = {"cid": cid, "version": version, "part": part}
            if connection.execute(_IS_THERE, values).first() is not None:
                return None
        documents, length = connection.execute(_TOTALS_BEFORE, {"cid": cid}).one()
        lengths = [row["length"] for row in self._new if row["piece"] == 0]
        return documents + len(lengths), length + sum(lengths)

    def _status(self, connection: Connection) -> _IndexStatus:
        cid = self._conversation_id
        # Read the erasures first, so that an erasure during the read is noticed in the end.
        erasures = erasure_count(connection, [cid])
        found = _HEAD.rows(connection, cid=cid)
        version = folded_to(connection, self._generation, cid)
        return _IndexStatus(version, (found[0][0], found[0][1]) if found else None, erasures)

    def _take(
        self, dialect: str, found: Iterable[Document], indexed: Iterable[tuple[Key, _Mark]]
    ) -> None:
        """Compute the changes for new or changed documents, and for indexed ones that are gone.

        Both are in descending order. Stops after a piece, and goes on behind it when called again.
        """
        self._gone, self._new, size = [], [], 0
        cid = self._conversation_id
        for key, document, mark in _paired(found, indexed):
            self._adds = self._adds and mark is None
            if document is not None:
                made = fingerprint(cid, document.text)
                if mark == (made, document.unsettled):
                    continue
                self._new += _rows(dialect, cid, document, made)
                size += len(document.text)
            # Deleted before it is written: another process may have written it since.
            self._gone.append(key)
            if max(len(self._new), len(self._gone)) >= _PAGE or size >= _LARGEST_PIECE:
                self._before, self._last = key, False
                return
        self._last = True


def _paired(
    found: Iterable[Document], indexed: Iterable[tuple[Key, _Mark]]
) -> Iterator[tuple[Key, Document | None, _Mark | None]]:
    """Yield each key in descending order, with its document and its mark in the index, if any."""
    documents = ((document.key, document, None) for document in found)
    marks = ((key, None, mark) for key, mark in indexed)
    both: Iterator[tuple[Key, Document | None, _Mark | None]]
    both = merge(documents, marks, key=_key, reverse=True)
    for key, same in groupby(both, key=_key):
        (_, document, mark), *rest = same
        yield key, document, rest[0][2] if rest else mark


def _source(generation: Generation) -> str:
    return f"{generation.tables['context_messages'].name} {VERSION}"


def folded_to(
    connection: AnyConnection, generation: Generation, conversation_id: UUID
) -> int | None:
    """Return the version up to which a conversation is folded in a generation; None if not yet."""
    own = {"projection": generation.projection.name, "generation": generation.number}
    found = _FOLDED.rows(connection, cid=conversation_id, **own)
    return int(found[0][0]) if found else None


def _reached(connection: AnyConnection, conversation_id: UUID, after: int) -> bool:
    """Whether an event since a version may have changed any row."""
    found = _REACHED.rows(connection, cid=conversation_id, after=after, types=list(_REACHING))
    return bool(found)


def _indexed(
    connection: Connection, conversation_id: UUID, after: int, before: Key
) -> Iterator[tuple[Key, _Mark]]:
    """Yield the marks of indexed documents before a key, in descending order, read in pages."""
    while True:
        place = {"after": after, "version": before[0], "part": before[1], "page": _PAGE}
        rows = connection.execute(_HELD, {"cid": conversation_id, **place}).all()
        for version, part, mark, unsettled in rows:
            yield (version, part), (bytes(mark), bool(unsettled))
        if len(rows) < _PAGE:
            return
        before = (rows[-1].version, rows[-1].part)


def _rows(
    dialect: str, conversation_id: UUID, document: Document, mark: bytes
) -> Iterator[dict[str, Any]]:
    version, part = document.key
    listed = list(indexed_terms(document.text))
    row = {
        "cid": conversation_id,
        "version": version,
        "part": part,
        "piece": 0,
        "length": len(listed),
        "unsettled": document.unsettled,
        "fingerprint": mark,
    }
    counts = Counter(listed)
    if dialect == "sqlite":
        yield {**row, "words": " ".join(f"{term}={count}" for term, count in counts.items())}
        return
    prefix = prefix_of(conversation_id)
    for piece, some in enumerate(_pieces(list(counts), len(prefix))):
        repeated = {term: counts[term] for term in some if counts[term] > 1}
        words = [prefix + term for term in some]
        fields = {"words": words, "repeated": json.dumps(repeated, ensure_ascii=False)}
        yield {**row, "piece": piece, **fields}


def _pieces(distinct: list[str], prefix: int) -> Iterator[list[str]]:
    """Yield the terms in lists, one for each row; a document without terms has a row too."""
    piece: list[str] = []
    size = 0
    for term in distinct:
        size += prefix + len(term.encode())
        if size > _LARGEST:
            yield piece
            piece, size = [], prefix + len(term.encode())
        piece.append(term)
    yield piece


def _insert(connection: Connection, rows: list[dict[str, Any]]) -> None:
    if rows:
        statement = text(_INSERT[connection.dialect.name])
        connection.execute(statement.bindparams(bindparam("cid", type_=Id)), rows)


def _delete(connection: Connection, conversation_id: UUID, keys: Iterable[tuple[int, int]]) -> None:
    rows = [{"cid": conversation_id, "version": version, "part": part} for version, part in keys]
    if rows:
        connection.execute(_DELETE, rows)
