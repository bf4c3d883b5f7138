"""Catch-up of the index: it comes to hold the words of every visible group of one conversation.

First use indexes what is there; later uses read only rows that came since, and those that could
have changed: groups that waited for a result, failures that a retry has made up for. After a
retraction or a summary, which reach anywhere, every group is looked at, and those that differ are
written. The caller has caught up the projection in the same transaction, whose lock on the head
keeps two writers of one conversation apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, select, text

from eventstore.events import Erasure, Retraction, Summary
from eventstore.sql.schema import metadata_for
from eventstore.sql.types import Id
from projections.context.search_tables import prefix_of
from projections.context.search_terms import (
    VERSION,
    Document,
    documents,
    fingerprint,
    indexed_terms,
)
from projections.context.sql_source import SqlRowSource
from projections.generations import Generation

__all__ = ["bring_up", "is_current"]

_PAGE = 500
_LARGEST = 500_000  # bytes of the distinct words of one row; PostgreSQL refuses 1 MB
_REACHING = (Retraction.type, Summary.type, Erasure.type)

_HEAD = text("SELECT source, version FROM search_heads WHERE conversation_id = :cid").bindparams(
    bindparam("cid", type_=Id)
)
_SET_HEAD = text(
    "INSERT INTO search_heads (conversation_id, source, version) VALUES (:cid, :source, :version) "
    "ON CONFLICT (conversation_id) DO UPDATE "
    "SET source = excluded.source, version = excluded.version"
).bindparams(bindparam("cid", type_=Id))
_UNSETTLED = text(
    "SELECT version FROM search_rows WHERE conversation_id = :cid AND unsettled"
).bindparams(bindparam("cid", type_=Id))
_HELD = (
    "SELECT version, part, fingerprint, unsettled FROM search_rows "
    "WHERE conversation_id = :cid AND piece = 0"
)
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


def is_current(connection: Connection, generation: Generation, conversation_id: UUID) -> bool:
    """Whether the index holds what the generation's rows say; only where its tables are there."""
    folded = _folded(connection, generation, conversation_id)
    head = connection.execute(_HEAD, {"cid": conversation_id}).first()
    return head is not None and tuple(head) == (_source(generation), folded)


def bring_up(connection: Connection, generation: Generation, conversation_id: UUID) -> None:
    """Index what is new or changed, in the caller's transaction, which has caught up the rows."""
    folded = _folded(connection, generation, conversation_id)
    head = connection.execute(_HEAD, {"cid": conversation_id}).first()
    source = SqlRowSource(connection, generation.tables["context_messages"], conversation_id)
    whole = head is None or head[0] != _source(generation)
    if head is not None and not whole:
        if head[1] == folded:
            return
        whole = _reached(connection, conversation_id, head[1])
    if head is None or whole:
        _write(connection, conversation_id, documents(source.newest(_PAGE)), None)
    else:
        unsettled = connection.execute(_UNSETTLED, {"cid": conversation_id}).scalars()
        for versions in _pages(sorted(set(unsettled))):
            rows = source.rows_at(versions)
            _write(connection, conversation_id, documents(rows), versions)
        _write(connection, conversation_id, documents(source.since(head[1])), ())
    values = {"cid": conversation_id, "source": _source(generation), "version": folded}
    connection.execute(_SET_HEAD, values)


def _source(generation: Generation) -> str:
    return f"{generation.tables['context_messages'].name} {VERSION}"


def _folded(connection: Connection, generation: Generation, conversation_id: UUID) -> int | None:
    heads = metadata_for(connection.dialect.name).tables["projection_heads"]
    query = select(heads.c.version).where(
        heads.c.conversation_id == conversation_id,
        heads.c.projection == generation.projection.name,
        heads.c.generation == generation.number,
    )
    return connection.execute(query).scalar()


def _reached(connection: Connection, conversation_id: UUID, after: int) -> bool:
    """Whether something since a version may have changed any row."""
    events = metadata_for(connection.dialect.name).tables["events"]
    query = select(events.c.version).where(
        events.c.conversation_id == conversation_id,
        events.c.version > after,
        events.c.type.in_(_REACHING),
    )
    return connection.execute(query.limit(1)).first() is not None


def _write(
    connection: Connection,
    conversation_id: UUID,
    found: Iterable[Document],
    versions: Iterable[int] | None,
) -> None:
    """Make the index hold these documents, and of the given versions (None: of all) no others."""
    held = dict(_held(connection, conversation_id, versions))
    new: list[dict[str, Any]] = []
    for document in found:
        mark = fingerprint(conversation_id, document.text)
        if held.get(document.key) != (mark, document.unsettled):
            new += _rows(connection.dialect.name, conversation_id, document, mark)
            if document.key in held:
                _delete(connection, conversation_id, [document.key])
            if len(new) >= _PAGE:
                _insert(connection, new)
                new = []
        held.pop(document.key, None)
    _insert(connection, new)
    _delete(connection, conversation_id, held)


def _held(
    connection: Connection, conversation_id: UUID, versions: Iterable[int] | None
) -> Iterator[tuple[tuple[int, int], tuple[bytes, bool]]]:
    if versions is None:
        query = text(_HELD)
    elif not (listed := list(versions)):
        return
    else:
        query = text(f"{_HELD} AND version IN :versions").bindparams(
            bindparam("versions", listed, expanding=True)
        )
    rows = connection.execute(query.bindparams(bindparam("cid", conversation_id, type_=Id)))
    for version, part, mark, unsettled in rows:
        yield (version, part), (bytes(mark), bool(unsettled))


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
        held = {"words": words, "repeated": json.dumps(repeated, ensure_ascii=False)}
        yield {**row, "piece": piece, **held}


def _pieces(distinct: list[str], prefix: int) -> Iterator[list[str]]:
    """Yield the terms in lists that each make a row; a document without any has a row too."""
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


def _pages(versions: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(versions), _PAGE):
        yield versions[start : start + _PAGE]
