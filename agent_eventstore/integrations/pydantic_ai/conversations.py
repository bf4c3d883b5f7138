"""`EventStoreConversations`: Pydantic AI's `ConversationStore`; the extra ``pydantic-ai``.

Pydantic AI reads back exactly the messages that it wrote. The adapter records them as the
catalogue's events, so that timeline, usage, tool audit, messages[], search and `verify` work on
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import chain, islice
from typing import Any, NamedTuple
from uuid import UUID

from pydantic_ai.agent import AgentRunResult
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelResponse

from agent_eventstore.integrations.conversation_events import (
    ConversationTail,
    Places,
    attempts,
    ends_with,
    events_before,
    head_of,
    newest_events,
    news_of,
    place_of,
    store_of,
)
from agent_eventstore.integrations.conversation_memory import ConversationMemory, Objects
from agent_eventstore.integrations.pydantic_ai.events import (
    RECORD,
    events_of,
    message_in,
    record_event,
    record_in,
)
from agent_eventstore.integrations.pydantic_ai.messages import PydanticAIRecord
from eventstore import NO_STREAM, AsyncEventStore, EventStore
from eventstore.database import EventText, descendants, driver_transaction
from eventstore.errors import WrongExpectedVersion
from eventstore.events import BranchSwitch, VersionRange
from eventstore.events.codec import dumps_json, loads_json
from eventstore.threads import in_thread
from projections.version_ranges import joined

__all__ = [
    "TAIL",
    "EventStoreConversations",
    "Histories",
    "MessageNotFound",
    "Records",
    "fork",
    "withdraw",
]


class MessageNotFound(LookupError):
    """No message has an id, or it was erased. A `KeyError` of a bug is not one of these."""


class _Read(NamedTuple):
    """The cached newest messages up to one; each one's parent is the one before it.

    Attributes:
        complete: Whether these are all messages up to it.
    """

    head: ConversationTail
    ids: list[str]
    entries: Objects
    complete: bool

    def up_to(
        self, head_id: str, head: ConversationTail, page: Iterable[EventText]
    ) -> _Read | None:
        """Return the messages up to one of these or of newer events; None if it is in neither."""
        new = [entry for entry, _ in _back(reversed([*page]), head_id)]
        wanted = new[-1].parent_id if new else head_id
        if not new and wanted == self.ids[-1]:
            return self if self.head == head else self._replace(head=head)
        if self.ids[-1] != wanted and wanted not in self.ids:
            return None
        count = len(self.ids) if self.ids[-1] == wanted else self.ids.index(wanted) + 1
        entries = self.entries.first(count).followed_by(new[::-1])
        ids = [*self.ids[:count], *(each.id for each in reversed(new))]
        return _Read(head, ids, entries, self.complete)


class Histories:
    """The messages of a store's conversations, and a cache of recently read ones.

    Attributes:
        streams: The conversation of each recently used newest message, by the message's id.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._memory: ConversationMemory[_Read] = ConversationMemory()
        self.streams: ConversationMemory[UUID] = ConversationMemory()

    def up_to(
        self, head_id: str | None, limit: int | None, head: ConversationTail | None = None
    ) -> list[ConversationEntry]:
        """Return the messages up to one, in order; with ``limit``, the newest of them.

        ``head`` is the conversation's head, if the caller has just read it.

        Raises:
            MessageNotFound: No message has this id, or it was erased.
        """
        if head_id is None or limit == 0:
            return []
        stream = self.streams.get(head_id) or self._place(head_id)[0]
        known = self._memory.get(stream)
        page: list[EventText] | None = []
        if head is None or known is None or known.head != head:
            with driver_transaction(self._store) as connection:
                head, page = news_of(connection, stream, known and known.head)
        read = known.up_to(head_id, head, page) if known and page is not None else None
        if read is not None and (read.complete or (limit and limit <= len(read.ids))):
            entries = read.entries.newest(limit)
        else:
            before = head.version + 1
            found = [entry for entry, _ in self.chain(head_id, limit, (stream, before))]
            entries, read = found[::-1], None
            if not head.is_fork and self._memory.has_changed(stream):
                ids, complete = [each.id for each in entries], entries[0].parent_id is None
                read = _Read(head, ids, Objects().followed_by(entries), complete)
        if read is not None:
            self._memory.keep(stream, read, None if read is known else read.entries.size)
        return entries

    def forget(self, stream: UUID) -> None:
        """Remove a conversation from the cache."""
        self._memory.take(stream)

    def _place(self, entry_id: str) -> tuple[UUID, int]:
        place = place_of(self._store, entry_id)
        if place is None:
            raise MessageNotFound(f"no message has the id {entry_id}")
        return place

    def chain(
        self, head_id: str, limit: int | None, end: tuple[UUID, int]
    ) -> Iterator[tuple[ConversationEntry, tuple[int, int]]]:
        """Yield messages from one back to the first, and the range of each one's versions.

        ``end`` is a conversation that has the message, and a version after it.
        """
        missing: str | None = head_id
        events = events_before(self._store, *end, first=limit and 2 * limit)
        for entry, versions in islice(_back(events, head_id), limit):
            yield entry, versions
            missing, limit = entry.parent_id, limit and limit - 1
        if missing is not None and limit != 0:
            raise MessageNotFound(f"the message {missing} was erased")

    def switch(self, end: tuple[UUID, int], left: str | None, taken: str | None) -> BranchSwitch:
        """Return the event that withdraws the messages up to one and restores those up to another.

        Args:
            end: The conversation, and the version after its last event.
            left: The last message to withdraw; None if there is none.
            taken: The last message to restore; None if there is none.

        Raises:
            MessageNotFound: The conversation has no message with one of these ids.
        """
        before, after = (
            {versions for _, versions in self.chain(each, None, end)} if each else set()
            for each in (left, taken)
        )
        shared = before & after
        gone, back = (VersionRange.of(joined(each - shared)) for each in (before, after))
        return BranchSwitch(
            reason="switch" if back else "rewind",
            kind="message",
            after=max((last for _, last in shared), default=0),
            left=gone[0].first if gone else None,
            withdrawn=gone,
            taken=back[0].first if back else None,
            restored=back,
        )


