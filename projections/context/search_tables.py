"""The searchable text of a group of messages, and the tables of the search index.

The words are those of `projections.context.compression.search`, so that a search in the database
returns the same scores as one in memory, which is used for lists of rows and for databases without
the index.

``search_rows`` holds the words of every visible group of messages, ``search_heads`` how far a
conversation is indexed and the totals of its rows, ``search_vectors`` the embeddings of its texts.
The tables are created when a product first retrieves; they are disposable and never migrated.
``conversation_id`` comes first in all keys, and also in the index of words: each word has a prefix
of the conversation, so that a search only reads the conversation's own entries.

On SQLite the index is the FTS5 table ``search_terms``, which triggers keep in sync with
``search_rows``; its tokens are ``term=count``, so that each occurs in a row once. Deleting a head
merges the index into one piece, after which it contains nothing of deleted words. On PostgreSQL it
is a GIN index over the ``tsvector`` of each row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, inspect

from eventstore import EventStore
from eventstore.database import AnyConnection, has_table, schema_lock
from projections.context.compression.items import Item
from projections.context.compression.search import (
    Embedding,
    FusedSearch,
    MemorySearch,
    Search,
    VectorSearch,
    terms,
)
from projections.context.groups import groups_of
from projections.context.rows import ContextRow
from projections.engine import setup

__all__ = [
    "TABLES",
    "VERSION",
    "Document",
    "are_there",
    "create",
    "documents",
    "fingerprint",
    "indexed_terms",
    "item_to_search",
    "pgvector_type",
    "prefix_of",
    "search_in_memory",
]

TABLES = ("search_rows", "search_vectors", "search_heads")
"""In the order in which an erasure deletes from them: deleting a head clears what the index still
contains of deleted rows."""

VERSION = 2
"""Raised when terms change, so that every conversation is indexed again."""

_LONGEST = 128  # bytes of a term; PostgreSQL refuses terms above 2046
_BEGINNING = 24

# Characters of terms in addition to letters and digits; see `indexed_terms`.
_TOKEN_CHARACTERS = "_.:/@+-~="  # noqa: S105 - of a tokenizer


def item_to_search(rows: Sequence[ContextRow]) -> Item:
    """Return a group as an item for searching, not for sending: its tokens are not counted."""
    messages = tuple(row.message for row in rows)
    return Item(key=rows[0].key, kind=rows[0].kind, messages=messages, tokens=0)


def search_in_memory(
    rows: Iterable[ContextRow],
    intent: str,
    limit: int,
    *,
    until: tuple[int, int] | None = None,
    embedding: Embedding | None = None,
) -> Mapping[tuple[int, int], float]:
    """Return the scores of the groups that answer an intent best.

    Args:
        rows: All visible rows of a conversation, newest first.
        intent: The text to search for.
        limit: The most groups to return.
        until: Ignore everything after this key.
        embedding: Search by meaning as well; each text is embedded.
    """
    groups = [item_to_search(group) for group in groups_of(rows)]
    items = [item for item in groups if until is None or item.key <= until]
    search: Search = MemorySearch(items)
    if embedding is not None:
        search = FusedSearch(search, VectorSearch(items, embedding.embed))
    return search.scores(intent, limit)


@dataclass(frozen=True, slots=True)
class Document:
    """The searchable text of a group of messages.

    Attributes:
        key: The key of the group's first row.
        text: The text of all its messages, as in `Item.text`.
        unsettled: Whether it may still change without a retraction or a summary: it waits for a
            tool's result, or is a failure that a retry may supersede, and the fold remembers it.
    """

    key: tuple[int, int]
    text: str
    unsettled: bool

    @classmethod
    def of(cls, rows: Sequence[ContextRow], movable: Container[int]) -> Document:
        """Return the document of a group's rows; see `documents`."""
        first = rows[0]
        waits = first.kind == "error" or any(row.sealed for row in rows)
        return cls(first.key, item_to_search(rows).text, waits and first.version in movable)


def documents(rows: Iterable[ContextRow], movable: Container[int]) -> Iterator[Document]:
    """Yield the documents of rows, which must be in descending order, newest first.

    Args:
        rows: The rows.
        movable: The versions of `projections.context.state.movable`.
    """
    return (Document.of(group, movable) for group in groups_of(rows))


def fingerprint(conversation_id: UUID, text: str) -> bytes:
    """Return a 16-byte digest of a text, keyed by the conversation."""
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16, key=conversation_id.bytes
    ).digest()


def indexed_terms(text: str) -> Iterator[str]:
    """Yield the terms of a text as stored: long ones as their beginning and a digest."""
    for term in terms(text):
        if len(term) * 4 <= _LONGEST or len(encoded := term.encode()) <= _LONGEST:
            yield term
        else:
            digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
            yield f"{term[:_BEGINNING]}~{digest}"


def _prefixed(row: str) -> str:
    prefix = f"substr({row}.conversation_id, -8) || '_'"
    words = f"{prefix} || replace({row}.words, ' ', ' ' || {prefix})"
    return f"CASE {row}.words WHEN '' THEN '' ELSE {words} END"


