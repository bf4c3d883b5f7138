"""`EventStoreConversations`: Pydantic AI's `ConversationStore`; the extra ``pydantic-ai``.

Messages come out as they went in. What the adapter writes are the catalogue's own events, so that
timeline, usage, tool audit, messages[], search and `verify` work on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from pydantic_ai.agent import AgentRunResult
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from agent_eventstore.integrations.conversation_events import store_of
from agent_eventstore.integrations.pydantic_history import Histories
from agent_eventstore.integrations.pydantic_records import Records
from agent_eventstore.journal_aio import in_thread
from eventstore import AsyncEventStore, EventStore

__all__ = ["EventStoreConversations"]

_saving: ContextVar[str | None] = ContextVar("revision", default=None)
"""The revision that a save goes on from."""


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
        self.store = store_of(store)
        self._histories = Histories(self.store)
        self._records = Records(self.store, self._histories)

    async def save(
        self, conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Append the messages that are new; see `ConversationStore.save`.

        Where this object has saved the revision that it goes on from, the append alone finds out
        whether somebody else has saved another since.
        """
        is_result = isinstance(conversation, AgentRunResult)
        held = conversation.conversation if is_result else conversation
        token = _saving.set(held.revision)
        try:
            saved: list[ConversationEntry] = await super().save(conversation, scope=scope)
            return saved
        finally:
            _saving.reset(token)

    async def _read(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> tuple[ConversationRecord, list[ConversationEntry]] | None:
        """Return record and messages in one change of threads, where the framework makes two."""
        if limit is None or limit >= 0:
            try:
                return await in_thread(self._both, conversation_id, limit, scope)
            except LookupError:  # saved or deleted meanwhile, perhaps: the framework finds out
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
        """Return what is known of a conversation besides its messages."""
        if (revision := _saving.get()) is not None:
            _saving.set(None)  # a save that asks again wants to know what is stored
            record = self._records.saved(conversation_id, revision)
            if record is not None:
                return record
        return await in_thread(self._records.one, conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope or of all, the one saved last first."""
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
            ConversationConflict: Somebody else has saved the conversation since.
        """
        await in_thread(self._records.write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation, or hide it while forks share its events."""
        await in_thread(self._records.delete, conversation_id, expected_revision)

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
        return await in_thread(self._histories.up_to, head_id, limit)
