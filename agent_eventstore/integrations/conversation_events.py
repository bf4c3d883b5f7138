"""Reading and appending a conversation's events, as all adapters do it.

One row shows whether there are new events. Each page is read in its own transaction. An append is
retried if another writer was faster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Text, case, cast, select

from agent_eventstore.batching import Batcher, StreamFlusher
from agent_eventstore.journal import PASSING
from agent_eventstore.machines.seals import seal
from agent_eventstore.transcripts.transcript import Calls
from eventstore import AsyncEventStore, EventStore, RecordedEvent
from eventstore.database import (
    END,
    SPECIAL,
    AnyConnection,
    EventText,
    Statement,
    chain_at,
    driver_transaction,
    lineage,
    metadata_for,
    read_texts,
)
from eventstore.errors import ConversationNotFound, WrongExpectedVersion
from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    ConversationStart,
    Erasure,
    LlmError,
    Meta,
    NewEvent,
    Payload,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from eventstore.events.codec import decode, loads_json
from eventstore.ids import new_id, uuid_in
from eventstore.threads import in_thread
from projections import Views
from projections.payload_text import SEALS
from projections.providers import Delta

__all__ = [
    "NO_HEAD",
    "ConversationTail",
    "Places",
    "Streamed",
    "attempts",
    "ends_with",
    "events_after",
    "events_before",
    "events_with",
    "followed",
    "forks_with",
    "head_of",
    "keys_with",
    "newest_events",
    "news_of",
    "place_of",
    "requested_in",
    "seal_streams",
    "store_of",
    "unredacted",
]


_MOST_ATTEMPTS = 50


_FURTHEST = 1_000  # a reader that is more events behind reads the whole conversation again


_HEAD = Statement(
    """
    SELECT version, chain, parent_conversation_id IS NOT NULL FROM conversations
    WHERE conversation_id = :conversation_id
    """
)


class ConversationTail(NamedTuple):
    """A conversation's last event; a fork's head does not change when its parent is erased."""

    version: int
    chain: bytes
    is_fork: bool = False


NO_HEAD = ConversationTail(0, b"")


def head_of(connection: AnyConnection, stream: UUID) -> ConversationTail:
    """Return a conversation's head, in the caller's transaction; `NO_HEAD` if it does not exist."""
    for version, chain, is_fork in _HEAD.rows(connection, conversation_id=stream):
        return ConversationTail(version, bytes(chain), bool(is_fork))
    return NO_HEAD


def news_of(
    connection: AnyConnection, stream: UUID, known: ConversationTail | None
) -> tuple[ConversationTail, list[EventText] | None]:
    """Return a conversation's head and the events after a known head, in the caller's transaction.

    The events are None if the caller must read the whole conversation again: there is no known
    head, an event was erased, more than 1,000 events are new, or the conversation is a fork, which
    does not record what is erased in its parent.
    """
    head = head_of(connection, stream)
    if head.is_fork or known is None or not 0 <= head.version - known.version <= _FURTHEST:
        return head, None
    if known == head:
        return head, []
    if known.version and chain_at(connection, stream, known.version) != known.chain:
        return head, None
    page = read_texts(
        connection, stream, after=known.version, before=head.version + 1, limit=_FURTHEST
    )
    return head, None if any(event.type == Erasure.type for event in page) else page


def attempts() -> Iterator[AbstractContextManager[None]]:
    """Yield a context manager for each attempt at an append that competes with other writers.

    The caller leaves the loop by returning. Only the last attempt raises `WrongExpectedVersion`.
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        yield suppress(WrongExpectedVersion)
    yield nullcontext()


class _Fold(Protocol):
    """An adapter's state of a conversation, folded from its events; a new one has read nothing."""

    version: int
    chain: bytes

    def fold(self, event: RecordedEvent) -> None: ...


_F = TypeVar("_F", bound=_Fold)


def followed(store: EventStore, stream: UUID, known: _F) -> _F:
    """Return an adapter's state of a conversation after folding the events that it has not read.

    Returns a new object of the same class if an event that the state includes was erased or no
    longer exists. A fork is read in full each time, because it has no event that records an erasure
    in its parent.
    """
    seen = ConversationTail(known.version, known.chain) if known.version else None
    with driver_transaction(store) as connection:
        head, news = news_of(connection, stream, seen)
    if news == []:
        return known
    known = type(known)() if news is None else known
    for event in store.read(stream, after=known.version, before=head.version + 1):
        known.fold(event)
    return known


_PAGE = 1_000


def newest_events(
    store: EventStore, stream: UUID, limit: int, *, before: int = END
) -> list[EventText]:
    """Return the newest events before a version, newest first, in one transaction."""
    with driver_transaction(store) as connection:
        return read_texts(connection, stream, before=before, backward=True, limit=limit)