def _back(
    events: Iterable[EventText], wanted: str | None
) -> Iterator[tuple[ConversationEntry, tuple[int, int]]]:
    """Yield messages from one back, and each one's versions, from events given newest first."""
    for event in events:
        if wanted is None:
            return
        if event.text is None or event.type == PydanticAIRecord.type or wanted not in event.text:
            continue
        stored = message_in(event.text)
        if stored is not None and stored["id"] == wanted:
            wanted = stored["parent"]
            entry = ConversationEntry(id=stored["id"], parent_id=wanted, message=stored["message"])
            yield entry, (event.version - stored["span"] + 1, event.version)


TAIL = 100  # newest events to read to find where a conversation ends


_REASON = "the conversation was deleted"


def fork(
    store: EventStore,
    first: str,
    record: ConversationRecord,
    entries: Sequence[ConversationEntry],
) -> None:
    """Create a conversation that shares the events of another up to a message.

    Raises:
        ConversationConflict: No conversation has the message, or the one that has it is deleted.
    """
    key, origin = record.conversation_id, place_of(store, first)
    if origin is None:
        raise ConversationConflict(key)
    source, version = origin
    newest = newest_events(store, source, TAIL, before=version + 1)
    hidden = _is_deleted(store, source)
    if newest[0].text is None or (hidden and not _forks(store, source)):
        raise ConversationConflict(key)  # the source is erased, or is about to be
    places = Places.after(newest)
    places.version += 1  # the fork's first event, which records what it shares
    events = [
        event
        for entry in entries
        for event in events_of(entry.message, entry.id, entry.parent_id, places)
    ]
    events.append(places.put(record_event(record)))
    done = store.fork(source, before=version + 1, conversation_id=key, events=events)
    if not hidden and _is_deleted(store, source):  # deleted meanwhile, perhaps hidden for this fork
        withdraw(store, key, done.version)
        if _forks(store, source) == 1:
            store.erase(source, reason=_REASON)
        raise ConversationConflict(key)


def withdraw(store: EventStore, key: str, version: int) -> None:
    """Erase a conversation, or hide it while forks share its events.

    Raises:
        ConversationConflict: It is at another version.
    """
    try:
        store.append(key, PydanticAIRecord(), expected_version=version)
    except WrongExpectedVersion as error:
        raise ConversationConflict(key) from error
    if not _forks(store, stream := store.stream(key)):
        store.erase(stream, reason=_REASON)


