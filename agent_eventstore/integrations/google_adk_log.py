"""The sessions of Google's ADK as conversations of the log: where each stands, and what it gains.

An append is one transaction, with what it changes of the user's and the app's state.
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

from agent_eventstore.integrations.conversation_events import attempts, events_before, newest_events
from agent_eventstore.integrations.conversation_memory import Memory
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.google_adk_events import (
    GoogleADKState,
    events_of,
)
from agent_eventstore.integrations.google_adk_state import (
    KnownSession,
    begin_of,
    deltas_of,
    is_current,
    json_of,
    key_of,
    known_in,
    place_in,
    share,
)
from eventstore import NO_STREAM, EventStore, NewEvent
from eventstore.errors import WrongExpectedVersion
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    Retraction,
    VersionRange,
)
from eventstore.events.codec import loads_json
from eventstore.sql.read import EventText

try:
    from google.adk.errors._stale_session_error import StaleSessionError
except ImportError:  # it is internal to ADK
    StaleSessionError = ValueError

__all__ = ["Named", "SessionLog"]

Named = tuple[str, str, str]
"""The app, the user, and the session."""

_TAIL = 100  # of the newest events, looked at to learn where a session stands
_MOST_KNOWN = 256
_STRIPES = 64


class SessionLog:
    """A store's sessions. Where the latest ones stand is kept in memory.

    Attributes:
        answering: The calls of streams that are recorded, by run and agent.
    """

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.answering: dict[tuple[Any, ...], str] = {}
        self._sessions: Memory[KnownSession] = Memory(_MOST_KNOWN)
        self._locks = tuple(threading.RLock() for _ in range(_STRIPES))

    def at(self, named: Named, version: int) -> KnownSession | None:
        """Return a session as it stands at its conversation's version; None if it has none."""
        with self._lock(named):
            known = self._sessions.get(key_of(*named))
            return known if known and known.places.version == version else self._known(named)

    def create(self, named: Named, state: dict[str, Any]) -> KnownSession:
        """Begin a session with a state that is JSON, by the prefixes of its names.

        Raises:
            AlreadyExistsError: There is one of that name.
        """
        app, user, own = deltas_of({"actions": {"state_delta": state}})
        newest = newest_events(self.store, self.store.stream(key_of(*named)), _TAIL)
        if newest and self._known(named) is not None:
            raise AlreadyExistsError(f"Session with id {named[2]} already exists.")
        places = Places.after(newest)
        begun = places.begin()
        known = KnownSession(places, own, time.get_time())
        snapshot = places.put(GoogleADKState(state=own, updated=known.updated))
        try:
            self._write(named, places, [*begun, snapshot], app, user)
        except WrongExpectedVersion as error:
            raise AlreadyExistsError(f"Session with id {named[2]} already exists.") from error
        self._sessions.keep(key_of(*named), known)
        return known

    def append(self, named: Named, session: Session, event: Event) -> None:
        """Append an event, and tell the session object where it stands then.

        Raises:
            SessionNotFoundError: There is no such session.
            StaleSessionError: Somebody else has appended to it since the object was read.
        """
        with self._lock(named):
            self._append(named, session, event)

    def forget(self, named: Named) -> None:
        """Forget where a session stands."""
        self._sessions.take(key_of(*named))

    def _append(self, named: Named, session: Session, event: Event) -> None:
        told = loads_json(event.model_dump_json(exclude_none=True))
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
                    f"session {session.id} was appended to since it was read: get it again"
                )
            self.forget(named)
            events = self._events(named, known, told)
            with attempt:
                self._write(named, known.places, events, app, user)
                if isinstance(events[-1].data, AssistantMessage):
                    self.answering.pop(place_in(told), None)
                known.take(told)
                self._sessions.keep(key_of(*named), known)
                session.last_update_time, session._storage_update_marker = (
                    known.updated,
                    known.marker,
                )
                return

    def _events(self, named: Named, known: KnownSession, told: JsonObject) -> list[NewEvent]:
        """Return the events of an ADK event, after a snapshot of the state if one is due."""
        events: list[NewEvent] = []
        if known.is_due:
            snapshot = GoogleADKState(state=known.state, updated=known.updated)
            events.append(known.places.put(snapshot))
            known.events = known.changed = 0
        if before := (told.get("actions") or {}).get("rewind_before_invocation_id"):
            if first := begin_of(before, self._backward(key_of(*named))):
                gone = VersionRange(first=first, last=known.places.version)
                events.append(known.places.put(Retraction(versions=(gone,), reason="rewind")))
        return events + events_of(told, known.places, self.answering.get(place_in(told)))

    def _write(
        self, named: Named, places: Places, events: list[NewEvent], *shared: JsonObject
    ) -> None:
        """Append events, and what changes of the app's and of the user's state, as one."""
        app, user = shared
        own = partial(
            self.store.append,
            key_of(*named),
            events,
            expected_version=places.version - len(events) or NO_STREAM,
            user_id=named[1] or None,
        )
        if not app and not user:
            own()
            return
        with self.store.transaction() as connection:
            own(connection=connection)
            share(self.store, key_of(named[0]), app, None, connection)
            share(self.store, key_of(*named[:2]), user, named[1] or None, connection)

    def _known(self, named: Named) -> KnownSession | None:
        """Return a session as it stands now; None if there is none, or it was deleted."""
        known = known_in(self._backward(key_of(*named), _TAIL))
        if known is not None:
            self._sessions.keep(key_of(*named), known)
        return known

    def _backward(self, key: str, first: int | None = None) -> Iterator[EventText]:
        return events_before(self.store, self.store.stream(key), first=first)

    def _lock(self, named: Named) -> threading.RLock:
        return self._locks[hash(named) % _STRIPES]
