"""`EventStoreSessionService`: Google ADK sessions in the event store; the extra ``google-adk``.

ADK reads back exactly the events that it wrote. The adapter records them as the catalogue's events,
so that timeline, usage, tool audit, messages[], search and `verify` work on them.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote
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
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agent_eventstore.integrations.conversation_events import (
    ConversationTail,
    Places,
    attempts,
    ends_with,
    events_after,
    events_before,
    forks_with,
    newest_events,
    news_of,
    requested_in,
    store_of,
)
from agent_eventstore.integrations.conversation_memory import ConversationMemory, Objects
from agent_eventstore.integrations.google_adk.events import (
    GoogleADKShared,
    GoogleADKState,
    event_in,
    events_of,
    parts_in,
)
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent
from eventstore.database import END, EventText, driver_transaction, read_texts
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    Retraction,
    ToolResult,
    VersionRange,
)
from eventstore.events.codec import decode, dumps, loads_json
from eventstore.threads import in_thread
from projections.payload_text import SEALS
from projections.version_ranges import within

__all__ = [
    "AdkSessionLog",
    "EventStoreSessionService",
    "KnownSession",
    "Named",
    "SessionEvents",
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


_NEAR_PLACE = 100  # newest events used to place the next one


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
    plain: dict[str, Any] = to_jsonable_python(state, serialize_unknown=True, inf_nan_mode="null")
    return plain


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
        if len(newest) < _NEAR_PLACE:
            newest.append(event)
        if (event_json := event_in(event)) is not None:
            behind.append(event_json)
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
        if (event_json := event_in(event)) is None:
            continue
        if event_json.get("invocation_id") == invocation_id:
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
        before, size = page[-1].version, _NEAR_PLACE


def _shared_in(backward: Iterable[EventText]) -> tuple[int, dict[str, Any]]:
    """Return the version of a shared state's conversation, and the state, from its events."""
    newest = 0
    for event in backward:
        newest = newest or event.version
        if event.type == GoogleADKShared.type and event.text is not None:
            return newest, loads_json(event.text)["state"]
    return newest, {}


try:
    from google.adk.errors._stale_session_error import StaleSessionError
except ImportError:  # the class is private to ADK
    StaleSessionError = ValueError


Named = tuple[str, str, str]


"""The app name, user id and session id."""


_TAIL = 100  # newest events to read to find a session's current state


_MOST_KNOWN = 256


_STRIPES = 64


class AdkSessionLog:
    """A store's sessions; the state of recently used ones is cached.

    Attributes:
        answering: The call ids of recorded streams, by invocation and agent.
    """

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.answering: dict[tuple[Any, ...], str] = {}
        self._sessions: ConversationMemory[KnownSession] = ConversationMemory(_MOST_KNOWN)
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
            start_events = places.begin()
            known = KnownSession(places, own, time.get_time(), size=len(dumps(own)))
            snapshot = places.put(GoogleADKState(state=own, updated=known.updated))
            with attempt:
                self._write(named, places, [*start_events, snapshot], app, user)
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
        event_json = _dumped(event)
        event_json["actions"]["state_delta"] = json_of(event.actions.state_delta)
        app, user, _ = deltas_of(event_json)
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
            events = self._events(named, known, event_json)
            with attempt:
                self._write(named, known.places, events, app, user)
                if isinstance(events[-1].data, AssistantMessage):
                    self.answering.pop(place_in(event_json), None)
                known.take(event_json)
                self._sessions.keep(key_of(*named), known, known.size)
                session.last_update_time, session._storage_update_marker = (
                    known.updated,
                    known.marker,
                )
                return

    def _events(self, named: Named, known: KnownSession, event_json: JsonObject) -> list[NewEvent]:
        """Return the log events of an ADK event, after a snapshot of the state if one is due."""
        events: list[NewEvent] = []
        if known.is_due:
            snapshot = GoogleADKState(state=known.state, updated=known.updated)
            events.append(known.places.put(snapshot))
            known.events = known.changed = 0
            known.size = len(dumps(known.state))
        if before := (event_json.get("actions") or {}).get("rewind_before_invocation_id"):
            if first := begin_of(before, self._backward(key_of(*named))):
                gone = VersionRange(first=first, last=known.places.version)
                events.append(known.places.put(Retraction(versions=(gone,), reason="rewind")))
                before_it = self._backward(key_of(*named))
                for call_id, result in results_before(first, before_it).items():
                    final = result is not None and result.status not in SEALS and not result.interim
                    stands_in = result is not None
                    known.places.calls.settle(call_id, answered=final, stands_in=stands_in)
                    if result is not None:
                        events.append(known.places.put(result))
        self._find_calls(key_of(*named), known, event_json)
        return events + events_of(
            event_json, known.places, self.answering.get(place_in(event_json))
        )

    def _find_calls(self, key: str, known: KnownSession, event_json: JsonObject) -> None:
        """Find the calls of results whose calls are older than those that the session remembers."""
        calls = known.places.calls
        results = (each.get("function_response") for each in parts_in(event_json))
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
        event_json: JsonObject = loads_json(event.model_dump_json(exclude_none=True))
    except PydanticSerializationError:  # a lone surrogate, which JSON can escape but UTF-8 cannot
        event_json = event.model_dump(mode="json", exclude_none=True)
    return event_json


