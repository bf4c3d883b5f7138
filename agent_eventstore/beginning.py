"""How a conversation and a session begin: the first events, and the number of the next turn.

One that is opened from another takes over what is not said of it: that is read in the parent's own
start, so that it costs the same however long the parent is.
"""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from eventstore import EventStore, NewEvent, new_id
from eventstore.events import ConversationStart, Meta, SessionStart
from eventstore.events.values import Mode
from eventstore.owners import Owned
from eventstore.sql.streams import owner_of
from projections import Views

__all__ = ["inheriting", "next_turn", "owner_within", "session_start"]


def owner_within(store: EventStore, parent: UUID, owner: Owned) -> Owned:
    """Return whose a conversation is that is opened from another: the parent's, if unsaid."""
    with store.reading() as connection:
        tenant_id, user_id = owner_of(connection, parent) or (None, None)
    return {
        "tenant_id": owner.get("tenant_id") or tenant_id,
        "user_id": owner.get("user_id") or user_id,
    }


def inheriting(
    store: EventStore, views: Views, parent: UUID, start: ConversationStart
) -> ConversationStart:
    """Return the start of a conversation with what it takes from its parent's.

    Instructions that it has itself stay; the tool policy is that of both, so that it may never do
    more than the parent.
    """
    first = next((event.data for event in store.read(parent, limit=1)), None)
    told = first if isinstance(first, ConversationStart) else ConversationStart()
    policy = views.tool_policy(parent)
    if policy is None:
        policy = start.tool_policy
    elif start.tool_policy is not None:
        policy = policy.merge(start.tool_policy)
    return start.model_copy(
        update={
            "base_instructions": told.base_instructions
            if start.base_instructions is None
            else start.base_instructions,
            "user_instructions": told.user_instructions
            if start.user_instructions is None
            else start.user_instructions,
            "tool_policy": policy,
            "parent_conversation_id": str(parent),
            "parent_version": next(store.read(parent, backward=True, limit=1)).version,
        }
    )


def session_start(
    meta: Meta, mode: Literal["interactive", "once"], config: dict[str, Any] | None
) -> NewEvent:
    """Return the event with which a session begins."""
    return NewEvent(SessionStart(mode=mode, config=config or {}), new_id(), meta)


def next_turn(views: Views, conversation_id: UUID) -> tuple[Mode | None, int]:
    """Return the mode that a conversation is in, and the number of its next turn."""
    state = views.run_state(conversation_id)
    return state.mode, (state.last_turn or 0) + 1
