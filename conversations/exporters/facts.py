"""A conversation's events for export: whole payloads, the erased ones left out."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from eventstore import EventStore, RecordedEvent
from eventstore.events import ToolResult
from eventstore.events.records import EventData

__all__ = ["facts_of"]


def facts_of(store: EventStore, conversation_id: UUID) -> Iterator[tuple[RecordedEvent, EventData]]:
    """Iterate over the events in order of version, with texts that had moved to blobs put back.

    Raises:
        ConversationNotFound: There is no such conversation.
    """
    store.get(conversation_id)
    for event in store.read(conversation_id):
        if event.data is not None:
            yield event, _whole(store, conversation_id, event.data)


def _whole(store: EventStore, conversation_id: UUID, data: EventData) -> EventData:
    if not isinstance(data, ToolResult) or data.blob is None or data.content is not None:
        return data
    text = store.blob(conversation_id, data.blob.digest).decode("utf-8", "surrogatepass")
    return data.model_copy(update={"content": text})
