"""Pydantic AI's own event types, readable without Pydantic AI.

An entry point names this module, so it is imported whenever an event's type is unknown: it must not
import the framework, which takes longer to import than most commands take.
"""

from __future__ import annotations

from typing import Any, ClassVar

from eventstore.events import Payload, register_event
from eventstore.events.own import READ_BACK

__all__ = ["KEY", "PydanticAIMessage", "PydanticAIRecord"]

KEY = "pydantic_ai"
"""The key in ``raw`` that holds a message, its id and its parent's id."""


@register_event
class PydanticAIMessage(Payload):
    """A message that yields no other event.

    Attributes:
        raw: The message, under the key ``pydantic_ai``.
    """

    type: ClassVar[str] = "pydantic_ai.message"

    raw: Any


@register_event
class PydanticAIRecord(Payload):
    """What Pydantic AI stores of a conversation in addition to its messages.

    Attributes:
        record: The framework's `ConversationRecord`; None if the conversation was deleted.
    """

    type: ClassVar[str] = "pydantic_ai.record"

    record: Any = None


READ_BACK.add(PydanticAIRecord)
