"""Pydantic AI conversations that share events: a fork begins after a message of another.

A deleted conversation is erased, or hidden while forks share its events.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
)

from agent_eventstore.integrations.conversation_events import events_before, newest_events
from agent_eventstore.integrations.conversation_finding import place_of
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.pydantic_events import events_of
from agent_eventstore.integrations.pydantic_kept import record_event
from agent_eventstore.integrations.pydantic_messages import PydanticAIRecord
from eventstore import EventStore
from eventstore.errors import WrongExpectedVersion
from eventstore.events.codec import loads_json
from eventstore.sql.lineage import descendants

__all__ = ["TAIL", "fork", "withdraw"]

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
    with store._on_driver() as connection:
        return len(descendants(connection, stream))
