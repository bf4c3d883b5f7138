"""What the log has of Pydantic AI beside the catalogue's events: readable without Pydantic AI.

An entry point names this module, so that it is imported wherever an event's type is not known: it
imports nothing of the framework, which takes longer than most commands.
"""

from __future__ import annotations

from typing import Any, ClassVar

from eventstore.events import Payload, register_event
from eventstore.events.own import READ_BACK

__all__ = ["KEY", "PydanticAIMessage", "PydanticAIRecord"]

KEY = "pydantic_ai"
"""The key in ``raw`` under which a message stands, with its id and that of the one before it."""


@register_event
class PydanticAIMessage(Payload):
    """A message of which nothing else is an event.

    Attributes:
        raw: The message, under the key ``pydantic_ai``.
    """

    type: ClassVar[str] = "pydantic_ai.message"

    raw: Any


@register_event
class PydanticAIRecord(Payload):
    """What a conversation store of Pydantic AI's knows of a conversation besides its messages.

    Attributes:
        record: The framework's `ConversationRecord`; None where the conversation was deleted.
    """

    type: ClassVar[str] = "pydantic_ai.record"

    record: Any = None


READ_BACK.add(PydanticAIRecord)
