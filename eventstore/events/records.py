"""Events around their payloads: what a writer hands in, what the store returns, their metadata."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from uuid import UUID

from eventstore.events.base import Payload, UtcDatetime, Value
from eventstore.events.bounds import Count, Extra, Name, Ordinal
from eventstore.events.registry import UnknownEvent
from eventstore.events.values import Mode

__all__ = ["NO_META", "EventData", "Meta", "NewEvent", "RecordedEvent", "recorded"]


class Meta(Value):
    """Where an event belongs, and who caused it; every field may be unknown.

    Turns count from 1 within the conversation, steps from 0 within the turn (document 001).
    ``occurred_at`` is the source's own clock for facts that are recorded later than they
    happened, such as imported ones; without it the event's ``recorded_at`` tells the time.
    ``in_context`` false keeps the event out of messages[] views.

    Attributes:
        session_id: The session that the event belongs to.
        turn: The turn, counted from 1 within the conversation.
        step: The step, counted from 0 within the turn.
        mode: The mode at that moment.
        run_id: The run, if it belongs to one.
        workflow_id: The workflow of that run.
        agent_id: The agent that acts, where there are several.
        actor: Who wrote it: a user's id, ``recovery``, or what the product calls it.
        causation_id: What caused it, by the product's id.
        correlation_id: What it belongs with, by the product's id.
        in_context: Whether messages[] views may show it.
        occurred_at: When it happened by the source's clock, if that is known.
        trace_id: The trace that it was recorded in, in hexadecimal, where somebody traces.
        span_id: The span of its turn, model call or tool in that trace, in hexadecimal.
        extra: What the product keeps with the event, at most 2 KB of JSON; erased with the payload.
    """

    session_id: Name | None = None
    turn: Ordinal | None = None
    step: Count | None = None
    mode: Mode | None = None
    run_id: Name | None = None
    workflow_id: Name | None = None
    agent_id: Name | None = None
    actor: Name | None = None
    causation_id: Name | None = None
    correlation_id: Name | None = None
    in_context: bool = True
    occurred_at: UtcDatetime | None = None
    trace_id: Name | None = None
    span_id: Name | None = None
    extra: Extra | None = None


NO_META = Meta()
"""Metadata of which nothing is known."""


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
    in which SQL finds the texts of the payload, as they are; it is not part of the fact. Nor is
    ``inherited``: a fork reads the event from its parent, whose it is.
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
    inherited: bool = field(default=False, repr=False, compare=False)
    occurred_at: datetime = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Tell the time once: every fold asks for it."""
        told: datetime | None = vars(self.meta)["occurred_at"]  # in a third of a model's own time
        object.__setattr__(self, "occurred_at", told or self.recorded_at)

    @property
    def erased(self) -> bool:
        """Whether the payload is gone for good."""
        return self.data is None


_new = object.__new__
(
    _conversation_id,
    _version,
    _event_id,
    _position,
    _type,
    _schema_version,
    _recorded_at,
    _data,
    _meta,
    _data_digest,
    _chain,
    _quotable,
    _inherited,
    _occurred_at,
) = (getattr(RecordedEvent, each.name).__set__ for each in fields(RecordedEvent))


def recorded(
    conversation_id: UUID,
    version: int,
    event_id: UUID,
    position: int,
    kind: str,
    schema_version: int,
    recorded_at: datetime,
    data: EventData | None,
    meta: Meta,
    data_digest: bytes,
    chain: bytes,
    quotable: bool,
    inherited: bool,
) -> RecordedEvent:
    """Return the event that `RecordedEvent` makes of these, in less than half of the time.

    For reads: a frozen class's own initialiser looks each field up by its name.
    """
    event = _new(RecordedEvent)
    _conversation_id(event, conversation_id)
    _version(event, version)
    _event_id(event, event_id)
    _position(event, position)
    _type(event, kind)
    _schema_version(event, schema_version)
    _recorded_at(event, recorded_at)
    _data(event, data)
    _meta(event, meta)
    _data_digest(event, data_digest)
    _chain(event, chain)
    _quotable(event, quotable)
    _inherited(event, inherited)
    _occurred_at(event, vars(meta)["occurred_at"] or recorded_at)
    return event
