"""Whose events a fork shares: its line of parents, and the forks that a conversation has.

A fork holds rows of its own events alone. They are numbered on from the version at which it was
made, so that whatever stands below its first row is read from its parent, and may be its parent's
parent's in turn. A conversation with an event 1 of its own shares nothing, whatever its row names
as its parent: that was only opened from another one.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from eventstore.errors import ConversationDamaged
from eventstore.sql.backend import AnyConnection, Backend, Statement, backend_of, cursor

__all__ = ["MOST_ANCESTORS", "Shared", "ancestors", "descendants", "fork_point", "lineage"]

MOST_ANCESTORS = 100
"""Parents, and parents of parents, that a fork has at most: each costs a read of it a query."""

_PARENT = Statement(
    """
    SELECT parent_conversation_id, parent_version FROM conversations
    WHERE conversation_id = :conversation_id AND parent_version IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM events WHERE conversation_id = :conversation_id AND version = 1)
    """
)
_CHILDREN = Statement(
    """
    SELECT conversation_id, parent_version FROM conversations AS fork
    WHERE parent_conversation_id = :conversation_id AND NOT EXISTS (
        SELECT 1 FROM events WHERE conversation_id = fork.conversation_id AND version = 1)
    """
)


class Shared(NamedTuple):
    """Events that a conversation shares with another: the versions up to ``version``."""

    conversation_id: UUID
    version: int


def lineage(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return what a fork shares with its parent, its parent's parent and so on, nearest first.

    Nothing for a conversation that is not a fork. Each has the rows above the version of the next.
    A query for each, in the caller's transaction: a line of parents never changes.

    Raises:
        ConversationDamaged: A row names what cannot be a parent.
    """
    found: list[Shared] = []
    for parent in ancestors(connection, conversation_id):
        version = parent.version
        if found and version >= found[-1].version:
            # A fork of what its parent shares itself: no row of the parent's is read.
            version = found.pop().version
        found.append(Shared(parent.conversation_id, version))
    return found


def ancestors(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return a fork's parent, its parent's parent and so on, each with where it was forked.

    Raises:
        ConversationDamaged: A row names what cannot be a parent.
    """
    backend, cur = backend_of(connection), cursor(connection)
    found: list[Shared] = []
    parent = _parent(cur, backend, conversation_id)
    while parent is not None and len(found) <= MOST_ANCESTORS:
        found.append(parent)
        parent = _parent(cur, backend, parent.conversation_id)
    cur.close()
    if parent is not None:
        raise ConversationDamaged(conversation_id)
    return found


def fork_point(connection: AnyConnection, conversation_id: UUID) -> Shared | None:
    """Return a fork's parent and the last version that they share; None if it is not a fork.

    Raises:
        ConversationDamaged: Its row names what cannot be a parent.
    """
    cur = cursor(connection)
    found = _parent(cur, backend_of(connection), conversation_id)
    cur.close()
    return found


def descendants(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return all forks of a conversation and of its forks, in order of id.

    Each with the last version that it shares with the conversation itself.
    """
    backend, cur = backend_of(connection), cursor(connection)
    found: dict[UUID, int] = {}
    waiting = [Shared(conversation_id, 2**62)]
    while waiting:
        parent = waiting.pop()
        wanted = {"conversation_id": backend.from_id(parent.conversation_id)}
        cur.execute(_CHILDREN.on(backend), wanted)
        for key, version in cur.fetchall():
            child = Shared(backend.to_id(key), min(int(version), parent.version))
            if child.conversation_id not in found:
                found[child.conversation_id] = child.version
                waiting.append(child)
    cur.close()
    return [Shared(*each) for each in sorted(found.items())]


def _parent(cur: Any, backend: Backend, conversation_id: UUID) -> Shared | None:
    cur.execute(_PARENT.on(backend), {"conversation_id": backend.from_id(conversation_id)})
    row = cur.fetchone()
    if row is None:
        return None
    try:
        return Shared(backend.to_id(row[0]), int(row[1]))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConversationDamaged(conversation_id) from error