def events_after(
    store: EventStore, stream: UUID, after: int, *, before: int = END
) -> Iterator[EventText]:
    """Yield the events after one version and before another."""
    while after < before - 1:
        with driver_transaction(store) as connection:
            page = read_texts(connection, stream, after=after, before=before, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].version


def events_before(
    store: EventStore, stream: UUID, before: int = END, *, first: int | None = None
) -> Iterator[EventText]:
    """Yield the events before a version, newest first; ``first`` is the size of the first page."""
    size = first or _PAGE
    while before > 1 and (page := newest_events(store, stream, size, before=before)):
        yield from page
        before, size = page[-1].version, _PAGE


def store_of(store: EventStore | AsyncEventStore) -> EventStore:
    """Return the synchronous store, which adapters call in their own threads."""
    return store.store if isinstance(store, AsyncEventStore) else store


def unredacted(store: EventStore | AsyncEventStore, needed: str) -> EventStore:
    """Return the store for a graph, which must read back what it wrote.

    Args:
        store: The store.
        needed: What the graph needs back, for the error message.

    Raises:
        ValueError: The store redacts.
    """
    found = store_of(store)
    if found.redact is not None:
        raise ValueError(
            f"this store redacts what it writes, but a graph needs {needed}: "
            "redact in the graph, and open the store without redact="
        )
    return found


_FOUND_AT_ONCE = 1_000  # rows held in memory at once


_HAS = Statement(
    """
    SELECT 1 FROM events
    WHERE conversation_id = :conversation_id AND version <= :version AND type = :type LIMIT 1
    """
)


def keys_with(store: EventStore, event_type: str, *, begins: str = "") -> Iterator[str]:
    """Yield the key, or else the id, of every conversation with an event of a type.

    With ``begins``, only conversations whose key has this prefix. Forks without such an event of
    their own come last.
    """
    with store.reading() as connection:
        streams, has_own = _owning(connection, event_type)
        found = _named(store, connection, streams, begins, has_own)
    yield from (key or str(stream) for stream, key in found)
    yield from forks_with(store, event_type, begins=begins)


def forks_with(store: EventStore, event_type: str, *, begins: str = "") -> list[str]:
    """Return the key, or else the id, of each fork that only shares events of a type.

    With ``begins``, only forks whose key has this prefix. Runs a few queries for each fork without
    such an event of its own.
    """
    with store.reading() as connection:
        streams, has_own = _owning(connection, event_type)
        is_fork = streams.parent_conversation_id.is_not(None)  # has a sparse index
        return [
            key or str(fork)
            for fork, key in _named(store, connection, streams, begins, is_fork, ~has_own)
            if any(
                _HAS.rows(connection, **shared._asdict(), type=event_type)
                for shared in lineage(connection, fork)
            )
        ]


def _owning(connection: Connection, event_type: str) -> tuple[Any, ColumnElement[bool]]:
    """Return the columns of conversations, and the condition that one has an event of a type."""
    tables = metadata_for(connection.dialect.name).tables
    events, streams = tables["events"].c, tables["conversations"].c
    typed = (
        select(events.version)
        .where(events.conversation_id == streams.conversation_id)
        .where(events.type == event_type)
    )
    return streams, typed.exists()


def _payload(events: Any) -> ColumnElement[str | None]:
    """Return a payload's text; NULL once it is erased, also if someone has put another there."""
    return case((events.salt.is_not(None), cast(events.data, Text)))


def _named(
    store: EventStore,
    connection: Connection,
    streams: Any,
    begins: str,
    *conditions: ColumnElement[bool],
) -> list[tuple[UUID, str | None]]:
    """Return the id and key of the owner's conversations that fulfil conditions, by id."""
    query = select(streams.conversation_id, streams.key).where(*conditions)
    if begins:
        query = query.where(streams.key.startswith(begins, autoescape=True))
    # Sorted here: SQLite would scan all conversations by id instead of only the forks.
    found = sorted(connection.execute(store.owner.limit(query, streams)), key=itemgetter(0))
    # SQLite's LIKE ignores case.
    return [(stream, key) for stream, key in found if (key or "").startswith(begins)]


