"""The records of Pydantic AI's conversations, written in one transaction with the messages.

A record is what the framework stores of a conversation in addition to its messages. Of two
concurrent saves only one succeeds: each append expects the version that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
)
from pydantic_ai.messages import ModelResponse

from agent_eventstore.integrations.conversation_events import (
    Head,
    attempts,
    events_before,
    head_of,
    newest_events,
)
from agent_eventstore.integrations.conversation_finding import ends_with
from agent_eventstore.integrations.conversation_memory import Memory
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.pydantic_events import events_of
from agent_eventstore.integrations.pydantic_forks import TAIL, fork, withdraw
from agent_eventstore.integrations.pydantic_history import Histories, MessageNotFound
from agent_eventstore.integrations.pydantic_kept import RECORD, record_event, record_in
from agent_eventstore.integrations.pydantic_messages import PydanticAIRecord
from eventstore import NO_STREAM, EventStore
from eventstore.events.codec import dumps_json

__all__ = ["Records"]


class _Known(NamedTuple):
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
        self._written: Memory[_Known] = Memory()
        self.answering: dict[str, str] = {}

    def one(self, conversation_id: str) -> ConversationRecord | None:
        """Return the newest record, read from the end of the log; None if there is none."""
        return self.at_head(conversation_id)[0]

    def at_head(self, conversation_id: str) -> tuple[ConversationRecord | None, Head]:
        """Return the newest record, and the conversation's head that was read for it."""
        stream = self._store.stream(conversation_id)
        known = self._written.get(conversation_id)
        with self._store._on_driver() as connection:
            head = head_of(connection, stream)
        if known is not None and (known.places.version, known.chain) == head[:2]:
            told = known.record
        else:
            told = record_in(events_before(self._store, stream, first=4), conversation_id)
        record = None if told is None else RECORD.validate_python(told)
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
        told = [record_in(events, key) for key, events in ends]
        found = [RECORD.validate_python(each) for each in told if each]
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

    def _stands(self, stream: UUID, key: str) -> _Known:
        """Return a conversation's current state from the database."""
        newest = newest_events(self._store, stream, TAIL)
        older = events_before(self._store, stream, newest[-1].version if newest else 0)
        return _Known(b"", record_in(chain(newest, older), key), Places.after(newest))

    def _append(
        self,
        stream: UUID,
        record: ConversationRecord,
        entries: Sequence[ConversationEntry],
        known: _Known,
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
        told = record_event(record)
        events.append(places.put(told))
        done = self._store.append(
            key, events, expected_version=expected or NO_STREAM, allow_empty=True
        )
        written = _Known(done.anchor.chain, told.record, places)
        self._written.keep(key, written, len(dumps_json(told.record)))
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
