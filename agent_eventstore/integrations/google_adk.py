"""`EventStoreSessionService`: Google ADK sessions in the event store; the extra ``google-adk``.

ADK reads back exactly the events that it wrote. The adapter records them as the catalogue's events,
so that timeline, usage, tool audit, messages[], search and `verify` work on them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

from google.adk.events.event import Event
from google.adk.platform import uuid
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)

from agent_eventstore.integrations.conversation_events import (
    events_before,
    newest_events,
    store_of,
)
from agent_eventstore.integrations.conversation_finding import ends_with, forks_with
from agent_eventstore.integrations.google_adk_events import GoogleADKState
from agent_eventstore.integrations.google_adk_log import Named, SessionLog
from agent_eventstore.integrations.google_adk_reading import SessionEvents
from agent_eventstore.integrations.google_adk_state import (
    KnownSession,
    json_of,
    key_of,
    known_in,
    shared_by,
)
from eventstore import AsyncEventStore, EventStore
from eventstore.threads import in_thread

__all__ = ["EventStoreSessionService"]

_NEAR = 100  # newest events of a session object that are checked for a repeated delivery


class EventStoreSessionService(BaseSessionService):
    """A session service that stores each session as a conversation of the session's user.

    An append is one transaction, including the changes to the user's and the app's state. A session
    object is stale once another writer has appended to its session. `delete_session` erases.

    Args:
        store: The store; it stays open. A store from `EventStore.for_owner` sees only the sessions
            of its tenant.
    """

    def __init__(self, store: EventStore | AsyncEventStore) -> None:
        self.store = store_of(store)
        self._log, self._events = SessionLog(self.store), SessionEvents(self.store)
        self.answering = self._log.answering  # model calls of recorded streams

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session, with a new id unless one is given.

        Raises:
            AlreadyExistsError: A session with this id exists.
        """
        chosen = (session_id or "").strip() or uuid.new_uuid()
        return await in_thread(self._create, (app_name, user_id, chosen), state or {})

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session; with ``num_recent_events``, reads only the end of the log."""
        return await in_thread(self._get, (app_name, user_id, (session_id or "").strip()), config)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of an app without their events, the most recently changed last."""
        return await in_thread(self._list, app_name, user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session; the state of its user and app stays."""
        await in_thread(self._delete, (app_name, user_id, (session_id or "").strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share, without key prefixes."""
        return await in_thread(shared_by, self.store, key_of(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session and to its object; a partial event is not stored.

        An event that equals one of the newest hundred of the object changes nothing.

        Raises:
            SessionNotFoundError: The session does not exist.
            StaleSessionError: Another writer has appended to the session since the object was read.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        if any(each == event for each in session.events[-_NEAR:] if each.id == event.id):
            return event
        named = session.app_name, session.user_id, session.id
        await in_thread(self._log.append, named, session, event)
        return await super().append_event(session, event)

    def _create(self, named: Named, state: dict[str, Any]) -> Session:
        return self._session(named, self._log.create(named, json_of(state)), [])

    def _get(self, named: Named, config: GetSessionConfig | None) -> Session | None:
        most, since = (config.num_recent_events, config.after_timestamp) if config else (None, None)
        stream = self.store.stream(key_of(*named))
        head, events = self._events.newest(stream, None if since else most)
        known = self._log.at(named, head.version)
        if known is None:
            return None
        if since:
            late = [each for each in events if each.timestamp >= since]
            events = late if most is None else late[max(len(late) - most, 0) :]
        return self._session(named, known, events)

    def _session(
        self,
        named: Named,
        known: KnownSession,
        events: list[Event],
        shared: Callable[[str], dict[str, Any]] | None = None,
    ) -> Session:
        app, user, own = named
        shared = shared or partial(shared_by, self.store)
        state = copy.deepcopy(known.state)
        for prefix, whose in ((State.APP_PREFIX, [app]), (State.USER_PREFIX, [app, user])):
            state |= {prefix + name: value for name, value in shared(key_of(*whose)).items()}
        session = Session(
            app_name=app,
            user_id=user,
            id=own,
            state=state,
            events=events,
            last_update_time=known.updated,
        )
        session._storage_update_marker = known.marker
        return session

    def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        begins = key_of(app_name, *([] if user_id is None else [user_id])) + "/"
        ends = ends_with(self.store, GoogleADKState.type, begins=begins)
        known = [(key, known_in(events)) for key, events in ends]
        known += [
            (key, known_in(events_before(self.store, self.store.stream(key))))
            for key in forks_with(self.store, GoogleADKState.type, begins=begins)
        ]
        shared = cache(partial(shared_by, self.store))
        found = [
            self._session((app_name, user, own), each, [], shared)
            for key, each in known
            for _, user, own in [map(unquote, key.split("/"))]
            if each is not None
        ]
        found.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=found)

    def _delete(self, named: Named) -> None:
        stream = self.store.stream(key_of(*named))
        if newest_events(self.store, stream, 1):
            self.store.erase(
                key_of(*named), reason="the session was deleted", user_id=named[1] or None
            )
        # Not earlier: a concurrent read would cache the session again.
        self._log.forget(named)
        self._events.forget(stream)
