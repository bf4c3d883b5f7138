"""Record what a model streams under a framework at once, before the framework stores the answer.

Chunks are events of the conversation. The answer that the framework stores at the end names the
call that they belong to. If no answer comes, the next run seals the call as interrupted.
"""

from __future__ import annotations

import time
from dataclasses import replace

from agent_eventstore.batching import Batcher, Stalls
from agent_eventstore.integrations.conversation_events import newest_events
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.machines.seals import seal
from agent_eventstore.providers import Delta
from agent_eventstore.unwritten import PASSING
from eventstore import EventStore
from eventstore.errors import ConversationNotFound, WrongExpectedVersion
from eventstore.events import AssistantChunk, Meta, NewEvent
from eventstore.ids import new_id
from eventstore.threads import in_thread
from projections import Views

__all__ = ["Streamed", "seal_streams"]

_NEAR = 20  # newest events to read to find the current turn


class Streamed:
    """An answer that is arriving: its first piece is written at once, the rest in batches.

    A batch that becomes due while the stream stalls is written in the background: a kill loses only
    what came within the last 100 ms.

    Attributes:
        call_id: The id of the model call, which the stored answer must name.

    Args:
        store: The store.
        key: The key of the conversation, which must exist.
    """

    def __init__(self, store: EventStore, key: str) -> None:
        self._store, self._key = store, key
        self.call_id = str(new_id())
        self._batcher = Batcher(self.call_id, in_lines=store.redact is not None)
        self._unwritten: list[NewEvent] = []
        self._stalls = Stalls(self._flush)
        self._meta: Meta | None = None

    async def feed(self, piece: Delta) -> None:
        """Add a piece, and append a batch if one is due, in one transaction.

        Raises:
            Exception: The error of a background write, raised once.
        """
        self._stalls.check()
        if not self._stalls.lock.acquire(blocking=False):
            # A stalled batch is being written: do not block the event loop on its lock.
            await in_thread(self._take, piece)
            return
        try:
            due = self._hold(self._batcher.add(piece, time.monotonic()))
        finally:
            self._stalls.lock.release()
        if due:
            await in_thread(self._write)

    async def end(self) -> None:
        """Append the rest and stop writing in the background."""
        await in_thread(self._end)

    def _take(self, piece: Delta) -> None:
        with self._stalls.lock:
            if self._hold(self._batcher.add(piece, time.monotonic())):
                self._write()

    def _end(self) -> None:
        with self._stalls.lock:
            self._stalls.stop()
            if self._hold(self._batcher.take(time.monotonic(), last=True)):
                self._write()

    def _hold(self, chunk: AssistantChunk | None) -> bool:
        """Hold a batch until it is written; return whether any batch is unwritten."""
        if chunk is not None:
            self._unwritten.append(NewEvent(chunk, event_id=new_id()))
        self._stalls.watch(self._batcher.due_at)
        return bool(self._unwritten)

    def _flush(self) -> bool:
        """Write the batch of a stalled stream; return False if it must be tried again."""
        self._hold(self._batcher.take(time.monotonic()))
        try:
            self._write(wait=False)
        except PASSING:
            return False
        return True

    def _write(self, *, wait: bool = True) -> None:
        """Append the unwritten batches, in one transaction."""
        with self._stalls.lock:
            if not self._unwritten:
                return
            if self._meta is None:
                newest = newest_events(self._store, self._store.stream(self._key), _NEAR)
                places = Places.after(newest)
                self._meta = Meta(turn=places.turn or None, step=places.step + 1)
            self._store.append(self._key, self._unwritten, meta=self._meta, wait=wait)
            self._unwritten.clear()


def seal_streams(store: EventStore, key: str) -> None:
    """Record each unfinished answer as interrupted, with the text that had arrived.

    Does nothing if another writer appends in the meantime: that writer then seals them.
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
