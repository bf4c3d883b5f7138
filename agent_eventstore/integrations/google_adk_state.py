"""What is known of a session of Google's ADK: its state, folded from the events behind it.

What all sessions of an app, or of a user, share is a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from google.adk.sessions import Session, State
from pydantic_core import to_jsonable_python

from agent_eventstore.integrations.conversation_events import events_before
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.google_adk_events import (
    GoogleADKShared,
    GoogleADKState,
    event_in,
)
from eventstore import NO_STREAM, EventStore
from eventstore.events import JsonObject
from eventstore.events.codec import dumps, loads_json
from eventstore.sql.read import EventText

__all__ = [
    "KnownSession",
    "begin_of",
    "deltas_of",
    "is_current",
    "json_of",
    "key_of",
    "known_in",
    "place_in",
    "share",
    "shared_by",
]

_MOST_EVENTS = 100  # between two snapshots of a session's state
_LEAST_BYTES = 4096  # of changes, between two of them
_NEAR = 100  # of the newest events, by which the next one is placed


@dataclass
class KnownSession:
    """A session as it stands at a version."""

    places: Places
    state: dict[str, Any] = field(default_factory=dict)
    updated: float = 0.0
    last: str = ""
    events: int = 0
    changed: int = 0

    @property
    def marker(self) -> str:
        """What session objects are told apart by: the newest event, or when it was begun."""
        return self.last or repr(self.updated)

    def take(self, event: JsonObject) -> None:
        """Fold a further ADK event."""
        self.last, self.updated = event["id"], event["timestamp"]
        self.events += 1
        if delta := deltas_of(event)[2]:
            self.state.update(delta)
            self.changed += len(dumps(delta))

    @property
    def is_due(self) -> bool:
        """Whether the state is to be written as a whole, so that nobody reads far back for it."""
        many = self.changed > _LEAST_BYTES and self.changed > len(dumps(self.state))
        return many or self.events >= _MOST_EVENTS


def key_of(*names: str) -> str:
    """Return the key of a session, of what a user's share, or of what an app's share."""
    return "/".join(quote(each, safe="@:+") for each in names)


def deltas_of(event: JsonObject) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what an event changes: of the app's state, the user's, and the session's own."""
    app, user, own = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for key, value in ((event.get("actions") or {}).get("state_delta") or {}).items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return app, user, own


def json_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as ADK's own services keep it: whole models, and texts of what is no JSON."""
    told: dict[str, Any] = to_jsonable_python(state, serialize_unknown=True, inf_nan_mode="null")
    return told


def place_in(event: JsonObject) -> tuple[Any, ...]:
    """Return the run and the agent of an ADK event, which streams one answer at a time."""
    return event["invocation_id"], event["author"]


def is_current(session: Session, known: KnownSession) -> bool:
    """Whether a session object has all that was appended."""
    if (marker := session._storage_update_marker) is not None:
        return bool(marker == known.marker)
    if known.last and session.events:
        return bool(session.events[-1].id == known.last)
    return bool(known.updated <= session.last_update_time)


def known_in(backward: Iterable[EventText]) -> KnownSession | None:
    """Return how a session stands by its events, newest first; None if there is none of its own."""
    newest, behind = list[EventText](), list[JsonObject]()
    for event in backward:
        if len(newest) < _NEAR:
            newest.append(event)
        if (told := event_in(event)) is not None:
            behind.append(told)
        elif event.type == GoogleADKState.type and event.text is not None:
            snapshot = loads_json(event.text)
            known = KnownSession(Places.after(newest), snapshot["state"], snapshot["updated"])
            for each in reversed(behind):
                known.take(each)
            return known
    return None


def begin_of(invocation_id: str, backward: Iterable[EventText]) -> int:
    """Return the version at which an invocation begins, by events newest first; 0 if none is it."""
    first = 0
    for event in backward:
        told = event_in(event)
        if told is not None and told.get("invocation_id") == invocation_id:
            first = event.version
        elif told is not None and first:
            return event.version + 1
    return first


def shared_by(store: EventStore, key: str) -> dict[str, Any]:
    """Return the state that is shared under a key, without prefixes."""
    return _shared_at(store, key)[1]


def share(
    store: EventStore, key: str, delta: dict[str, Any], user_id: str | None, connection: Any
) -> None:
    """Change what is shared under a key, in the caller's transaction."""
    if delta:
        version, state = _shared_at(store, key)
        store.append(
            key,
            GoogleADKShared(state=state | delta),
            expected_version=version or NO_STREAM,
            user_id=user_id,
            connection=connection,
        )


def _shared_at(store: EventStore, key: str) -> tuple[int, dict[str, Any]]:
    """Return the state that sessions share, and the version that its conversation is at."""
    newest = 0
    for event in events_before(store, store.stream(key), first=1):
        newest = newest or event.version
        if event.type == GoogleADKShared.type and event.text is not None:
            return newest, loads_json(event.text)["state"]
    return newest, {}
