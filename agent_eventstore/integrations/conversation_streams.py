"""What a model streams under a framework is durable at once, though the store is told later.

Chunks are events of the conversation. The answer that the framework's store is given at the end
names the call that they belong to; where none comes, the next run seals the call as interrupted.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from agent_eventstore.batching import Batcher
from agent_eventstore.integrations.conversation_pages import newest_events
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.journal_aio import in_thread
from agent_eventstore.providers import Delta
from agent_eventstore.recovery import seal
from eventstore import EventStore
from eventstore.errors import ConversationNotFound, WrongExpectedVersion
from eventstore.events import AssistantChunk, Meta
from eventstore.ids import new_id
from projections import Views

__all__ = ["Streamed", "seal_streams"]

_NEAR = 20  # of the newest events, among which one tells the turn


class Streamed:
    """An answer that is arriving: its first piece is written at once, then batches.

    A kill loses what came within the last 100 ms, or since the last piece if none follows.

    Attributes:
        call_id: The call's id, which the answer is to name.

    Args:
        store: Where the conversation is kept.
        key: The conversation's key; it has begun.
    """

    def __init__(self, store: EventStore, key: str) -> None:
        self._store, self._key = store, key
        self.call_id = str(new_id())
        self._batcher = Batcher(self.call_id, in_lines=store.redact is not None)
        self._meta: Meta | None = None

    async def feed(self, piece: Delta) -> None:
        """Take what has arrived, and append a batch if one is due, in one transaction."""
        if (chunk := self._batcher.add(piece, time.monotonic())) is not None:
            await in_thread(partial(self._append, chunk))

    async def end(self) -> None:
        """Append what is held yet."""
        if (chunk := self._batcher.take(time.monotonic(), last=True)) is not None:
            await in_thread(partial(self._append, chunk))

    def _append(self, chunk: AssistantChunk) -> None:
        if self._meta is None:
            newest = newest_events(self._store, self._store.stream(self._key), _NEAR)
            places = Places.after(newest)
            self._meta = Meta(turn=places.turn or None, step=places.step + 1)
        self._store.append(self._key, chunk, meta=self._meta)


def seal_streams(store: EventStore, key: str) -> None:
    """Say of answers that were begun that they were interrupted, with what had arrived of them.

    Unless somebody else appends meanwhile, who then is the one to say so.
    """
    try:
        work = Views(store).open_work(key)
    except ConversationNotFound:
        return
    ends = seal(replace(work, tool_calls=(), turn=None, session=None))
    if ends:
        try:
            store.append(key, ends, expected_version=work.last_version)
        except WrongExpectedVersion:
            return