def ends_with(
    store: EventStore, event_type: str, *, begins: str = ""
) -> Iterator[tuple[str, list[EventText]]]:
    """Yield for each conversation its key and its events back to the newest one of a type.

    Runs one query and fetches its rows as they are consumed. Events come newest first. An erased
    event does not count as one of the type.

    Args:
        store: The store.
        event_type: The type; conversations without such an event are skipped.
        begins: Yield only conversations whose key has this prefix.
    """
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        streams, events = tables["conversations"].c, tables["events"].alias().c
        typed = tables["events"].alias().c
        newest = (
            select(typed.version)
            .where(typed.conversation_id == streams.conversation_id)
            .where(typed.type == event_type, typed.data.is_not(None))
            .order_by(typed.version.desc())
            .limit(1)
            .scalar_subquery()
        )
        texts = (_payload(events), cast(events.meta, Text))
        query = (
            select(streams.conversation_id, streams.key)
            .add_columns(events.version, events.type, events.schema_version, *texts)
            .where(events.conversation_id == streams.conversation_id, events.version >= newest)
            .order_by(streams.conversation_id, events.version.desc())
        )
        if begins:
            query = query.where(streams.key.startswith(begins, autoescape=True))
        query = store.owner.limit(query, streams)
        rows = connection.execute(query, execution_options={"yield_per": _FOUND_AT_ONCE})
        for (stream, key), found in groupby(rows, key=lambda row: (row[0], row[1])):
            if not (key or "").startswith(begins):  # SQLite's LIKE ignores case
                continue
            ends = [EventText(*row[2:]) for row in found]
            if any(event.text and event.text.startswith(SPECIAL) for event in ends):
                last, first = ends[0].version, ends[-1].version
                ends = read_texts(
                    connection, stream, after=first - 1, before=last + 1, backward=True
                )
            yield key or str(stream), ends


def events_with(store: EventStore, event_type: str) -> Iterator[tuple[str, bool, list[EventText]]]:
    """Yield each conversation with an event of a type: its key, whether it is a fork, its events.

    Runs one query and fetches its rows as they are consumed. A fork's shared events are missing,
    and sealed text and blobs are not opened (`SPECIAL`).
    """
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        streams, events = tables["conversations"].c, tables["events"].c
        typed = tables["events"].alias().c
        texts = (_payload(events), cast(events.meta, Text))
        query = (
            select(streams.conversation_id, streams.key)
            .add_columns(streams.parent_conversation_id.is_not(None))
            .add_columns(events.version, events.type, events.schema_version, *texts)
            .where(events.conversation_id == streams.conversation_id)
            .where(
                select(typed.version)
                .where(typed.conversation_id == streams.conversation_id)
                .where(typed.type == event_type)
                .exists()
            )
            .order_by(streams.conversation_id, events.version)
        )
        query = store.owner.limit(query, streams)
        rows = connection.execute(query, execution_options={"yield_per": _FOUND_AT_ONCE})
        for (stream, key, is_fork), found in groupby(rows, key=lambda row: tuple(row[:3])):
            yield key or str(stream), is_fork, [EventText(*row[3:]) for row in found]


def place_of(store: EventStore, event_id: str) -> tuple[UUID, int] | None:
    """Return the conversation and version of an event of the store's owner; None if not found."""
    wanted = uuid_in(event_id)
    if wanted is None:
        return None
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        events, streams = tables["events"].c, tables["conversations"].c
        query = (
            select(events.conversation_id, events.version)
            .where(events.event_id == wanted)
            .where(streams.conversation_id == events.conversation_id)
        )
        row = connection.execute(store.owner.limit(query, streams)).first()
    return None if row is None else (row[0], row[1])


_CALLS = re.compile(r'"tool_calls":\s*\[\s*\{')


_IN_STEP = (AssistantMessage, LlmError, ToolResult)


_MOST_CALLS = 200


class Places:
    """Assigns places to payloads in order: a user message begins a turn, an answer a step.

    Attributes:
        version: The version of the last event.
        within: The turn that all events belong to, if it has already begun.
        calls: The newest 200 tool calls, used to find the call that a result answers.
        asked: The version of the newest user message, or 0.
    """

    def __init__(self) -> None:
        self.version, self.turn, self.step = 0, 0, -1
        self.within: int | None = None
        self.calls = Calls(_MOST_CALLS)
        self.last_user_version = 0
        self._place: tuple[int | None, int | None, bool] = None, None, True
        self._meta = Meta()

    @classmethod
    def after(cls, newest: Sequence[EventText]) -> Self:
        """Return the places that follow a conversation's newest events, given newest first."""
        places = cls()
        places.version = newest[0].version if newest else 0
        for event in newest:
            meta = loads_json(event.meta)
            if (turn := meta.get("turn")) is not None:
                places.turn, step = turn, meta.get("step")
                if step is not None or event.type == UserMessage.type:
                    places.step = -1 if step is None else step
                    break
        places.last_user_version = next(
            (e.version for e in newest if e.type == UserMessage.type), 0
        )
        for event in reversed(newest):
            if event.type == AssistantMessage.type and event.text is not None:
                calls, by = requested_in(event)
                places.calls.note(event.version, calls, by)
            elif event.type == ToolResult.type and event.text is not None:
                payload = loads_json(event.text)
                final = payload.get("status") not in SEALS and not payload.get("interim")
                places.calls.settle(payload["call_id"], answered=final)
        return places

    def begin(self) -> list[NewEvent]:
        """Return the first event of a conversation, or nothing if it has begun already."""
        return [] if self.version else [self.put(ConversationStart(mode="agent"))]

    def put(
        self, data: Payload, *, begins: bool = True, in_context: bool = True, **named: Any
    ) -> NewEvent:
        """Return a payload as the next event.

        Args:
            data: The payload.
            begins: Whether a user message begins a new turn.
            in_context: Whether messages[] includes the event.
            named: Other fields of the event, such as ``event_id``.
        """
        self.version += 1
        if isinstance(data, UserMessage):
            self.last_user_version = self.version
            if begins or not self.turn:
                self.turn, self.step = self.within or self.turn + 1, -1
        elif isinstance(data, AssistantMessage | LlmError):
            self.step += 1
        if isinstance(data, AssistantMessage):
            self.calls.note(self.version, data.tool_calls, data.name)
        step = self.step if isinstance(data, _IN_STEP) and self.step >= 0 else None
        place = self.turn or None, step, in_context
        if place != self._place:  # events of a step share one object, encoded once
            self._place = place
            self._meta = Meta(turn=place[0], step=step, in_context=in_context)
        return NewEvent(data, meta=self._meta, **named)


