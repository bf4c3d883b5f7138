"""The tool calls of earlier sessions, for whoever learns only now what came of them."""

from __future__ import annotations

from uuid import UUID

from agent_eventstore.scripts.answers import KEPT
from projections import Views
from projections.folding import SEALS
from projections.tool_calls import ToolCallRow

__all__ = ["earlier_calls"]


def earlier_calls(views: Views, conversation_id: UUID) -> list[ToolCallRow]:
    """Return a conversation's calls, newest first; none if all have a result, as nearly always."""
    for status in ("requested", *SEALS):
        if views.tool_calls(conversation_id=conversation_id, status=status, limit=1):
            return views.tool_calls(conversation_id=conversation_id, limit=KEPT)
    return []
