"""What the recorder takes out by itself: secrets in what products hand over without looking at it.

Parameters and declarations of requests, configurations, and the errors of providers, which echo
keys. What people, models and tools say is left alone: for that there is
``EventStore.open(redact=...)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventstore import NewEvent, redact_secrets
from eventstore.errors import RedactionFailed
from eventstore.events import (
    ConversationStart,
    LlmError,
    LlmRequest,
    RunEnd,
    RunStart,
    RunStepEnd,
    SessionStart,
    TurnEnd,
)
from eventstore.log import get_logger
from eventstore.redaction import Redactor, hidden, redacted

__all__ = ["facts", "without_secrets"]

_log = get_logger("agent_eventstore.secrets_out")

_FIELDS: dict[type, tuple[str, ...]] = {
    ConversationStart: ("config",),
    SessionStart: ("config",),
    LlmRequest: ("parameters", "tools"),
    LlmError: ("message", "raw"),
    TurnEnd: ("error", "raw"),
    RunStart: ("config",),
    RunStepEnd: ("error",),
    RunEnd: ("error",),
}


def without_secrets(events: Sequence[NewEvent]) -> Sequence[NewEvent]:
    """Return the events with the secrets marked that the recorder looks for."""
    if not any(type(event.data) in _FIELDS for event in events):
        return events
    return [_without_secrets(event) for event in events]


def _without_secrets(event: NewEvent) -> NewEvent:
    fields = _FIELDS.get(type(event.data))
    if fields is None:
        return event
    data = redacted(event.data, redact_secrets, only=fields)
    return event if data is event.data else replace(event, data=data)


def facts(events: Sequence[NewEvent], redact: Redactor | None) -> Sequence[NewEvent]:
    """Return what has happened as a store with this redactor takes it: facts are never refused.

    Where the redactor fails there is a placeholder; where it fails at its own results too, there is
    one for every text.
    """
    events = without_secrets(events)
    return events if redact is None else [_fact(event, redact) for event in events]


def _fact(event: NewEvent, redact: Redactor) -> NewEvent:
    for again in (redact, None):
        try:
            redacted(event.data, redact)
        except RedactionFailed as error:
            # Not the error's text, in which the redactor may quote what it was to take out.
            cause = type(error.__cause__).__name__
            _log.warning("placeholder: the redactor failed", type=event.data.type, error=cause)
            event = replace(event, data=hidden(event.data, again))
    return event
