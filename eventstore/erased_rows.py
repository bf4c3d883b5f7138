"""The rows that hold content: their tables, and what an erasure deletes from them.

Events lose their payloads. Blobs that no remaining payload refers to are deleted, as are the
conversation's projected rows in the tables of every generation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Connection,
    column,
    delete,
    insert,
    literal_column,
    select,
    table,
    update,
)
from sqlalchemy import Table as SqlTable

from eventstore.blobs import stub_of
from eventstore.errors import DeletionIncomplete
from eventstore.events import ToolResult
from eventstore.events.codec import decode
from eventstore.integrity import unwrapped
from eventstore.quoting import ranges
from eventstore.sealing import DATA, SEALED, Keyring, key_of, opened
from eventstore.sql.backend import backend_of, keys_of
from eventstore.sql.schema import derived_tables
from eventstore.sql.streams import pages
from eventstore.sql.types import Id

__all__ = [
    "erase_blobs",
    "erase_events",
    "erase_projected",
    "require_all",
    "tables_with_content",
]

_DIGEST = re.compile("[0-9a-f]{64}")


def require_all(conversation_id: UUID, table: str, planned: int, done: int) -> None:
    """Refuse to go on if the database changed fewer rows of a table than were to be erased.

    Raises:
        DeletionIncomplete: It did; the caller's transaction must not be committed.
    """
    if done < planned:
        raise DeletionIncomplete(conversation_id, table, planned, done)


def erase_events(
    connection: Connection,
    tables: Mapping[str, SqlTable],
    conversation_id: UUID,
    erasure_id: UUID,
    versions: Sequence[int],
) -> None:
    """Erase payloads; rows of ``erased_versions`` let the triggers permit these versions only.

    Raises:
        DeletionIncomplete: The database erased fewer payloads.
    """
    events = tables["events"]
    if versions:
        rows = [
            {
                "conversation_id": conversation_id,
                "erasure_id": erasure_id,
                "first_version": first,
                "last_version": last,
            }
            for first, last in ranges(versions)
        ]
        connection.execute(insert(tables["erased_versions"]), rows)
    done = 0
    for start in range(0, len(versions), 500):
        done += connection.execute(
            update(events)
            .where(
                events.c.conversation_id == conversation_id,
                events.c.version.in_(versions[start : start + 500]),
            )
            .values(data=None, salt=None)
        ).rowcount
    require_all(conversation_id, "events", len(versions), done)


def erase_blobs(
    connection: Connection, tables: Mapping[str, SqlTable], conversation_id: UUID
) -> list[int]:
    """Delete the blobs that no remaining payload refers to, and return their sizes in bytes."""
    blobs, events = tables["blobs"], tables["events"]
    kept = connection.execute(
        select(blobs.c.digest, blobs.c.size_bytes).where(blobs.c.conversation_id == conversation_id)
    ).all()
    if not kept:
        return []
    stored = map(backend_of(connection).as_stored, ("type", "data", "event_id"))
    rows = connection.execute(
        select(events.c.schema_version, *map(literal_column, stored)).where(
            events.c.conversation_id == conversation_id, events.c.data.is_not(None)
        )
    )
    keys = keys_of(connection)
    used = {name for row in rows for name in _names(keys, conversation_id, *row)}
    gone = {digest: int(size) for digest, size in kept if digest not in used}
    for digest in gone:
        query = delete(blobs).where(
            blobs.c.conversation_id == conversation_id, blobs.c.digest == digest
        )
        require_all(conversation_id, "blobs", 1, connection.execute(query).rowcount)
    return list(gone.values())


def _names(
    keys: Keyring | None,
    conversation_id: UUID,
    schema_version: int,
    *stored: Any,
) -> list[str]:
    """Return the names under which the blobs of a payload are stored."""
    kind, data, event_id = (
        each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in stored
    )
    if not data.startswith(SEALED):
        return _digests(kind, schema_version, data)
    try:
        key = key_of(keys, conversation_id, data)
        text = opened(key, DATA, event_id, data)
    except ValueError:  # It was altered: nobody can read to what it refers.
        return []
    if key is None or text is None:
        return []
    return [key.name_of(digest) for digest in _digests(kind, schema_version, text)]


def _digests(kind: str, schema_version: int, data: str) -> list[str]:
    with suppress(RecursionError, ValueError):  # raised for a damaged payload
        text, _ = unwrapped(data)
        stub = stub_of(text)
        if stub is not None:
            return [stub.digest]
        if kind != ToolResult.type:
            return []
        payload = decode(kind, schema_version, text)
        if isinstance(payload, ToolResult):
            return [payload.blob.digest] if payload.blob else []
    # Damaged, or a schema version that this code does not know: keep all that it may refer to.
    return _DIGEST.findall(data)


def erase_projected(
    connection: Connection, tables: Mapping[str, SqlTable], conversations: Sequence[UUID]
) -> None:
    """Delete the conversations' projected rows in every generation, and their heads."""
    derived = [table(name, column("conversation_id", Id)) for name in derived_tables(connection)]
    for rows in (tables["projection_heads"], *derived):
        for some in pages(conversations):
            connection.execute(delete(rows).where(rows.c.conversation_id.in_(some)))


def tables_with_content(connection: Connection) -> list[str]:
    """Return the tables that hold content or rows derived from it."""
    log = ("events", "blobs", "import_sources", "projection_heads")
    return [*log, *derived_tables(connection)]
