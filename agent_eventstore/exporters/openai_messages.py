"""A conversation as OpenAI chat messages: a copy of the facts, not what a model would be sent.

Messages that came from a file are given back as they were; retracted ones are facts too. What has
no message form (model errors, turns, runs) is left out. For a request's messages use the
``context`` view, which repairs and trims.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agent_eventstore.importers.openai_wire import message_of, restored
from agent_eventstore.importers.project_messages import ORIGINAL
from eventstore import EventStore
from eventstore.events.records import EventData

from .facts import facts_of

__all__ = ["export_openai"]

_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")


def export_openai(store: EventStore, conversation_id: UUID) -> list[dict[str, Any]]:
    """Return a conversation's messages, in order of version.

    Raises:
        ConversationNotFound: There is no such conversation.
    """
    messages = (_message(data, event.version) for event, data in facts_of(store, conversation_id))
    return [message for message in messages if message is not None]


def _message(data: EventData, version: int) -> dict[str, Any] | None:
    raw = getattr(data, "raw", None)
    kept = raw.get(ORIGINAL) if isinstance(raw, dict) else None
    message = message_of(data, version)
    if not isinstance(kept, dict):
        return message
    # A project's message is OpenAI's with more fields, which no API knows.
    original = restored(kept, data)
    return (message or {}) | {key: original[key] for key in _FIELDS if key in original}
