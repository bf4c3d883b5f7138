"""Google ADK sessions as conversations of the log: their current state, and appends to them.

An append is one transaction, including the changes to the user's and the app's state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time
from google.adk.sessions import Session
from pydantic_core import PydanticSerializationError

from agent_eventstore.integrations.conversation_events import attempts, events_before, newest_events
from agent_eventstore.integrations.conversation_memory import Memory
from agent_eventstore.integrations.conversation_places import Places, requested_in
from agent_eventstore.integrations.google_adk_events import GoogleADKState
from agent_eventstore.integrations.google_adk_payloads import events_of, parts_in
from agent_eventstore.integrations.google_adk_state import (
    KnownSession,
    begin_of,
    deltas_of,
    is_current,
    json_of,
    key_of,
    known_in,
    place_in,
    results_before,
    share,
)
from eventstore import NO_STREAM, EventStore, NewEvent
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    Retraction,
    VersionRange,
)
from eventstore.events.codec import dumps, loads_json
from eventstore.sql.read import EventText
from projections.engine.folding import SEALS

try:
    from google.adk.errors._stale_session_error import StaleSessionError
except ImportError:  # the class is private to ADK
    StaleSessionError = ValueError

__all__ = ["Named", "SessionLog"]

Named = tuple[str, str, str]
"""The app name, user id and session id."""

_TAIL = 100  # newest events to read to find a session's current state
_MOST_KNOWN = 256
_STRIPES = 64


class SessionLog:
    """A store's sessions; the state of recently used ones is cached.

    Attributes:
        answering: The call ids of recorded streams, by invocation and agent.
    """

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.answering: dict[tuple[Any, ...], str] = {}
        self._sessions: Memory[KnownSession] = Memory(_MOST_KNOWN)
        self._locks = tuple(threading.RLock() for _ in range(_STRIPES))

    def at(self, named: Named, version: int) -> KnownSession | None:
        """Return a session as of a version of its conversation; None if it does not exist."""
        with self._lock(named):
            known = self._sessions.get(key_of(*named))
            return known if known and known.places.version == version else self._known(named)

    def create(self, named: Named, state: dict[str, Any]) -> KnownSession:
        """Create a session with a JSON state; key prefixes say what belongs to the app or the user.

        Raises:
            AlreadyExistsError: The session exists.
        """
        app, user, own = deltas_of({"actions": {"state_delta": state}})
        for attempt in attempts():  # others may create the session, or change the shared state
            newest = newest_events(self.store, self.store.stream(key_of(*named)), _TAIL)
            if newest and self._known(named) is not None:
                raise AlreadyExistsError(f"Session with id {named[2]} already exists.")
            places = Places.after(newest)
            begun = places.begin()
            known = KnownSession(places, own, time.get_time(), size=len(dumps(own)))
            snapshot = places.put(GoogleADKState(state=own, updated=known.updated))
            with attempt:
                self._write(named, places, [*begun, snapshot], app, user)
                self._sessions.keep(key_of(*named), known, known.size)
                return known
        raise AssertionError("the last attempt raises")

    def append(self, named: Named, session: Session, event: Event) -> None:
        """Append an event, and update the session object's marker.

        Raises:
            SessionNotFoundError: The session does not exist.
            StaleSessionError: Another writer has appended to the session since the object was read.
        """
        with self._lock(named):
            self._append(named, session, event)

    def forget(self, named: Named) -> None:
        """Remove a session from the cache."""
        self._sessions.take(key_of(*named))

    def _append(self, named: Named, session: Session, event: Event) -> None:
        told = _dumped(event)
        told["actions"]["state_delta"] = json_of(event.actions.state_delta)
        app, user, _ = deltas_of(told)
        for attempt in attempts():
            known = self._sessions.get(key_of(*named)) or self._known(named)
            if known is not None and not is_current(session, known):
                known = self._known(named)
            if known is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            if not is_current(session, known):
                raise StaleSessionError(
                    f"session {session.id} has changed since it was read: read it again"
                )
            self.forget(named)
            events = self._events(named, known, told)
            with attempt:
                self._write(named, known.places, events, app, user)
                if isinstance(events[-1].data, AssistantMessage):
                    self.answering.pop(place_in(told), None)
                known.take(told)
                self._sessions.keep(key_of(*named), known, known.size)
                session.last_update_time, session._storage_update_marker = (
                    known.updated,
                    known.marker,
                )
                return

    def _events(self, named: Named, known: KnownSession, told: JsonObject) -> list[NewEvent]:
        """Return the log events of an ADK event, after a snapshot of the state if one is due."""
        events: list[NewEvent] = []
        if known.is_due:
            snapshot = GoogleADKState(state=known.state, updated=known.updated)
            events.append(known.places.put(snapshot))
            known.events = known.changed = 0
            known.size = len(dumps(known.state))
        if before := (told.get("actions") or {}).get("rewind_before_invocation_id"):
            if first := begin_of(before, self._backward(key_of(*named))):
                gone = VersionRange(first=first, last=known.places.version)
                events.append(known.places.put(Retraction(versions=(gone,), reason="rewind")))
                before_it = self._backward(key_of(*named))
                for call_id, result in results_before(first, before_it).items():
                    final = result is not None and result.status not in SEALS and not result.interim
                    known.places.calls.settle(call_id, answered=final)
                    if result is not None:
                        events.append(known.places.put(result))
        self._find_calls(key_of(*named), known, told)
        return events + events_of(told, known.places, self.answering.get(place_in(told)))

    def _find_calls(self, key: str, known: KnownSession, told: JsonObject) -> None:
        """Find the calls of results whose calls are older than those that the session remembers."""
        calls = known.places.calls
        results = (each.get("function_response") for each in parts_in(told))
        ids = {each["id"] for each in results if each and isinstance(each.get("id"), str)}
        unknown = {own_id for own_id in ids if not calls.has(own_id)}
        for event in self._backward(key) if unknown else ():
            requests, by = (
                requested_in(event) if event.type == AssistantMessage.type else ((), None)
            )
            if found := unknown.intersection(each.provider_id for each in requests):
                unknown -= found
                calls.note(event.version, requests, by)
            if not unknown:
                break

    def _write(
        self, named: Named, places: Places, events: list[NewEvent], *shared: JsonObject
    ) -> None:
        """Append events and the changes to the app's and user's state, in one transaction."""
        app, user = shared
        own = partial(
            self.store.append,
            key_of(*named),
            events,
            expected_version=places.version - len(events) or NO_STREAM,
            user_id=named[1] or None,
            allow_empty=True,
        )
        if not app and not user:
            own()
            return
        with self.store.transaction() as connection:
            own(connection=connection)
            share(self.store, key_of(named[0]), app, None, connection)
            share(self.store, key_of(*named[:2]), user, named[1] or None, connection)

    def _known(self, named: Named) -> KnownSession | None:
        """Return a session's current state from the log; None if it does not exist."""
        known = known_in(self._backward(key_of(*named), _TAIL))
        if known is not None:
            self._sessions.keep(key_of(*named), known, known.size)
        return known

    def _backward(self, key: str, first: int | None = None) -> Iterator[EventText]:
        return events_before(self.store, self.store.stream(key), first=first)

    def _lock(self, named: Named) -> threading.RLock:
        return self._locks[hash(named) % _STRIPES]


def _dumped(event: Event) -> JsonObject:
    """Return an ADK event as JSON."""
    try:
        told: JsonObject = loads_json(event.model_dump_json(exclude_none=True))
    except PydanticSerializationError:  # a lone surrogate, which JSON can escape but UTF-8 cannot
        told = event.model_dump(mode="json", exclude_none=True)
    return told
