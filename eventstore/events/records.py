"""Events around their payloads: what a writer hands in, and what the store gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from eventstore.events.base import Payload
from eventstore.events.meta import NO_META, Meta
from eventstore.events.registry import UnknownEvent

__all__ = ["EventData", "NewEvent", "RecordedEvent"]

EventData = Payload | UnknownEvent


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. Give an ``event_id`` to make a retry of the append idempotent."""

    data: EventData
    event_id: UUID | None = None
    meta: Meta = NO_META


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as the store keeps it; ``data`` is None once it has been erased.

    ``version`` is its gapless place in the conversation, from 1. ``position`` grows over the
    whole store, may have gaps, and proves no order. ``quotable`` says that it was read from a row
    in which SQL finds the texts of the payload, as they are; it is no part of the fact.
    """

    conversation_id: UUID
    version: int
    event_id: UUID
    position: int
    type: str
    schema_version: int
    recorded_at: datetime
    data: EventData | None
    meta: Meta
    data_digest: bytes = field(repr=False)
    chain: bytes = field(repr=False)
    quotable: bool = field(default=False, repr=False, compare=False)

    @property
    def occurred_at(self) -> datetime:
        """When it happened: by the source's clock if that was given, else by the store's."""
        return self.meta.occurred_at or self.recorded_at

    @property
    def erased(self) -> bool:
        """Whether the payload is gone for good."""
        return self.data is None
