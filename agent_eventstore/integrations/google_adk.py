"""`EventStoreSessionService`: sessions of Google's ADK on a store; the extra ``google-adk``.

Events come out as they went in. What the adapter writes are the catalogue's own events, so that
timeline, usage, tool audit, messages[], search and `verify` work on it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import unquote
from uuid import UUID

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time, uuid
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from pydantic_core import to_jsonable_python

from agent_eventstore.integrations.conversation_finding import ends_with
from agent_eventstore.integrations.conversation_head import Head, attempts, news_of
from agent_eventstore.integrations.conversation_memory import Memory, Objects
from agent_eventstore.integrations.conversation_pages import (
    events_after,
    events_before,
    newest_events,
)
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.google_adk_events import (
    GoogleADKShared,
    GoogleADKState,
    event_in,
    events_of,
)
from agent_eventstore.integrations.google_adk_state import (
    KnownSession,
    ReadSession,
    deltas_of,
    is_current,
    key_of,
    known_in,
    place_in,
)
from agent_eventstore.journal_aio import in_thread
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent
from eventstore.errors import WrongExpectedVersion
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
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

__all__ = ["EventStoreSessionService"]

T = TypeVar("T")
Named = tuple[str, str, str]
"""The app, the user, and the session."""

_TAIL = 100  # of the newest events, looked at to learn where a session stands
_MOST_KNOWN = 256
_STRIPES = 64


class EventStoreSessionService(BaseSessionService):
    """Sessions whose events are events of a conversation, which belongs to the session's user.

    An append is one transaction, with what it changes of the user's and the app's state. A session
    object that somebody else has appended to since is stale. `delete_session` erases.

    Args:
        store: Where they are kept; it stays open. One of `EventStore.for_owner` keeps to the
            sessions of a tenant.
    """

    def __init__(self, store: EventStore | AsyncEventStore) -> None:
        self.store = store.store if isinstance(store, AsyncEventStore) else store
        self._sessions: dict[Named, KnownSession] = {}
        self._memory: Memory[ReadSession] = Memory()
        self.answering: dict[tuple[Any, ...], str] = {}  # the calls of streams that are recorded
        self._locks = tuple(threading.RLock() for _ in range(_STRIPES))

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
        return await self._run(self._create, (app_name, user_id, chosen), state or {})

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session; with ``num_recent_events`` no more of the log is read than needed."""
        return await self._run(self._get, (app_name, user_id, session_id.strip()), config)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of an app, without events; the one that was changed last is last."""
        return await self._run(self._list, app_name, user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session for good; the state of its user and app stays."""
        await self._run(self._delete, (app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return what all sessions of a user share, without prefixes."""
        return await self._run(self._shared, key_of(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session and to its object; one that is partial is not kept.

        Raises:
            SessionNotFoundError: There is no such session.
            StaleSessionError: Somebody else has appended to it since the object was read.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await self._run(self._append_alone, session, event)
        return await super().append_event(session, event)

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        """Do what asks the database in a thread, to its end even if the caller is cancelled."""
        return await in_thread(partial(work, *given))

    def _lock(self, named: Named) -> threading.RLock:
        return self._locks[hash(named) % _STRIPES]

    def _create(self, named: Named, state: dict[str, Any]) -> Session:
        app, user, own = deltas_of(
            {"actions": {"state_delta": to_jsonable_python(state, serialize_unknown=True)}}
        )
        newest = newest_events(self.store, self.store.stream(key_of(*named)), _TAIL)
        if newest and self._known(named) is not None:
            raise AlreadyExistsError(f"Session with id {named[2]} already exists.")
        places = Places.after(newest)
        begun = [] if newest else [places.put(ConversationStart(mode="agent"))]
        known = KnownSession(places, own, time.get_time())
        snapshot = places.put(GoogleADKState(state=own, updated=known.updated))
        try:
            self._write(named, places, [*begun, snapshot], app, user)
        except WrongExpectedVersion as error:
            raise AlreadyExistsError(f"Session with id {named[2]} already exists.") from error
        self._remember(named, known)
        return self._session(named, known, [])

    def _get(self, named: Named, config: GetSessionConfig | None) -> Session | None:
        stream = self.store.stream(key_of(*named))
        read = self._memory.get(stream)
        with self.store._on_driver() as connection:
            head, page = news_of(connection, stream, read and read.head)
        with self._lock(named):
            known = self._sessions.get(named)
            if known is None or known.places.version != head.version:
                known = self._known(named)
        if known is None:
            return None
        most, since = (config.num_recent_events, config.after_timestamp) if config else (None, None)
        limit = None if since else most
        if read is None or page is None or not read.has(limit):
            events, read = self._read(stream, head, limit)
        else:
            if page:
                read = ReadSession(head, read.events.followed_by(_built(page)), read.complete)
            events = read.events.newest(limit)
        if read is not None:
            self._memory.keep(stream, read, read.events.size)
        if since:
            late = [each for each in events if each.timestamp >= since]
            events = late if most is None else late[max(len(late) - most, 0) :]
        return self._session(named, known, events)

    def _read(
        self, stream: UUID, head: Head, limit: int | None
    ) -> tuple[list[Event], ReadSession | None]:
        """Read the newest events up to a head, or all of them, and what to keep in memory."""
        if limit is None:
            events = _built(events_after(self.store, stream, 0, before=head.version + 1))
        else:
            before = events_before(self.store, stream, head.version + 1, first=2 * limit + 2)
            found = [*islice((each for each in before if event_in(each)), limit)]
            events = _built(found[::-1])
        if head.is_fork or not self._memory.asked_again(stream):
            return events, None
        complete = limit is None or len(events) < limit
        return events, ReadSession(head, Objects().followed_by(events), complete)

    def _session(
        self,
        named: Named,
        known: KnownSession,
        events: list[Event],
        shared: Callable[[str], dict[str, Any]] | None = None,
    ) -> Session:
        app, user, own = named
        shared = shared or self._shared
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
        session._storage_update_marker = known.last
        return session

    def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        begins = key_of(app_name, *([] if user_id is None else [user_id])) + "/"
        ends = ends_with(self.store, GoogleADKState.type, begins=begins)
        known = [(key, known_in(events)) for key, events in ends]
        shared = cache(self._shared)
        found = [
            self._session((app_name, user, own), each, [], shared)
            for key, each in known
            for _, user, own in [map(unquote, key.split("/"))]
            if each is not None
        ]
        found.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=found)

    def _delete(self, named: Named) -> None:
        self._sessions.pop(named, None)
        self._memory.take(self.store.stream(key_of(*named)))
        if newest_events(self.store, self.store.stream(key_of(*named)), 1):
            self.store.erase(key_of(*named), reason="the session was deleted", user_id=named[1])

    def _append_alone(self, session: Session, event: Event) -> None:
        named = session.app_name, session.user_id, session.id
        with self._lock(named):
            self._append(named, session, event)

    def _append(self, named: Named, session: Session, event: Event) -> None:
        told = loads_json(event.model_dump_json(exclude_none=True))
        app, user, _ = deltas_of(told)
        for attempt in attempts():
            known = self._sessions.get(named) or self._known(named)
            if known is not None and not is_current(session, known):
                known = self._known(named)
            if known is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            if not is_current(session, known):
                raise StaleSessionError(
                    f"session {session.id} was appended to since it was read: get it again"
                )
            self._sessions.pop(named, None)
            events = self._events(named, known, told)
            with attempt:
                self._write(named, known.places, events, app, user)
                if isinstance(events[-1].data, AssistantMessage):
                    self.answering.pop(place_in(told), None)
                known.take(told)
                self._remember(named, known)
                session.last_update_time, session._storage_update_marker = known.updated, known.last
                return

    def _events(self, named: Named, known: KnownSession, told: JsonObject) -> list[NewEvent]:
        """Return the events of an ADK event, after a snapshot of the state if one is due."""
        events: list[NewEvent] = []
        if known.is_due:
            snapshot = GoogleADKState(state=known.state, updated=known.updated)
            events.append(known.places.put(snapshot))
            known.events = known.changed = 0
        if before := (told.get("actions") or {}).get("rewind_before_invocation_id"):
            events += self._retracting(named, before, known.places)
        return events + events_of(told, known.places, self.answering.get(place_in(told)))

    def _retracting(self, named: Named, before: str, places: Places) -> list[NewEvent]:
        """Return what withdraws the events of an invocation, and all after it."""
        first, last = 0, places.version
        for event in self._backward(key_of(*named)):
            told = event_in(event)
            if told is not None and told.get("invocation_id") == before:
                first = event.version
            elif told is not None and first:
                first = event.version + 1
                break
        if not first:
            return []
        gone = VersionRange(first=first, last=last)
        return [places.put(Retraction(versions=(gone,), reason="rewind"))]

    def _write(
        self,
        named: Named,
        places: Places,
        events: list[NewEvent],
        app: dict[str, Any],
        user: dict[str, Any],
    ) -> None:
        """Append events of a session, and what changes of what it shares, in one transaction."""
        own = partial(
            self.store.append,
            key_of(*named),
            events,
            expected_version=places.version - len(events) or NO_STREAM,
            user_id=named[1],
        )
        if not app and not user:
            own()
            return
        with self.store.transaction() as connection:
            own(connection=connection)
            for delta, key, whose in (
                (app, key_of(named[0]), None),
                (user, key_of(*named[:2]), named[1]),
            ):
                if delta:
                    version, state = self._shared_at(key)
                    self.store.append(
                        key,
                        GoogleADKShared(state=state | delta),
                        expected_version=version or NO_STREAM,
                        user_id=whose,
                        connection=connection,
                    )

    def _shared(self, key: str) -> dict[str, Any]:
        return self._shared_at(key)[1]

    def _shared_at(self, key: str) -> tuple[int, dict[str, Any]]:
        """Return the state that sessions share, and the version that its conversation is at."""
        newest = 0
        for event in self._backward(key, 1):
            newest = newest or event.version
            if event.type == GoogleADKShared.type and event.text is not None:
                return newest, loads_json(event.text)["state"]
        return newest, {}

    def _known(self, named: Named) -> KnownSession | None:
        """Return a session as it stands now; None if there is none, or it was deleted."""
        known = known_in(self._backward(key_of(*named), _TAIL))
        if known is not None:
            self._remember(named, known)
        return known

    def _remember(self, named: Named, known: KnownSession) -> None:
        self._sessions[named] = known
        if len(self._sessions) > _MOST_KNOWN:
            self._sessions.pop(next(iter(self._sessions)), None)

    def _backward(self, key: str, first: int | None = None) -> Iterator[EventText]:
        return events_before(self.store, self.store.stream(key), first=first)


def _built(page: Iterable[EventText]) -> list[Event]:
    """Return the ADK events that events of the log end."""
    return [Event.model_validate(told) for event in page if (told := event_in(event)) is not None]
