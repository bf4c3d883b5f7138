"""Stream an answer to Vercel's AI SDK: what ``useChat`` shows while the turn is being recorded.

Any process can send these server-sent events, always from the beginning of the turn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from functools import partial
from uuid import UUID

from agent_eventstore.formats.extras import whole
from agent_eventstore.formats.ui_messages import export_ui_messages
from agent_eventstore.integrations.ai_sdk_chunks import UIMessageStream
from eventstore import EventStore
from eventstore.events import ToolResult
from eventstore.events.codec import dumps
from eventstore.ids import StreamId
from projections import AsyncViews, Views
from projections.models.session_rows import SESSIONS
from projections.models.timeline_changes import TimelineUpdate
from projections.models.timeline_items import TimelineItem
from projections.queries import start_of_turn
from projections.reading import read_current

__all__ = ["HEADERS", "UIMessageStream", "astream_turn", "export_ui_messages", "stream_turn"]

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
    "x-vercel-ai-ui-message-stream": "v1",
}
"""The headers that a response with such a stream needs."""


def stream_turn(
    views: Views,
    conversation_id: StreamId,
    turn: int | None = None,
    *,
    heartbeat_s: float | None = 15,
    timeout_s: float | None = None,
) -> Generator[str, None, None] | None:
    """Return a turn's answer as server-sent events, from its beginning; None if there is no turn.

    Every call, in any process, streams the whole turn so far and then follows it. The stream ends
    when the turn ends, after ``timeout_s``, or when the caller closes it. Only reads from the
    store.

    Args:
        views: The views; the views of one owner see only that owner's conversations.
        conversation_id: The conversation.
        turn: The turn's number; by default the turn in progress.
        heartbeat_s: Send a comment after this many seconds without an update.
        timeout_s: End after this many seconds without an update; None waits forever.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    begun = _begun(views, conversation_id, turn)
    if begun is None:
        return None
    stream, before = begun
    updates = views.follow(
        conversation_id, after=before, heartbeat_s=heartbeat_s, timeout_s=timeout_s
    )

    def sent() -> Generator[str, None, None]:
        for update in updates:
            yield from _events(stream, update)
            if stream.over:
                break
        yield "data: [DONE]\n\n"

    return sent()


async def astream_turn(
    views: AsyncViews,
    conversation_id: StreamId,
    turn: int | None = None,
    *,
    heartbeat_s: float | None = 15,
    timeout_s: float | None = None,
) -> AsyncGenerator[str, None] | None:
    """Return the same stream as `stream_turn`, read through asynchronous views."""
    begun = await views.run(lambda own: _begun(own, conversation_id, turn))
    if begun is None:
        return None
    stream, before = begun
    updates = views.follow(
        conversation_id, after=before, heartbeat_s=heartbeat_s, timeout_s=timeout_s
    )

    async def sent() -> AsyncGenerator[str, None]:
        async for update in updates:
            # Reading the full result of a tool blocks, so it runs in a thread.
            for event in await views.run(partial(_listed, stream, update)):
                yield event
            if stream.over:
                break
        yield "data: [DONE]\n\n"

    return sent()


def _listed(stream: UIMessageStream, update: TimelineUpdate, _: Views) -> list[str]:
    return list(_events(stream, update))


def _events(stream: UIMessageStream, update: TimelineUpdate) -> Iterator[str]:
    if not update.changes:
        yield ": alive\n\n"
    for chunk in stream.chunks(update) if update.changes else ():
        yield f"data: {dumps(chunk)}\n\n"


def _begun(
    views: Views, conversation_id: StreamId, turn: int | None
) -> tuple[UIMessageStream, int] | None:
    """Return the stream of a turn, by default of the one in progress, and the version before it."""
    stream = views.store.get(conversation_id).conversation_id
    begun = _open_turn(views, stream) if turn is None else _start_of(views, stream, turn)
    if begun is None:
        return None
    number, version = begun
    return UIMessageStream(stream, number, partial(_result, views.store, stream)), version - 1


def _open_turn(views: Views, stream: UUID) -> tuple[int, int] | None:
    """Return the number of the turn in progress and the version of its start."""
    found = views.open_work(stream).turn
    return None if found is None or found.turn is None else (found.turn, found.version)


def _start_of(views: Views, stream: UUID, turn: int) -> tuple[int, int] | None:
    """Return the number of a turn and the version of its start."""
    version = read_current(
        views.store,
        (SESSIONS,),
        stream,
        lambda copies: start_of_turn(*copies[0], stream=stream, turn=turn),
    )
    return None if version is None else (turn, version)


def _result(store: EventStore, conversation_id: UUID, item: TimelineItem) -> ToolResult | None:
    """Return the full result that ended a tool's item; None if it ended without a result."""
    for event in store.read(conversation_id, after=(item.end_version or item.version) - 1, limit=1):
        if isinstance(event.data, ToolResult) and event.data.call_id == item.call_id:
            found = whole(store, conversation_id, event.data)
            return found if isinstance(found, ToolResult) else None
    return None
