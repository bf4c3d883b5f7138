"""`EventStoreConversations`: Pydantic AI's `ConversationStore`; the extra ``pydantic-ai``.

Messages come out as they went in. What the adapter writes are the catalogue's own events, so that
timeline, usage, tool audit, messages[], search and `verify` work on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelResponse

from agent_eventstore.integrations.conversation_finding import keys_with, place_of
from agent_eventstore.integrations.conversation_head import Head, news_of
from agent_eventstore.integrations.conversation_memory import Memory, Objects
from agent_eventstore.integrations.conversation_pages import events_before, newest_events
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.pydantic_events import events_of, messages_in
from agent_eventstore.integrations.pydantic_messages import KEY, PydanticAIRecord
from agent_eventstore.journal_aio import in_thread
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent
from eventstore.errors import ConversationExists, WrongExpectedVersion
from eventstore.events import (
    BranchSwitch,
    ConversationStart,
    VersionRange,
)
from eventstore.events.codec import loads_json
from eventstore.sql.lineage import descendants
from eventstore.sql.read import EventText
from projections.engine.folding import joined

__all__ = ["EventStoreConversations"]

T = TypeVar("T")
_TAIL = 100  # of the newest events, looked at to learn where a conversation stands
_ATTEMPTS = 20  # at an append, while others append what is no message
_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class _Kept(NamedTuple):
    """A message as it is kept: its ``raw``, and the versions of its events."""

    told: Any
    versions: tuple[int, int]


class _Read(NamedTuple):
    """The newest messages up to one, as they were read last; their ids lead from each to the next.

    Attributes:
        complete: Whether there are none before them.
    """

    head: Head
    ids: list[str]
    entries: Objects
    complete: bool

    def up_to(self, head_id: str, head: Head, page: Iterable[EventText]) -> _Read | None:
        """Return the messages up to one that is among these or on a page of newer events."""
        new, wanted = list[Any](), head_id
        for event in reversed([*page]):
            if (told := _told(event)) is not None and told["id"] == wanted:
                new.append(told)
                wanted = told["parent"]
        if self.ids[-1] != wanted and wanted not in self.ids:
            return None
        count = len(self.ids) if self.ids[-1] == wanted else self.ids.index(wanted) + 1
        entries = self.entries.first(count).followed_by(_entries(new[::-1]))
        ids = [*self.ids[:count], *(told["id"] for told in reversed(new))]
        return _Read(head, ids, entries, self.complete)


class EventStoreConversations(ConversationStore):
    """Conversations whose messages are events; the conversation's id is its key, or its own id.

    A save is one transaction. What a branch leaves is withdrawn, and comes back with it. A fork
    shares the events of the conversation that it goes on from. `delete` erases; while forks share
    the events, it only hides them.

    Args:
        store: Where they are kept; it stays open. One of `EventStore.for_owner` keeps to the
            conversations of a tenant or user.
    """

    def __init__(self, store: EventStore | AsyncEventStore) -> None:
        self.store = store.store if isinstance(store, AsyncEventStore) else store
        self._memory: Memory[_Read] = Memory()
        self._streams: Memory[UUID] = Memory()
        self._answering: dict[str, str] = {}  # the calls that recorded streams belong to

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return what is known of a conversation besides its messages."""
        return await _thread(self._record, conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope or of all, the one saved last first; it reads each one."""
        return await _thread(self._records, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Append messages and the record, in one transaction.

        Raises:
            ConversationConflict: Somebody else has saved the conversation since.
        """
        await _thread(self._write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation, or hide it while forks share its events."""
        await _thread(self._delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return a message by its id.

        Raises:
            LookupError: There is none.
        """
        [entry] = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the messages up to one, in order; what older ones cost is not paid for a few.

        Raises:
            LookupError: There is none of that id, or it was erased.
        """
        return await _thread(self._history, head_id, limit)

    def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        if head_id is None or limit == 0:
            return []
        stream = self._streams.get(head_id)
        known = self._memory.get(stream) if stream else None
        if stream is None or known is None:
            place = place_of(self.store, head_id)
            if place is None:
                raise LookupError(f"no message has the id {head_id}")
            stream = place[0]
            known = self._memory.get(stream)
        with self.store._on_driver() as connection:
            head, page = news_of(connection, stream, known and known.head)
        read = known.up_to(head_id, head, page) if known and page is not None else None
        if read is not None and (read.complete or (limit and limit <= len(read.ids))):
            entries = read.entries.newest(limit)
        else:
            kept = [each.told for each in self._chain(head_id, limit)][::-1]
            entries, read = _entries(kept), None
            if not head.is_fork and self._memory.asked_again(stream):
                ids, complete = [each.id for each in entries], entries[0].parent_id is None
                read = _Read(head, ids, Objects().followed_by(entries), complete)
        if read is not None:
            self._memory.keep(stream, read, read.entries.size)
        return entries

    def _chain(self, head_id: str | None, limit: int | None = None) -> Iterator[_Kept]:
        """Yield messages from one back to the first, as they are kept."""
        if head_id is None or limit == 0:
            return
        place = place_of(self.store, head_id)
        if place is None:
            raise LookupError(f"no message has the id {head_id}")
        stream, version = place
        wanted: str | None = head_id
        for event in events_before(self.store, stream, version + 1, first=limit and 2 * limit):
            told = _told(event)
            if told is not None and told["id"] == wanted:
                yield _Kept(told, (event.version - told["span"] + 1, event.version))
                wanted, limit = told["parent"], None if limit is None else limit - 1
                if wanted is None or limit == 0:
                    return
        raise LookupError(f"the message {wanted} was erased")

    def _record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the newest record, which stands at the end but for what is no message."""
        stream = self.store.stream(conversation_id)
        record = _record_in(events_before(self.store, stream, first=4), conversation_id)
        if record is not None and record.head_id is not None:
            self._streams.keep(record.head_id, stream)
        return record

    def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        read = map(self._record, keys_with(self.store, PydanticAIRecord.type))
        found = [each for each in read if each and scope in (None, each.scope)]
        found.sort(key=lambda each: each.updated_at, reverse=True)
        return found[:limit]

    def _write(
        self,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
        expected: str | None,
    ) -> None:
        key = record.conversation_id
        for attempt in range(_ATTEMPTS):
            stream = self.store.stream(key)
            newest = newest_events(self.store, stream, _TAIL)
            older = events_before(self.store, stream, newest[-1].version if newest else 0)
            known = _record_in(chain(newest, older), key)
            if (known.revision if known else None) != expected:
                raise ConversationConflict(key)
            first = entries[0].parent_id if entries else record.head_id
            origin = None
            if first is not None and (known is None or first != known.head_id):
                origin = place_of(self.store, first)
                if origin is None:
                    raise ConversationConflict(key)
            try:
                if origin is not None and not newest:
                    self._fork(origin, record)
                else:
                    self._append(record, entries, known, Places.after(newest))
                return
            except ConversationExists as error:
                raise ConversationConflict(key) from error
            except WrongExpectedVersion:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _append(
        self,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
        known: ConversationRecord | None,
        places: Places,
    ) -> None:
        expected = places.version
        events = [] if expected else [places.put(ConversationStart(mode="agent"))]
        head = known.head_id if known else None
        first = entries[0].parent_id if entries else record.head_id
        if head != first:
            events += self._switch(head, first, places)
        key = record.conversation_id
        call_id = self._answering.get(key) if entries else None
        for entry in entries:
            last = call_id if entry is entries[-1] else None
            events += events_of(entry.message, entry.id, entry.parent_id, places, last)
        events.append(places.put(_written(record)))
        self.store.append(key, events, expected_version=expected or NO_STREAM)
        if call_id and isinstance(entries[-1].message, ModelResponse):
            self._answering.pop(key, None)

    def _switch(self, head: str | None, first: str | None, places: Places) -> list[NewEvent]:
        """Return what says that messages are left, and which come back."""
        before = [each.versions for each in self._chain(head)]
        after = [each.versions for each in self._chain(first)]
        shared = set(before) & set(after)
        left, back = _ranges(set(before) - shared), _ranges(set(after) - shared)
        said = BranchSwitch(
            reason="switch" if back else "rewind",
            kind="message",
            after=max((last for _, last in shared), default=0),
            left=left[0].first if left else None,
            withdrawn=left,
            taken=back[0].first if back else None,
            restored=back,
        )
        return [places.put(said)]

    def _fork(self, origin: tuple[UUID, int], record: ConversationRecord) -> None:
        """Begin a conversation that shares the events of another up to a message."""
        source, version = origin
        newest = newest_events(self.store, source, _TAIL, before=version + 1)
        told = Places.after(newest).put(_written(record))
        self.store.fork(
            source, before=version + 1, conversation_id=record.conversation_id, events=[told]
        )

    def _delete(self, conversation_id: str, expected: str) -> None:
        known = self._record(conversation_id)
        if known is None or known.revision != expected:
            raise ConversationConflict(conversation_id)
        stream = self.store.stream(conversation_id)
        with self.store._on_driver() as connection:
            shared = descendants(connection, stream)
        [newest] = newest_events(self.store, stream, 1)
        try:
            gone = PydanticAIRecord()
            self.store.append(conversation_id, gone, expected_version=newest.version)
        except WrongExpectedVersion as error:
            raise ConversationConflict(conversation_id) from error
        if not shared:
            self.store.erase(conversation_id, reason="the conversation was deleted")


def _written(record: ConversationRecord) -> PydanticAIRecord:
    return PydanticAIRecord(record=_RECORD.dump_python(record, mode="json"))


def _record_in(events: Iterable[EventText], conversation_id: str) -> ConversationRecord | None:
    """Return the first record among events, newest first; None if it is of another one, or gone."""
    for event in events:
        if event.type == PydanticAIRecord.type and event.text is not None:
            told = loads_json(event.text).get("record")
            if told is not None and told["conversation_id"] == conversation_id:
                return _RECORD.validate_python(told)
            return None
    return None


def _told(event: EventText) -> Any:
    """Return what an event keeps of the message that it ends; None if it ends none."""
    if event.text is None or f'"{KEY}"' not in event.text:
        return None
    raw = loads_json(event.text).get("raw")
    return raw.get(KEY) if isinstance(raw, dict) else None


def _entries(kept: Sequence[Any]) -> list[ConversationEntry]:
    """Return messages as they were given, from what each event keeps of them."""
    return [
        ConversationEntry(id=told["id"], parent_id=told["parent"], message=message)
        for told, message in zip(kept, messages_in(kept), strict=True)
    ]


def _ranges(versions: set[tuple[int, int]]) -> tuple[VersionRange, ...]:
    return tuple(VersionRange(first=first, last=last) for first, last in joined(sorted(versions)))


async def _thread(work: Callable[..., T], *given: Any) -> T:
    """Do what asks the database in a thread, to its end even if the caller is cancelled."""
    return await in_thread(partial(work, *given))