def requested_in(event: EventText) -> tuple[tuple[ToolCallRequest, ...], str | None]:
    """Return an answer's tool calls, and the name of who gave it."""
    if event.text is None or not _CALLS.search(event.text):  # decoding costs ten times as much
        return (), None
    data = decode(event.type, event.schema_version, event.text)
    return (data.tool_calls, data.name) if isinstance(data, AssistantMessage) else ((), None)


_NEAR = 20  # newest events to read to find the current turn


class Streamed:
    """An answer that is arriving: its first piece is written at once, the rest in batches.

    A batch that becomes due while the stream stalls is written in the background: a kill loses only
    what came within the last 100 ms.

    Attributes:
        call_id: The id of the model call, which the stored answer must name.

    Args:
        store: The store.
        key: The key of the conversation, which must exist.
    """

    def __init__(self, store: EventStore, key: str) -> None:
        self._store, self._key = store, key
        self.call_id = str(new_id())
        self._batcher = Batcher(self.call_id, in_lines=store.redact is not None)
        self._unwritten: list[NewEvent] = []
        self._stalls = StreamFlusher(self._flush)
        self._meta: Meta | None = None

    async def feed(self, piece: Delta) -> None:
        """Add a piece, and append a batch if one is due, in one transaction.

        Raises:
            Exception: The error of a background write, raised once.
        """
        self._stalls.check()
        if not self._stalls.lock.acquire(blocking=False):
            # A stalled batch is being written: do not block the event loop on its lock.
            await in_thread(self._take, piece)
            return
        try:
            due = self._hold(self._batcher.add(piece, time.monotonic()))
        finally:
            self._stalls.lock.release()
        if due:
            await in_thread(self._write)

    async def end(self) -> None:
        """Append the rest and stop writing in the background."""
        await in_thread(self._end)

    def _take(self, piece: Delta) -> None:
        with self._stalls.lock:
            if self._hold(self._batcher.add(piece, time.monotonic())):
                self._write()

    def _end(self) -> None:
        with self._stalls.lock:
            self._stalls.stop()
            if self._hold(self._batcher.take(time.monotonic(), last=True)):
                self._write()

    def _hold(self, chunk: AssistantChunk | None) -> bool:
        """Hold a batch until it is written; return whether any batch is unwritten."""
        if chunk is not None:
            self._unwritten.append(NewEvent(chunk, event_id=new_id()))
        self._stalls.watch(self._batcher.due_at)
        return bool(self._unwritten)

    def _flush(self) -> bool:
        """Write the batch of a stalled stream; return False if it must be tried again."""
        self._hold(self._batcher.take(time.monotonic()))
        try:
            self._write(wait=False)
        except PASSING:
            return False
        return True

    def _write(self, *, wait: bool = True) -> None:
        """Append the unwritten batches, in one transaction."""
        with self._stalls.lock:
            if not self._unwritten:
                return
            if self._meta is None:
                newest = newest_events(self._store, self._store.stream(self._key), _NEAR)
                places = Places.after(newest)
                self._meta = Meta(turn=places.turn or None, step=places.step + 1)
            self._store.append(self._key, self._unwritten, meta=self._meta, wait=wait)
            self._unwritten.clear()


def seal_streams(store: EventStore, key: str) -> None:
    """Record each unfinished answer as interrupted, with the text that had arrived.

    Does nothing if another writer appends in the meantime: that writer then seals them.
    """
    try:
        work = Views(store).open_work(key)
    except ConversationNotFound:
        return
    ends = seal(replace(work, tool_calls=(), turn=None, session=None))
    if ends:
        try:
            store.append(key, ends, expected_version=work.last_version)
        except WrongExpectedVersion:
            return