class _ReadSession(NamedTuple):
    """The cached newest events of a session.

    Attributes:
        complete: Whether these are all of its events.
    """

    head: ConversationTail
    events: Objects
    complete: bool

    def has(self, limit: int | None) -> bool:
        """Whether the cache holds as many of the newest events as ``limit`` requests."""
        return self.complete or (limit is not None and limit <= self.events.count)


class SessionEvents:
    """The ADK events of a store's sessions."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._memory: ConversationMemory[_ReadSession] = ConversationMemory()

    def newest(self, stream: UUID, limit: int | None) -> tuple[ConversationTail, list[Event]]:
        """Return a conversation's head and its newest ADK events; all of them without a limit."""
        read = self._memory.get(stream)
        with driver_transaction(self._store) as connection:
            head, page = news_of(connection, stream, read and read.head)
        if read is None or page is None or not read.has(limit):
            events, read = self._read(stream, head, limit)
        else:
            if page:
                read = _ReadSession(head, read.events.followed_by(_built(page)), read.complete)
            events = read.events.newest(limit)
        if read is not None:
            self._memory.keep(stream, read, read.events.size)
        return head, events

    def forget(self, stream: UUID) -> None:
        """Remove a conversation from the cache."""
        self._memory.take(stream)

    def _read(
        self, stream: UUID, head: ConversationTail, limit: int | None
    ) -> tuple[list[Event], _ReadSession | None]:
        """Return the newest ADK events up to a head, and the entry to cache, if any."""
        if limit is None:
            events = _built(events_after(self._store, stream, 0, before=head.version + 1))
        else:
            before = events_before(self._store, stream, head.version + 1, first=2 * limit + 2)
            found = [*islice((each for each in before if event_in(each)), limit)]
            events = _built(found[::-1])
        if head.is_fork or not self._memory.has_changed(stream):
            return events, None
        complete = limit is None or len(events) < limit
        return events, _ReadSession(head, Objects().followed_by(events), complete)


def _built(page: Iterable[EventText]) -> list[Event]:
    """Return the ADK events that log events hold in ``raw``."""
    return [
        Event.model_validate(event_json)
        for event in page
        if (event_json := event_in(event)) is not None
    ]


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
        self._log, self._events = AdkSessionLog(self.store), SessionEvents(self.store)
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

    async def close(self) -> None:
        """Do nothing, as ADK's services may be closed: the store is yours, and stays open."""

    async def __aenter__(self) -> Self:
        """Return the service; see `close`."""
        return self

    async def __aexit__(self, *ended: object) -> None:
        """See `close`."""

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
        for prefix, owned_by in ((State.APP_PREFIX, [app]), (State.USER_PREFIX, [app, user])):
            state |= {prefix + name: value for name, value in shared(key_of(*owned_by)).items()}
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
