"""Reading one stream, in order of version, in pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from eventstore.errors import EventDamaged
from eventstore.events.codec import dumps
from eventstore.events.records import RecordedEvent
from eventstore.sealing import Keyring, keys_of
from eventstore.sql.dialect import AnyConnection, Dialect, Statement, cursor, dialect_of
from eventstore.sql.rows import COLUMNS, decode_rows

__all__ = ["END", "chain_at", "chains_stand", "read_page"]


def _page(order: str) -> Statement:
    sqlite, postgresql = (
        f"""
        SELECT {COLUMNS[name]} FROM events
        WHERE conversation_id = :conversation_id AND version > :after AND version < :before
        ORDER BY version {order} LIMIT :page_size
        """  # noqa: S608 - built from constants of this module
        for name in ("sqlite", "postgresql")
    )
    return Statement(sqlite, postgresql)


_FORWARD = _page("ASC")
_BACKWARD = _page("DESC")
_VERSIONS = """
    SELECT version FROM events
    WHERE conversation_id = :conversation_id AND version > :after AND version < :before
    ORDER BY version
    """
_CHAIN = Statement(
    "SELECT chain FROM events WHERE conversation_id = :conversation_id AND version = :version"
)
_STANDING = {
    "sqlite": """
        SELECT count(*) FROM json_each(?) AS wanted JOIN events
            ON conversation_id = json_extract(wanted.value, '$[0]')
            AND version = json_extract(wanted.value, '$[1]')
            AND hex(chain) = json_extract(wanted.value, '$[2]')
        """,
    "postgresql": """
        SELECT count(*) FROM unnest(%s::uuid[], %s::bigint[], %s::bytea[])
            AS wanted (stream, place, mark)
        JOIN events ON conversation_id = stream AND version = place AND chain = mark
        """,
}
END = 2**62
"""A version that no stream reaches."""


def read_page(
    connection: AnyConnection,
    conversation_id: UUID,
    *,
    after: int = 0,
    before: int = END,
    backward: bool = False,
    limit: int = 1_000,
    keys: Keyring | None = None,
) -> list[RecordedEvent]:
    """Return up to ``limit`` events of a stream with ``after < version < before``.

    Args:
        connection: In a transaction of the caller's.
        conversation_id: The stream; one that does not exist has no events.
        after: The version before the first one wanted.
        before: The version after the last one wanted.
        backward: Newest first.
        limit: The most events to return.
        keys: Of the store, where the connection is not one of its own.

    Raises:
        EventDamaged: A row holds what no append has written.
        BlobNotFound: The blob of a payload is gone.
        BlobDamaged: Its bytes cannot be unpacked.
        KeyUnavailable: An event is sealed, and its key is not to be had.
    """
    dialect, cur = dialect_of(connection), cursor(connection, binary=True)
    wanted = {
        "conversation_id": dialect.from_id(conversation_id),
        "after": after,
        "before": before,
        "page_size": limit,
    }
    cur.execute((_BACKWARD if backward else _FORWARD).on(dialect), wanted)
    try:
        rows = cur.fetchall()
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
        # Bytes that are no text, which is Python's to find: it does not tell in which row.
        version = _no_text(cur, dialect, wanted)
        # Not read to its end, the query would hold on to its snapshot beyond the transaction.
        cur.close()
        raise EventDamaged(conversation_id, version) from error
    return decode_rows(cur, dialect, rows, keys or keys_of(connection))


def chain_at(connection: AnyConnection, conversation_id: UUID, version: int) -> bytes | None:
    """Return the chain of a stream's event, in the caller's transaction; None if there is none."""
    dialect, cur = dialect_of(connection), cursor(connection)
    owner = dialect.from_id(conversation_id)
    cur.execute(_CHAIN.on(dialect), {"conversation_id": owner, "version": version})
    row = cur.fetchone()
    cur.close()
    return None if row is None else row[0]


def chains_stand(
    connection: AnyConnection, expected: Mapping[UUID, tuple[int, bytes | None]]
) -> bool:
    """Return whether streams have events of these versions and chains, in one query.

    They have them no more where the database has gone back to an older state meanwhile.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    wanted = [(dialect.from_id(stream), *place) for stream, place in expected.items()]
    streams, versions, chains = zip(*wanted, strict=True) if wanted else ((), (), ())
    if dialect.is_sqlite:
        hexed = [[*place, (chain or b"").hex().upper()] for *place, chain in wanted]
        cur.execute(_STANDING["sqlite"], [dumps(hexed)])
    else:
        cur.execute(_STANDING["postgresql"], [list(streams), list(versions), list(chains)])
    [(found,)] = cur.fetchall()
    cur.close()
    return bool(found == len(wanted))


def _no_text(cur: sqlite3.Cursor, dialect: Dialect, wanted: dict[str, Any]) -> int:
    """Return the first version of those wanted whose row SQLite holds and Python cannot decode."""
    cur.execute(_VERSIONS, wanted)
    for (version,) in cur.fetchall():
        try:
            one = {"after": version - 1, "before": version + 1}
            cur.execute(_FORWARD.on(dialect), wanted | one).fetchall()
        except sqlite3.OperationalError:
            return int(version)
    return int(wanted["after"]) + 1
