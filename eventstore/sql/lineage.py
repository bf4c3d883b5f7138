"""Lineage of forks: the ancestors that a fork shares events with, and a conversation's forks.

A fork stores only rows of its own events. Their versions continue from the version at which it was
forked; events below its first row are read from its parent, which may be a fork in turn. A
conversation with its own event 1 shares nothing, even if its row names a parent: it was only opened
from that conversation.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from eventstore.errors import ConversationDamaged
from eventstore.sql.backend import AnyConnection, Statement, backend_of

__all__ = ["MOST_ANCESTORS", "Shared", "ancestors", "descendants", "fork_point", "lineage"]

MOST_ANCESTORS = 100
"""The most ancestors that a fork can have: reading it costs a query for each."""

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

    Returns nothing for a conversation that is not a fork. Each ancestor holds the rows above the
    version of the next. Runs a query for each, in the caller's transaction; ancestors never change.

    Raises:
        ConversationDamaged: A row names an invalid parent.
    """
    found: list[Shared] = []
    for parent in ancestors(connection, conversation_id):
        version = parent.version
        if found and version >= found[-1].version:
            # Forked from events that the parent itself shares: no row of the parent is read.
            version = found.pop().version
        found.append(Shared(parent.conversation_id, version))
    return found


def ancestors(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return a fork's parent, its parent's parent and so on, each with the version of the fork.

    Raises:
        ConversationDamaged: A row names an invalid parent.
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
        ConversationDamaged: Its row names an invalid parent.
    """
    rows = _PARENT.rows(connection, conversation_id=conversation_id)
    if not rows:
        return None
    try:
        return Shared(backend_of(connection).to_id(rows[0][0]), int(rows[0][1]))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConversationDamaged(conversation_id) from error


def descendants(connection: AnyConnection, conversation_id: UUID) -> list[Shared]:
    """Return all forks of a conversation and of its forks, each after the one it was forked from.

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
    return [Shared(*each) for each in found.items()]
