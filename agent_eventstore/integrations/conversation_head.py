"""Whether anything is new in a conversation that an adapter keeps in memory: one row tells."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from eventstore.sql.backend import AnyConnection, Statement, backend_of, cursor

__all__ = ["NO_HEAD", "Head", "head_of"]

_HEAD = Statement(
    """
    SELECT version, chain, parent_conversation_id IS NOT NULL FROM conversations
    WHERE conversation_id = :conversation_id
    """
)


class Head(NamedTuple):
    """The last event of a conversation; a fork's does not tell what was erased in its parent."""

    version: int
    chain: bytes
    is_fork: bool = False


NO_HEAD = Head(0, b"")


def head_of(connection: AnyConnection, stream: UUID) -> Head:
    """Return a conversation's head, in the caller's transaction; `NO_HEAD` if there is none."""
    backend, cur = backend_of(connection), cursor(connection)
    cur.execute(_HEAD.on(backend), {"conversation_id": backend.from_id(stream)})
    row = cur.fetchone()
    cur.close()
    return NO_HEAD if row is None else Head(row[0], bytes(row[1]), bool(row[2]))
