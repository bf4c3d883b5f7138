"""How a conversation and a session begin: the first events, and the number of the next turn."""

from __future__ import annotations

from typing import Any, Literal, cast
from uuid import UUID

from eventstore import NewEvent, new_id
from eventstore.events import ConversationStart, Meta, SessionStart, ToolPolicy
from eventstore.events.values import Mode
from projections import Views

__all__ = ["first_events", "next_turn", "session_start"]


def first_events(
    meta: Meta,
    *,
    mode: Mode,
    title: str | None,
    base_instructions: str | None,
    tool_policy: ToolPolicy | None,
    config: dict[str, Any],
) -> list[NewEvent]:
    """Return the events with which a conversation begins."""
    start = ConversationStart(
        mode=mode,
        title=title,
        base_instructions=base_instructions,
        tool_policy=tool_policy,
        config=config,
    )
    return [NewEvent(start, new_id(), meta)]


def session_start(
    meta: Meta, mode: Literal["interactive", "once"], config: dict[str, Any] | None
) -> NewEvent:
    """Return the event with which a session begins."""
    return NewEvent(SessionStart(mode=mode, config=config or {}), new_id(), meta)


def next_turn(views: Views, conversation_id: UUID) -> tuple[Mode | None, int]:
    """Return the mode that a conversation is in, and the number of its next turn."""
    state = views.run_state(conversation_id)
    return cast(Mode | None, state.mode), (state.last_turn or 0) + 1
