"""The current state of a Google ADK session, folded from its latest snapshot and later events.

The state that all sessions of an app, or of a user, share has its own conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

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
from eventstore.events import JsonObject, Retraction, ToolResult
from eventstore.events.codec import decode, dumps, loads_json
from eventstore.sql.read import END, EventText, read_texts
from projections.engine.folding import within

__all__ = [
    "KnownSession",
    "begin_of",
    "deltas_of",
    "is_current",
    "json_of",
    "key_of",
    "known_in",
    "place_in",
    "results_before",
    "share",
    "shared_by",
]

_MOST_EVENTS = 100  # at most, between two snapshots of a session's state
_LEAST_BYTES = 4096  # at least, of changes that cause an earlier snapshot
_NEAR = 100  # newest events used to place the next one


@dataclass
class KnownSession:
    """A session's state as of a version."""

    places: Places
    state: dict[str, Any] = field(default_factory=dict)
    updated: float = 0.0
    last: str = ""
    events: int = 0
    changed: int = 0
    size: int = 0
    """The approximate size of the state's JSON, in characters."""

    @property
    def marker(self) -> str:
        """The id of the newest event, or else the creation time; a stale object has another one."""
        return self.last or repr(self.updated)

    def take(self, event: JsonObject) -> None:
        """Fold the next ADK event."""
        self.last, self.updated = event["id"], event["timestamp"]
        self.events += 1
        if delta := deltas_of(event)[2]:
            self.state.update(delta)
            self.changed += (size := len(dumps(delta)))
            self.size += size

    @property
    def is_due(self) -> bool:
        """Whether a snapshot of the state is due, so that readers need not read far back."""
        many = self.changed > _LEAST_BYTES and self.changed > len(dumps(self.state))
        return many or self.events >= _MOST_EVENTS


def key_of(*names: str) -> str:
    """Return the key of a session, or of the shared state of a user or an app."""
    return "/".join(quote(each, safe="@:+") for each in names)


def deltas_of(event: JsonObject) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return an ADK event's changes to the app's, the user's and the session's own state."""
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
    """Return a state as JSON, as ADK's services do: models as objects, unknown values as text."""
    told: dict[str, Any] = to_jsonable_python(state, serialize_unknown=True, inf_nan_mode="null")
    return told


def place_in(event: JsonObject) -> tuple[Any, ...]:
    """Return an ADK event's invocation and agent; an agent streams one answer at a time."""
    return event["invocation_id"], event["author"]


def is_current(session: Session, known: KnownSession) -> bool:
    """Whether a session object includes everything that was appended to the session."""
    if (marker := session._storage_update_marker) is not None:
        return bool(marker == known.marker)
    if known.last and session.events:
        return bool(session.events[-1].id == known.last)
    return bool(known.updated <= session.last_update_time)


def known_in(backward: Iterable[EventText]) -> KnownSession | None:
    """Return a session's state from its events, newest first; None if they hold no snapshot."""
    newest, behind = list[EventText](), list[JsonObject]()
    for event in backward:
        if len(newest) < _NEAR:
            newest.append(event)
        if (told := event_in(event)) is not None:
            behind.append(told)
        elif event.type == GoogleADKState.type and event.text is not None:
            snapshot = loads_json(event.text)
            places, size = Places.after(newest), len(event.text)
            known = KnownSession(places, snapshot["state"], snapshot["updated"], size=size)
            for each in reversed(behind):
                known.take(each)
            return known
    return None


def begin_of(invocation_id: str, backward: Iterable[EventText]) -> int:
    """Return the version at which an invocation first begins, from events newest first, or 0."""
    first = 0
    is_open = False
    for event in backward:
        if (told := event_in(event)) is None:
            continue
        if told.get("invocation_id") == invocation_id:
            first, is_open = event.version, True
        elif is_open:  # the events before the last one of an ADK event belong to it
            first, is_open = event.version + 1, False
    return first


def results_before(first: int, backward: Iterable[EventText]) -> dict[str, ToolResult | None]:
    """Return what a rewind makes the results of calls again, by the calls' own ids.

    Args:
        first: The first version that is withdrawn.
        backward: All events, newest first.

    Returns:
        For each call before ``first`` whose result is withdrawn, its newest result that stays, if
        there is one.
    """
    found: dict[str, ToolResult | None] = {}
    gone: list[tuple[int, int]] = []
    for event in backward:
        if event.text is None:
            continue
        if event.type == Retraction.type:
            versions = loads_json(event.text)["versions"]
            gone += [(each["first"], each["last"]) for each in versions]
        elif event.type == ToolResult.type and not within(gone, event.version):
            call = loads_json(event.text)["call_id"]
            if event.version >= first:
                if int(call.partition(".")[0]) < first:
                    found[call] = None
            elif call in found and found[call] is None:
                data = decode(event.type, event.schema_version, event.text)
                if isinstance(data, ToolResult):
                    found[call] = data.model_copy(update={"raw": None})
    return found


def shared_by(store: EventStore, key: str) -> dict[str, Any]:
    """Return the shared state stored under a key, without key prefixes."""
    return _shared_in(events_before(store, store.stream(key), first=1))[1]


def share(
    store: EventStore, key: str, delta: dict[str, Any], user_id: str | None, connection: Any
) -> None:
    """Change the shared state stored under a key, in the caller's transaction."""
    if delta:
        version, state = _shared_in(_backward(connection, store.stream(key)))
        store.append(
            key,
            GoogleADKShared(state=state | delta),
            expected_version=version or NO_STREAM,
            user_id=user_id,
            connection=connection,
        )


def _backward(connection: Any, stream: UUID) -> Iterator[EventText]:
    """Yield a conversation's events, newest first, in the caller's transaction."""
    before, size = END, 1
    while page := read_texts(connection, stream, before=before, backward=True, limit=size):
        yield from page
        before, size = page[-1].version, _NEAR


def _shared_in(backward: Iterable[EventText]) -> tuple[int, dict[str, Any]]:
    """Return the version of a shared state's conversation, and the state, from its events."""
    newest = 0
    for event in backward:
        newest = newest or event.version
        if event.type == GoogleADKShared.type and event.text is not None:
            return newest, loads_json(event.text)["state"]
    return newest, {}