def _is_deleted(store: EventStore, stream: UUID) -> bool:
    for event in events_before(store, stream, first=4):
        if event.type == PydanticAIRecord.type:
            return event.text is None or not loads_json(event.text).get("record")
    return False


def _forks(store: EventStore, stream: UUID) -> int:
    with driver_transaction(store) as connection:
        return len(descendants(connection, stream))


class _KnownRecords(NamedTuple):
    """A conversation as it was last written: chain value, record as JSON, and next places."""

    chain: bytes
    record: Any
    places: Places

    @property
    def revision(self) -> str | None:
        """The record's revision; None without a record."""
        return self.record["revision"] if self.record else None


class Records:
    """Reads and writes the records of a store's conversations.

    Attributes:
        answering: The call id of each conversation's recorded stream.
    """

    def __init__(self, store: EventStore, histories: Histories) -> None:
        self._store, self._histories = store, histories
        self._written: ConversationMemory[_KnownRecords] = ConversationMemory()
        self.answering: dict[str, str] = {}

    def one(self, conversation_id: str) -> ConversationRecord | None:
        """Return the newest record, read from the end of the log; None if there is none."""
        return self.at_head(conversation_id)[0]

    def at_head(self, conversation_id: str) -> tuple[ConversationRecord | None, ConversationTail]:
        """Return the newest record, and the conversation's head that was read for it."""
        stream = self._store.stream(conversation_id)
        known = self._written.get(conversation_id)
        with driver_transaction(self._store) as connection:
            head = head_of(connection, stream)
        if known is not None and (known.places.version, known.chain) == head[:2]:
            found_record = known.record
        else:
            found_record = record_in(events_before(self._store, stream, first=4), conversation_id)
        record = None if found_record is None else RECORD.validate_python(found_record)
        if record is not None and record.head_id is not None:
            self._histories.streams.keep(record.head_id, stream, 0)
        return record, head

    def saved(self, conversation_id: str, revision: str) -> ConversationRecord | None:
        """Return the record of a revision that this object has saved, without reading the database.

        Whether it is still the newest, only an append can tell.
        """
        known = self._written.get(conversation_id)
        if known is None or known.revision != revision:
            return None
        return RECORD.validate_python(known.record)

    def newest(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        """Return the records of a scope, or all, the most recently saved first."""
        ends = ends_with(self._store, PydanticAIRecord.type)
        records = [record_in(events, key) for key, events in ends]
        found = [RECORD.validate_python(each) for each in records if each]
        found = [each for each in found if scope in (None, each.scope)]
        found.sort(key=lambda each: each.updated_at, reverse=True)
        return found[:limit]

    def write(
        self,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
        expected: str | None,
    ) -> None:
        """Append messages and the record, in one transaction.

        Raises:
            ConversationConflict: The newest revision is not the expected one, or the message that
                the new ones follow is erased, or belongs to another conversation although this one
                has begun.
        """
        key = record.conversation_id
        stream = self._store.stream(key)
        for attempt in attempts():
            known = self._written.take(key)
            if known is None or known.revision != expected:
                known = self._stands(stream, key)
            if known.revision != expected:
                raise ConversationConflict(key)
            first = entries[0].parent_id if entries else record.head_id
            with attempt:
                if first is not None and not known.places.version:
                    fork(self._store, first, record, entries)
                else:
                    self._append(stream, record, entries, known)
                return

    def _stands(self, stream: UUID, key: str) -> _KnownRecords:
        """Return a conversation's current state from the database."""
        newest = newest_events(self._store, stream, TAIL)
        older = events_before(self._store, stream, newest[-1].version if newest else 0)
        return _KnownRecords(b"", record_in(chain(newest, older), key), Places.after(newest))

    def _append(
        self,
        stream: UUID,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
        known: _KnownRecords,
    ) -> None:
        places, key = known.places, record.conversation_id
        expected = places.version
        events = places.begin()
        head = known.record["head_id"] if known.record else None
        first = entries[0].parent_id if entries else record.head_id
        if head != first:
            try:
                switch = self._histories.switch((stream, expected + 1), head, first)
            except MessageNotFound as error:
                raise ConversationConflict(key) from error
            events.append(places.put(switch))
        answers = [each for each in entries if isinstance(each.message, ModelResponse)]
        call_id = self.answering.get(key) if answers else None
        for entry in entries:
            streamed = call_id if answers and entry is answers[-1] else None
            events += events_of(entry.message, entry.id, entry.parent_id, places, streamed)
        new_event = record_event(record)
        events.append(places.put(new_event))
        done = self._store.append(
            key, events, expected_version=expected or NO_STREAM, allow_empty=True
        )
        written = _KnownRecords(done.anchor.chain, new_event.record, places)
        self._written.keep(key, written, len(dumps_json(new_event.record)))
        if call_id:
            self.answering.pop(key, None)

    def delete(self, conversation_id: str, expected: str) -> None:
        """Erase a conversation, or hide it while forks share its events.

        Raises:
            ConversationConflict: Its revision is not the expected one.
        """
        known, head = self.at_head(conversation_id)
        if known is None or known.revision != expected:
            raise ConversationConflict(conversation_id)
        withdraw(self._store, conversation_id, head.version)
        self._written.take(conversation_id)
        self._histories.forget(self._store.stream(conversation_id))


_saving: ContextVar[str | None] = ContextVar("revision", default=None)


"""The revision that the current save continues from."""


class EventStoreConversations(ConversationStore):
    """A store of conversations whose messages are events; the conversation id is a key or an id.

    A save is one transaction. Messages that a branch leaves are withdrawn; going back restores
    them. A fork shares the events of the conversation that it continues. `delete` erases; while
    forks share the events, it only hides the conversation.

    Args:
        store: The store; it stays open. A store from `EventStore.for_owner` sees only the
            conversations of its tenant or user.
    """

    def __init__(self, store: EventStore | AsyncEventStore) -> None:
        self.store = store_of(store)
        self._histories = Histories(self.store)
        self._records = Records(self.store, self._histories)

    async def save(
        self, conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Append the new messages; see `ConversationStore.save`.

        If this object has saved the revision that the save continues from, it does not read the
        record again: the append itself detects a newer one.
        """
        is_result = isinstance(conversation, AgentRunResult)
        given = conversation.conversation if is_result else conversation
        token = _saving.set(given.revision)
        try:
            saved: list[ConversationEntry] = await super().save(conversation, scope=scope)
            return saved
        finally:
            _saving.reset(token)

    async def _read(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> tuple[ConversationRecord, list[ConversationEntry]] | None:
        """Return record and messages in one hop to a thread, where the framework makes two."""
        if limit is None or limit >= 0:
            try:
                return await in_thread(self._both, conversation_id, limit, scope)
            except MessageNotFound:  # perhaps saved or deleted meanwhile: the framework reads again
                pass
        found: tuple[ConversationRecord, list[ConversationEntry]] | None
        found = await super()._read(conversation_id, limit=limit, scope=scope)
        return found

    def _both(
        self, conversation_id: str, limit: int | None, scope: str | None
    ) -> tuple[ConversationRecord, list[ConversationEntry]] | None:
        record, head = self._records.at_head(conversation_id)
        if record is None or scope not in (None, record.scope):
            return None
        return record, self._histories.up_to(record.head_id, limit, head)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation's record: what the framework stores in addition to messages."""
        if (revision := _saving.get()) is not None:
            _saving.set(None)  # a second read in the same save must see what is stored
            record = self._records.saved(conversation_id, revision)
            if record is not None:
                return record
        return await in_thread(self._records.one, conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope, or all, the most recently saved first."""
        return await in_thread(self._records.newest, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Append messages and the record, in one transaction.

        Raises:
            ConversationConflict: Another writer has saved the conversation since.
        """
        await in_thread(self._records.write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation, or hide it while forks share its events."""
        await in_thread(self._records.delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return a message by its id.

        Raises:
            LookupError: No message has this id.
        """
        [entry] = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the messages up to one, in order; with ``limit``, reads only the newest of them.

        Raises:
            LookupError: No message has this id, or it was erased.
        """
        return await in_thread(self._histories.up_to, head_id, limit)
