"""`EventStoreConversations`: Pydantic AI's `ConversationStore`; the extra ``pydantic-ai``.

Pydantic AI reads back exactly the messages that it wrote. The adapter records them as the
catalogue's events, so that timeline, usage, tool audit, messages[], search and `verify` work on
them.
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
from agent_eventstore.integrations.pydantic_history import Histories, MessageNotFound
from agent_eventstore.integrations.pydantic_records import Records
from eventstore import AsyncEventStore, EventStore
from eventstore.threads import in_thread

__all__ = ["EventStoreConversations"]

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
