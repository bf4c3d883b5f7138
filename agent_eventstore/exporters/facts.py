"""A conversation's events for export: whole payloads, the erased ones left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from eventstore import EventStore, RecordedEvent
from eventstore.events import Retraction, ToolResult
from eventstore.events.records import EventData
from projections.changes import RowBuffer
from projections.context import CONTEXT, CONTEXT_MESSAGES
from projections.folding import retracted

__all__ = ["facts_of", "left_out"]

_GONE = ("withdrawn", "superseded")


def facts_of(store: EventStore, conversation_id: UUID) -> Iterator[tuple[RecordedEvent, EventData]]:
    """Iterate over the events in order of version, with texts that had moved to blobs put back.

    Raises:
        ConversationNotFound: There is no such conversation.
    """
    store.get(conversation_id)
    for event in store.read(conversation_id):
        if event.data is not None:
            yield event, _whole(store, conversation_id, event.data)


def left_out(events: Iterable[RecordedEvent]) -> set[int]:
    """Return the versions of messages that no request holds any more: withdrawn, or replaced.

    Those whose own metadata keep them out of the context are not among them.
    """
    rows, state, gone = RowBuffer(CONTEXT, fresh=True), CONTEXT.initial(), set[int]()
    for event in events:
        state, changes = CONTEXT.fold(state, event)
        rows.add(changes)
        if isinstance(event.data, Retraction):
            for first, last in retracted(event.data, event):
                gone.update(range(first, last + 1))
    for row in rows.complete_rows(CONTEXT_MESSAGES.name):
        if row["hidden"] in _GONE:
            own = row["version"] if row["part"] == 0 else row["result_version"]
            gone.add(row["summary_version"] or own or 0)
    return gone


def _whole(store: EventStore, conversation_id: UUID, data: EventData) -> EventData:
    if not isinstance(data, ToolResult) or data.blob is None or data.content is not None:
        return data
    text = store.blob(conversation_id, data.blob.digest).decode("utf-8", "surrogatepass")
    return data.model_copy(update={"content": text})