_SQLITE = (
    """CREATE TABLE search_rows (
        id INTEGER PRIMARY KEY,
        conversation_id TEXT NOT NULL,
        version BIGINT NOT NULL,
        part BIGINT NOT NULL,
        piece INTEGER NOT NULL,
        length INTEGER NOT NULL,
        unsettled BOOLEAN NOT NULL,
        fingerprint BLOB NOT NULL,
        words TEXT NOT NULL
    )""",
    # Contains everything that a search reads from a row.
    (
        "CREATE UNIQUE INDEX ix_search_rows "
        "ON search_rows (conversation_id, version, part, piece, length)"
    ),
    (
        "CREATE INDEX ix_search_rows_unsettled ON search_rows (conversation_id, version) "
        "WHERE unsettled"
    ),
    """CREATE TABLE search_vectors (
        conversation_id TEXT NOT NULL,
        embedding TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (conversation_id, embedding, fingerprint)
    ) WITHOUT ROWID""",
    """CREATE TABLE search_heads (
        conversation_id TEXT NOT NULL PRIMARY KEY,
        source TEXT NOT NULL,
        version BIGINT NOT NULL,
        documents BIGINT NOT NULL,
        length BIGINT NOT NULL
    ) WITHOUT ROWID""",
    (
        "CREATE VIRTUAL TABLE search_terms USING fts5 (words, content='', detail=none, "
        f"columnsize=0, tokenize=\"ascii tokenchars '{_TOKEN_CHARACTERS}'\")"
    ),
    "CREATE VIRTUAL TABLE search_postings USING fts5vocab (search_terms, 'instance')",
    f"""CREATE TRIGGER search_rows_added AFTER INSERT ON search_rows BEGIN
        INSERT INTO search_terms (rowid, words) VALUES (new.id, {_prefixed("new")});
    END""",  # noqa: S608 - names of this module
    f"""CREATE TRIGGER search_rows_deleted AFTER DELETE ON search_rows BEGIN
        INSERT INTO search_terms (search_terms, rowid, words)
        VALUES ('delete', old.id, {_prefixed("old")});
    END""",  # noqa: S608 - names of this module
    """CREATE TRIGGER search_heads_deleted AFTER DELETE ON search_heads BEGIN
        INSERT INTO search_terms (search_terms) VALUES ('optimize');
    END""",
)

_POSTGRESQL = (
    """CREATE TABLE search_rows (
        conversation_id UUID NOT NULL,
        version BIGINT NOT NULL,
        part BIGINT NOT NULL,
        piece INTEGER NOT NULL,
        length INTEGER NOT NULL,
        unsettled BOOLEAN NOT NULL,
        fingerprint BYTEA NOT NULL,
        words TSVECTOR NOT NULL,
        repeated JSONB NOT NULL,
        PRIMARY KEY (conversation_id, version, part, piece) INCLUDE (length)
    )""",
    # Without the list of pending entries, which every search would have to scan.
    "CREATE INDEX ix_search_rows_words ON search_rows USING gin (words) WITH (fastupdate = off)",
    (
        "CREATE INDEX ix_search_rows_unsettled ON search_rows (conversation_id, version) "
        "WHERE unsettled"
    ),
    """CREATE TABLE search_vectors (
        conversation_id UUID NOT NULL,
        embedding TEXT NOT NULL,
        fingerprint BYTEA NOT NULL,
        vector {vector} NOT NULL,
        PRIMARY KEY (conversation_id, embedding, fingerprint)
    )""",
    """CREATE TABLE search_heads (
        conversation_id UUID NOT NULL PRIMARY KEY,
        source TEXT NOT NULL,
        version BIGINT NOT NULL,
        documents BIGINT NOT NULL,
        length BIGINT NOT NULL
    )""",
)

_PGVECTOR = """DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS vector SCHEMA public;
EXCEPTION WHEN OTHERS THEN
    NULL;
END $$"""
"""If the extension is not installed, or may not be created, vectors are plain bytes.

It is created in ``public`` since it belongs to the database: dropping a store's schema must not
drop it.
"""

_VECTOR = """
    SELECT t.oid::regtype::text FROM pg_extension AS e
    JOIN pg_type AS t ON t.typnamespace = e.extnamespace AND t.typname = 'vector'
    WHERE e.extname = 'vector'
"""
"""The query for the type's name, with its schema if that is not on the ``search_path``."""


def are_there(connection: AnyConnection) -> bool:
    """Whether the tables exist on the connection's database."""
    return has_table(connection, "search_heads")


def create(store: EventStore, *, patience_ms: int | None = None) -> None:
    """Create the tables if they are missing, in one transaction under the schema lock."""
    with schema_lock(store.engine, patience_ms=patience_ms) as connection:
        # Not `are_there`: on PostgreSQL its answer may predate the wait for the lock.
        if inspect(connection).has_table("search_heads"):
            return
        statements: tuple[str, ...] = _SQLITE
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(_PGVECTOR)
            kind = connection.exec_driver_sql(_VECTOR).scalar() or "bytea"
            statements = tuple(each.format(vector=kind) for each in _POSTGRESQL)
        for statement in statements:
            connection.exec_driver_sql(statement)
        setup.register(connection, TABLES)


def pgvector_type(connection: Connection) -> str | None:
    """Return pgvector's type if the table stores vectors in it, otherwise None.

    That is the case if the extension was available when the table was created.
    """
    if connection.dialect.name != "postgresql":
        return None
    query = (
        "SELECT atttypid::regtype::text FROM pg_attribute "
        "WHERE attrelid = to_regclass('search_vectors') AND attname = 'vector'"
    )
    found = str(connection.exec_driver_sql(query).scalar())
    return found if found.endswith("vector") else None


def prefix_of(conversation_id: UUID) -> str:
    """Return the prefix of a conversation's words in the index; others rarely have the same."""
    return f"{str(conversation_id)[-8:]}_"
