"""`EventStoreConversations`: Pydantic AI's `ConversationStore`; the extra ``pydantic-ai``.

Messages come out as they went in. What the adapter writes are the catalogue's own events, so that
timeline, usage, tool audit, messages[], search and `verify` work on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
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

from agent_eventstore.integrations.conversation_finding import ends_with, place_of
from agent_eventstore.integrations.conversation_head import Head, attempts, head_of, news_of
from agent_eventstore.integrations.conversation_memory import Memory, Objects
from agent_eventstore.integrations.conversation_pages import events_before, newest_events
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.pydantic_events import (
    KeptMessage,
    events_of,
    message_in,
    messages_of,
)
from agent_eventstore.integrations.pydantic_messages import PydanticAIRecord
from agent_eventstore.journal_aio import in_thread
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent
from eventstore.errors import InvalidEvent, WrongExpectedVersion
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
_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class _Known(NamedTuple):
    """Where a conversation stands, as it was written last: its chain, and its record as JSON."""

    chain: bytes
    record: Any
    places: Places

    @property
    def revision(self) -> str | None:
        """Of the record, if there is one."""
        return self.record["revision"] if self.record else None


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
        new = _entries(lambda cut: _back(reversed([*page]), head_id, cut=cut))
        wanted = new[0].parent_id if new else head_id
        if not new and wanted == self.ids[-1]:
            return self._replace(head=head)
        if self.ids[-1] != wanted and wanted not in self.ids:
            return None
        count = len(self.ids) if self.ids[-1] == wanted else self.ids.index(wanted) + 1
        entries = self.entries.first(count).followed_by(new)
        ids = [*self.ids[:count], *(each.id for each in new)]
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
        self._written: Memory[_Known] = Memory()
        self._streams: Memory[UUID] = Memory()
        self._answering: dict[str, str] = {}  # the calls that recorded streams belong to

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return what is known of a conversation besides its messages."""
        return await _thread(self._record, conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope or of all, the one saved last first."""
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
        stream = self._streams.get(head_id) or self._place(head_id)[0]
        known = self._memory.get(stream)
        with self.store._on_driver() as connection:
            head, page = news_of(connection, stream, known and known.head)
        read = known.up_to(head_id, head, page) if known and page is not None else None
        if read is not None and (read.complete or (limit and limit <= len(read.ids))):
            entries = read.entries.newest(limit)
        else:
            before = head.version + 1
            entries = _entries(lambda cut: self._chain(head_id, limit, (stream, before), cut=cut))
            read = None
            if not head.is_fork and self._memory.asked_again(stream):
                ids, complete = [each.id for each in entries], entries[0].parent_id is None
                read = _Read(head, ids, Objects().followed_by(entries), complete)
        if read is not None:
            self._memory.keep(stream, read, read.entries.size)
        return entries

    def _place(self, entry_id: str) -> tuple[UUID, int]:
        place = place_of(self.store, entry_id)
        if place is None:
            raise LookupError(f"no message has the id {entry_id}")
        return place

    def _chain(
        self,
        head_id: str,
        limit: int | None = None,
        begin: tuple[UUID, int] | None = None,
        *,
        cut: bool = True,
    ) -> Iterator[tuple[KeptMessage, tuple[int, int]]]:
        """Yield messages from one back to the first, and the versions of each one's events.

        ``begin`` is a conversation that has it, and a version behind it.
        """
        if begin is None:
            stream, version = self._place(head_id)
            begin = stream, version + 1
        missing: str | None = head_id
        events = events_before(self.store, *begin, first=limit and 2 * limit)
        for kept, versions in islice(_back(events, head_id, cut=cut), limit):
            yield kept, versions
            missing, limit = kept.parent, limit and limit - 1
        if missing is not None and limit != 0:
            raise LookupError(f"the message {missing} was erased")

    def _record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the newest record, which stands at the end but for what is no message."""
        stream = self.store.stream(conversation_id)
        known = self._written.get(stream)
        with self.store._on_driver() as connection:
            head = head_of(connection, stream)
        if known is not None and (known.places.version, known.chain) == head[:2]:
            told = known.record
        else:
            told = _record_in(events_before(self.store, stream, first=4), conversation_id)
        record = None if told is None else _RECORD.validate_python(told)
        if record is not None and record.head_id is not None:
            self._streams.keep(record.head_id, stream)
        return record

    def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        ends = ends_with(self.store, PydanticAIRecord.type)
        told = [_record_in(events, key) for key, events in ends]
        found = [_RECORD.validate_python(each) for each in told if each]
        found = [each for each in found if scope in (None, each.scope)]
        found.sort(key=lambda each: each.updated_at, reverse=True)
        return found[:limit]

    def _write(
        self,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
        expected: str | None,
    ) -> None:
        key = record.conversation_id
        stream = self.store.stream(key)
        for attempt in attempts():
            known = self._written.take(stream)
            if known is None or known.revision != expected:
                known = self._stands(stream, key)
            if known.revision != expected:
                raise ConversationConflict(key)
            first = entries[0].parent_id if entries else record.head_id
            origin = None
            if first is not None and (not known.record or first != known.record["head_id"]):
                origin = place_of(self.store, first)
                if origin is None:
                    raise ConversationConflict(key)
            with attempt:
                if origin is not None and not known.places.version:
                    self._fork(origin, record)
                else:
                    self._append(stream, record, entries, known)
                return

    def _stands(self, stream: UUID, key: str) -> _Known:
        """Return where a conversation stands, as the database has it."""
        newest = newest_events(self.store, stream, _TAIL)
        older = events_before(self.store, stream, newest[-1].version if newest else 0)
        return _Known(b"", _record_in(chain(newest, older), key), Places.after(newest))

    def _append(
        self,
        stream: UUID,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
        known: _Known,
    ) -> None:
        places, key = known.places, record.conversation_id
        expected = places.version
        events = [] if expected else [places.put(ConversationStart(mode="agent"))]
        head = known.record["head_id"] if known.record else None
        first = entries[0].parent_id if entries else record.head_id
        if head != first:
            events += self._switch(head, first, places)
        call_id = self._answering.get(key) if entries else None
        for entry in entries:
            last = call_id if entry is entries[-1] else None
            events += events_of(entry.message, entry.id, entry.parent_id, places, last)
        told = _written(record)
        events.append(places.put(told))
        done = self.store.append(key, events, expected_version=expected or NO_STREAM)
        self._written.keep(stream, _Known(done.anchor.chain, told.record, places))
        if call_id and isinstance(entries[-1].message, ModelResponse):
            self._answering.pop(key, None)

    def _switch(self, head: str | None, first: str | None, places: Places) -> list[NewEvent]:
        """Return what says that messages are left, and which come back."""
        before, after = (
            {versions for _, versions in self._chain(each)} if each else set()
            for each in (head, first)
        )
        shared = before & after
        left, back = _ranges(before - shared), _ranges(after - shared)
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
        key = record.conversation_id
        self.store.fork(source, before=version + 1, conversation_id=key, events=[told])

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


def _record_in(events: Iterable[EventText], conversation_id: str) -> Any:
    """Return the first record among events, newest first; None if it is of another one, or gone."""
    for event in events:
        if event.type == PydanticAIRecord.type and event.text is not None:
            told = loads_json(event.text).get("record")
            return told if told and told["conversation_id"] == conversation_id else None
    return None


def _back(
    events: Iterable[EventText], wanted: str | None, *, cut: bool = True
) -> Iterator[tuple[KeptMessage, tuple[int, int]]]:
    """Yield messages from one back, and each one's versions, of events that are newest first."""
    for event in events:
        if wanted is None:
            return
        kept = None if event.text is None else message_in(event.text, cut=cut)
        if kept is not None and kept.id == wanted:
            wanted = kept.parent
            yield kept, (event.version - kept.span + 1, event.version)


def _entries(
    found: Callable[[bool], Iterable[tuple[KeptMessage, tuple[int, int]]]],
) -> list[ConversationEntry]:
    """Return messages that are found newest first, in order; cut out of their events if possible."""

    def read(cut: bool) -> list[ConversationEntry]:
        kept = [each for each, _ in found(cut)][::-1]
        return [
            ConversationEntry(id=each.id, parent_id=each.parent, message=message)
            for each, message in zip(kept, messages_of(kept), strict=True)
        ]

    try:
        return read(True)
    except (ValueError, InvalidEvent):  # an event has the same keys deeper down, too
        return read(False)


def _ranges(versions: set[tuple[int, int]]) -> tuple[VersionRange, ...]:
    return tuple(VersionRange(first=first, last=last) for first, last in joined(sorted(versions)))


async def _thread(work: Callable[..., T], *given: Any) -> T:
    """Do what asks the database in a thread, to its end even if the caller is cancelled."""
    return await in_thread(partial(work, *given))
