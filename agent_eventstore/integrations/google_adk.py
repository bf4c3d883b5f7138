"""`EventStoreSessionService`: sessions of Google's ADK on a store; the extra ``google-adk``.

Events come out as they went in. What the adapter writes are the catalogue's own events, so that
timeline, usage, tool audit, messages[], search and `verify` work on it.
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

from agent_eventstore.integrations.conversation_events import newest_events, store_of
from agent_eventstore.integrations.conversation_finding import ends_with
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
from agent_eventstore.journal_aio import in_thread
from eventstore import AsyncEventStore, EventStore

__all__ = ["EventStoreSessionService"]

_NEAR = 100  # of an object's newest events, among which one that is delivered again is looked for


class EventStoreSessionService(BaseSessionService):
    """Sessions whose events are events of a conversation, which belongs to the session's user.

    An append is one transaction, with what it changes of the user's and the app's state. A session
    object that somebody else has appended to since is stale. `delete_session` erases.

    Args:
        store: Where they are kept; it stays open. One of `EventStore.for_owner` keeps to the
            sessions of a tenant.
    """

    def __init__(self, store: EventStore | AsyncEventStore) -> None:
        self.store = store_of(store)
        self._log, self._events = SessionLog(self.store), SessionEvents(self.store)
        self.answering = self._log.answering  # the calls of streams that are recorded

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session, with an id of its own unless one is given.

        Raises:
            AlreadyExistsError: There is one of that id.
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
        """Return a session; with ``num_recent_events`` no more of the log is read than needed."""
        return await in_thread(self._get, (app_name, user_id, (session_id or "").strip()), config)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of an app, without events; the one that was changed last is last."""
        return await in_thread(self._list, app_name, user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session for good; the state of its user and app stays."""
        await in_thread(self._delete, (app_name, user_id, (session_id or "").strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return what all sessions of a user share, without prefixes."""
        return await in_thread(shared_by, self.store, key_of(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session and to its object; one that is partial is not kept.

        One that is among the newest hundred of the object already, equal in all, changes nothing.

        Raises:
            SessionNotFoundError: There is no such session.
            StaleSessionError: Somebody else has appended to it since the object was read.
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
        self._log.forget(named)
        self._events.forget(stream)
        if newest_events(self.store, stream, 1):
            self.store.erase(
                key_of(*named), reason="the session was deleted", user_id=named[1] or None
            )
