"""Google ADK's own event types, readable without ADK, and its events in the events of the log."""

from __future__ import annotations

from typing import Any, ClassVar

from eventstore.events import JsonObject, Payload, register_event
from eventstore.events.codec import loads_json
from eventstore.sql.read import EventText

__all__ = ["KEY", "GoogleADKEvent", "GoogleADKShared", "GoogleADKState", "event_in"]

KEY = "google_adk"
"""The key in ``raw`` that holds an ADK event."""


@register_event
class GoogleADKEvent(Payload):
    """An ADK event that yields no other event, such as a change of state.

    Attributes:
        raw: The ADK event, under the key ``google_adk``.
    """

    type: ClassVar[str] = "google_adk.event"

    raw: Any


@register_event
class GoogleADKState(Payload):
    """A snapshot of a session's state; later ADK events change it.

    Attributes:
        state: The session's own state, without that of its user and app.
        updated: The time of the last change, in seconds since 1970.
    """

    type: ClassVar[str] = "google_adk.state"

    state: JsonObject
    updated: float


@register_event
class GoogleADKShared(Payload):
    """The state that all sessions of a user, or of an app, share.

    Attributes:
        state: The whole state; a newer event replaces it.
    """

    type: ClassVar[str] = "google_adk.shared_state"

    state: JsonObject


def event_in(event: EventText) -> JsonObject | None:
    """Return the ADK event in the ``raw`` of a log event, as JSON; None if it has none."""
    if event.text is None or f'"{KEY}"' not in event.text:
        return None
    raw = loads_json(event.text).get("raw")
    return raw.get(KEY) if isinstance(raw, dict) else None
