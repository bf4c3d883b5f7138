"""The metadata that an event carries beside its payload: where in the conversation, and by whom."""

from __future__ import annotations

from eventstore.events.base import UtcDatetime, Value
from eventstore.events.bounds import Count, Name, Ordinal
from eventstore.events.values import Mode

__all__ = ["NO_META", "Meta"]


class Meta(Value):
    """Where an event belongs, and who caused it; every field may be unknown.

    Turns count from 1 within the conversation, steps from 0 within the turn (document 001).
    ``occurred_at`` is the source's own clock for facts that are recorded later than they
    happened, such as imported ones; without it the event's ``recorded_at`` tells the time.
    ``in_context`` false keeps the event out of messages[] views.
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


NO_META = Meta()
"""Metadata of which nothing is known."""
