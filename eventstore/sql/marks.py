"""What a checkpoint marks of a store: each conversation's version and chain value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.errors import ConversationDamaged
from eventstore.integrity import Problem
from eventstore.sql.dialect import Statement, cursor, dialect_of
from eventstore.sql.schema import metadata_for

__all__ = ["Mark", "differences", "next_marks", "store_id_of"]

_FIRST = Statement(
    "SELECT conversation_id, version, chain FROM conversations "
    "ORDER BY conversation_id LIMIT :page_size"
)
_NEXT = Statement(
    "SELECT conversation_id, version, chain FROM conversations "
    "WHERE conversation_id > :after ORDER BY conversation_id LIMIT :page_size"
)
_COMPARED = Statement(
    """
    SELECT
        (SELECT chain FROM events
            WHERE conversation_id = :conversation_id AND version = :version),
        (SELECT max(version) FROM events WHERE conversation_id = :conversation_id)
    """
)


class Mark(NamedTuple):
    """A conversation's version and the chain value there."""

    conversation_id: UUID
    version: int
    chain: bytes


def store_id_of(connection: Connection) -> UUID:
    """Return the random id that the store got with its schema, and that copies of it share."""
    table = metadata_for(connection.dialect.name).tables["store_identity"]
    found: UUID = connection.execute(select(table.c.store_id)).scalar_one()
    return found


def next_marks(connection: Connection, after: UUID | None, limit: int) -> list[Mark]:
    """Return the marks of the conversations above ``after`` in order of id, up to ``limit``.

    Raises:
        ConversationDamaged: A row holds what no append has written.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    if after is None:
        cur.execute(_FIRST.on(dialect), {"page_size": limit})
    else:
        cur.execute(_NEXT.on(dialect), {"page_size": limit, "after": dialect.from_id(after)})
    found: list[Mark] = []
    for key, version, chain in cur.fetchall():
        conversation_id = dialect.to_id(key)
        if not isinstance(version, int) or not isinstance(chain, bytes):
            raise ConversationDamaged(conversation_id)
        found.append(Mark(conversation_id, version, chain))
    return found


def differences(connection: Connection, marks: Iterable[Mark]) -> Iterator[Problem]:
    """Yield what is no longer there of what was marked."""
    dialect, cur = dialect_of(connection), cursor(connection)
    for conversation_id, version, chain in marks:
        key = dialect.from_id(conversation_id)
        cur.execute(_COMPARED.on(dialect), {"conversation_id": key, "version": version})
        found, last = cur.fetchone()
        if found == chain or version == 0:
            continue
        if last is None:
            detail = f"the conversation is gone, and had {version} events at the checkpoint"
            yield Problem(conversation_id, 1, "conversation_missing", detail)
        elif found is None and last < version:
            detail = f"the last event is {last}, and was {version} at the checkpoint"
            yield Problem(conversation_id, last + 1, "tail_missing", detail)
        else:
            detail = "another history stands here than at the checkpoint"
            yield Problem(conversation_id, version, "history_differs", detail)
