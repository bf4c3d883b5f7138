"""Whose events a fork shares: its line of parents, and the forks that a conversation has.

A fork holds rows of its own events alone. They are numbered on from the version at which it was
made, so that whatever stands below its first row is read from its parent, and may be its parent's
parent's in turn. A conversation with an event 1 of its own shares nothing, whatever its row names
as its parent: that was only opened from another one.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from eventstore.errors import ConversationDamaged
from eventstore.sql.backend import AnyConnection, Statement, backend_of

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
    found: list[Shared] = []
    parent = fork_point(connection, conversation_id)
    while parent is not None and len(found) <= MOST_ANCESTORS:
        found.append(parent)
        parent = fork_point(connection, parent.conversation_id)
    if parent is not None:
        raise ConversationDamaged(conversation_id)
    return found


def fork_point(connection: AnyConnection, conversation_id: UUID) -> Shared | None:
    """Return a fork's parent and the last version that they share; None if it is not a fork.

    Raises:
        ConversationDamaged: Its row names what cannot be a parent.
    """
    rows = _PARENT.rows(connection, conversation_id=conversation_id)
    if not rows:
        return None
    try:
        return Shared(backend_of(connection).to_id(rows[0][0]), int(rows[0][1]))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConversationDamaged(conversation_id) from error


def descendants(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return all forks of a conversation and of its forks, in order of id.

    Each with the last version that it shares with the conversation itself.
    """
    to_id = backend_of(connection).to_id
    found: dict[UUID, int] = {}
    waiting = [Shared(conversation_id, 2**62)]
    while waiting:
        parent = waiting.pop()
        for key, version in _CHILDREN.rows(connection, conversation_id=parent.conversation_id):
            child = Shared(to_id(key), min(int(version), parent.version))
            if child.conversation_id not in found:
                found[child.conversation_id] = child.version
                waiting.append(child)
    return [Shared(*each) for each in sorted(found.items())]
