"""The tables that search keeps: made when a product first retrieves, disposable, never migrated.

``search_rows`` holds the words of every visible group of messages, ``search_heads`` how far a
conversation is indexed, ``search_vectors`` what an embedding made of its texts. All are keyed by
``conversation_id`` first, and so is the index of words itself: each word stands in it behind a
prefix of the conversation, so that a search touches the conversation's own entries alone.

On SQLite the index is the FTS5 table ``search_terms``, which triggers keep equal to
``search_rows``; its tokens are ``term=count``, so that each stands in a row once. Deleting a head
merges it into one piece, after which nothing of deleted words is left in it. On PostgreSQL it is a
GIN index over the ``tsvector`` of each row.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, inspect

from eventstore import EventStore
from eventstore.sql.dialect import Statement, cursor, dialect_of
from eventstore.sql.migrate import schema_lock
from eventstore.sql.traces import without_statistics

__all__ = ["are_there", "create", "has_pgvector", "prefix_of"]

# What terms are made of beside letters and digits; see `projections.context.search_terms`.
_TOKEN_CHARACTERS = "_.:/@+-~="  # noqa: S105 - of a tokenizer

_ARE_THERE = Statement(
    "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'search_heads'",
    "SELECT count(to_regclass('search_heads'))",
)


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
    # Holds all that a search needs to know of a row.
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
        version BIGINT NOT NULL
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
    # Without a list of what is to be indexed later, which every search would have to go through.
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
        version BIGINT NOT NULL
    )""",
)

_PGVECTOR = """DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS vector;
EXCEPTION WHEN OTHERS THEN
    NULL;
END $$"""
"""Where the extension is not installed, or may not be created, vectors are plain bytes."""


def are_there(connection: Connection) -> bool:
    """Whether the tables exist on the connection's database."""
    run = cursor(connection)
    run.execute(_ARE_THERE.on(dialect_of(connection)))
    found = bool(run.fetchone()[0])
    run.close()
    return found


def create(store: EventStore, *, patience_ms: int | None = None) -> None:
    """Create the tables where they are missing, in one transaction under the schema lock."""
    with schema_lock(store.engine, patience_ms=patience_ms) as connection:
        # Not `are_there`: PostgreSQL may answer it by what it knew before it waited for the lock.
        if inspect(connection).has_table("search_heads"):
            return
        statements: tuple[str, ...] = _SQLITE
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(_PGVECTOR)
            kind = "vector" if _has_type(connection, "vector") else "bytea"
            statements = tuple(each.format(vector=kind) for each in _POSTGRESQL)
        for statement in statements:
            connection.exec_driver_sql(statement)
        without_statistics(connection, ("search_rows", "search_vectors", "search_heads"))


def has_pgvector(connection: Connection) -> bool:
    """Whether the vectors are pgvector's, as they are where the extension was there in time."""
    if connection.dialect.name != "postgresql":
        return False
    query = (
        "SELECT atttypid::regtype::text FROM pg_attribute "
        "WHERE attrelid = to_regclass('search_vectors') AND attname = 'vector'"
    )
    return str(connection.exec_driver_sql(query).scalar()).endswith("vector")


def prefix_of(conversation_id: UUID) -> str:
    """Return what stands before a conversation's words in the index; seldom that of another too."""
    return f"{str(conversation_id)[-8:]}_"


def _has_type(connection: Connection, name: str) -> bool:
    query = "SELECT to_regtype(%s) IS NOT NULL"
    return bool(connection.exec_driver_sql(query, (name,)).scalar())
