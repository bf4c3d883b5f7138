"""Stream an answer to Vercel's AI SDK: what ``useChat`` shows while the turn is being recorded.

Any process can send these server-sent events, always from the beginning of the turn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from agent_eventstore.transcripts.extras import whole
from agent_eventstore.transcripts.ui_messages import (
    ended,
    export_ui_messages,
    message_id,
    output_value,
)
from eventstore import EventStore
from eventstore.events import ToolResult
from eventstore.events.codec import dumps
from eventstore.ids import StreamId
from projections import AsyncViews, Views
from projections.models.session_rows import SESSIONS
from projections.models.timeline_changes import (
    ItemAdded,
    ItemChanged,
    ItemsWithdrawn,
    TextAppended,
    TimelineChange,
    TimelineReset,
    TimelineUpdate,
)
from projections.models.timeline_items import TimelineItem
from projections.queries import start_of_turn
from projections.reading import read_current

__all__ = ["HEADERS", "UIMessageStream", "astream_turn", "export_ui_messages", "stream_turn"]


_SPOKEN = {"assistant": "text", "reasoning": "reasoning"}


_GOES_ON = ("streaming", "pending", "running")


_STOPPED = ("cancelled", "aborted", "interrupted", "withdrawn")


Chunk = dict[str, Any]


class UIMessageStream:
    """The chunks of one turn's answer; `over` is True once the turn has ended.

    Args:
        conversation_id: The conversation.
        turn: The turn's number.
        result: Returns the full result of a tool's item. Without it, a large result is sent as its
            preview.
    """

    def __init__(
        self,
        conversation_id: UUID,
        turn: int,
        result: Callable[[TimelineItem], ToolResult | None] | None = None,
    ) -> None:
        self.over = False
        self._result = result
        self._conversation_id, self._turn = conversation_id, turn
        self._items: dict[tuple[int, int], TimelineItem] = {}
        self._sent: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        self._step: int | None = None
        self._started = False
        self._error: str | None = None
        self._ended_turn: TimelineItem | None = None

    def chunks(self, update: TimelineUpdate) -> Iterator[Chunk]:
        """Yield the chunks for a timeline update."""
        if not self._started:
            self._started = True
            named = message_id(self._conversation_id, self._turn, update.version)
            yield {"type": "start", "messageId": named}
        for change in update.changes:
            yield from self._change(change)
        # The item of a turn precedes those of its answer, which the same update may contain.
        if self._ended_turn is not None and not self.over:
            yield from self._end(self._ended_turn)

    def _change(self, change: TimelineChange) -> Iterator[Chunk]:
        match change:
            case ItemAdded(item=item):
                yield from self._put(item)
            case ItemChanged(version=version, part=part, values=values):
                if (shown := self._items.get((version, part))) is not None:
                    yield from self._put(replace(shown, **values))
            case TextAppended(version=version, part=part, text=text):
                if (shown := self._items.get((version, part))) is not None:
                    yield from self._put(replace(shown, text=(shown.text or "") + text))
            case TimelineReset(items=items):
                for item in items:
                    yield from self._put(item)
            case ItemsWithdrawn(first=first, last=last):
                for shown in list(self._items.values()):
                    if first <= (shown.message_version or 0) <= last:
                        yield from self._put(replace(shown, status="withdrawn"))

    def _put(self, item: TimelineItem) -> Iterator[Chunk]:
        """Store an item's current state and yield the chunks for what has changed."""
        if item.turn != self._turn or item.agent_id is not None:
            return
        self._items[(item.version, item.part)] = item
        if item.kind == "turn":
            if item.status not in _GOES_ON:
                self._ended_turn = item
        elif item.kind in _SPOKEN:
            yield from self._begin_step(item)
            yield from self._speak(item, _SPOKEN[item.kind])
        elif item.kind == "tool" and item.call_id is not None and item.name is not None:
            yield from self._begin_step(item)
            yield from self._use(item, item.call_id, item.name)
        elif item.kind == "error":
            self._error = item.text or "the model call failed"

    def _begin_step(self, item: TimelineItem) -> Iterator[Chunk]:
        if item.step is not None and (self._step is None or item.step > self._step):
            yield from self._end_step()
            self._step = item.step
            yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Chunk]:
        for named, kind in self._open.items():
            yield {"type": f"{kind}-end", "id": named}
        self._open.clear()
        if self._step is not None:
            yield {"type": "finish-step"}

    def _speak(self, item: TimelineItem, kind: str) -> Iterator[Chunk]:
        named, text = f"{item.version}.{item.part}", item.text or ""
        if named not in self._sent:
            if not text:
                return
            self._sent[named], self._open[named] = "", kind
            yield {"type": f"{kind}-start", "id": named}
        sent = self._sent[named]
        if named in self._open and len(text) > len(sent) and text.startswith(sent):
            self._sent[named] = text
            yield {"type": f"{kind}-delta", "id": named, "delta": text[len(sent) :]}
        if item.status not in _GOES_ON and self._open.pop(named, None) is not None:
            yield {"type": f"{kind}-end", "id": named}

    def _use(self, item: TimelineItem, call: str, name: str) -> Iterator[Chunk]:
        about: Mapping[str, Any] = {"toolCallId": call, "toolName": name}
        if call not in self._tools:
            self._tools[call] = "input"
            yield {"type": "tool-input-start", **about}
            yield {"type": "tool-input-available", **about, "input": item.arguments}
        if self._tools[call] == "input" and item.status not in _GOES_ON:
            self._tools[call] = "output"
            output = self._ended(item)
            kind = f"tool-{output.pop('state')}"
            yield {"type": kind, "toolCallId": call, **output}

    def _ended(self, item: TimelineItem) -> dict[str, Any]:
        """Return how a tool ended: as the export has it, or from the item if there is no result."""
        result = None if self._result is None else self._result(item)
        if result is not None:
            return ended(result)
        if item.status == "success":
            return {"state": "output-available", "output": output_value(item.text)}
        message = item.text or (item.status or "failed").replace("_", " ")
        return {"state": "output-error", "errorText": message}

    def _end(self, turn: TimelineItem) -> Iterator[Chunk]:
        yield from self._end_step()
        self.over = True
        if turn.status in _STOPPED:
            yield {"type": "abort"}
        elif turn.status == "error":
            yield {"type": "error", "errorText": turn.text or self._error or "the turn failed"}
        else:
            yield {"type": "finish"}


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
    start_version = _started(views, conversation_id, turn)
    if start_version is None:
        return None
    stream, before = start_version
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
    start_version = await views.run(lambda own: _started(own, conversation_id, turn))
    if start_version is None:
        return None
    stream, before = start_version
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


def _started(
    views: Views, conversation_id: StreamId, turn: int | None
) -> tuple[UIMessageStream, int] | None:
    """Return the stream of a turn, by default of the one in progress, and the version before it."""
    stream = views.store.get(conversation_id).conversation_id
    start_version = _open_turn(views, stream) if turn is None else _start_of(views, stream, turn)
    if start_version is None:
        return None
    number, version = start_version
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
