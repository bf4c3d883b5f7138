"""The threads of a saver: read, appended to and erased, and the latest ones kept in memory.

What is known of a thread is read no second time; who changes it holds its lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import groupby
from threading import Lock, RLock
from typing import Any, cast

from sqlalchemy import Text, select
from sqlalchemy import cast as as_type

from agent_eventstore.integrations.conversation_head import Head, attempts, news_of
from agent_eventstore.integrations.conversation_pages import events_after
from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_draft import Draft
from agent_eventstore.integrations.langgraph_events import LanggraphCheckpoint
from agent_eventstore.integrations.langgraph_thread import Thread
from eventstore import NO_STREAM, EventStore
from eventstore.events import Payload
from eventstore.sql.read import SPECIAL, EventText
from eventstore.sql.schema import metadata_for

__all__ = ["Threads"]

_KEPT = 64
_LOCKS = 64
_PAGE = 1_000  # rows that are in memory at once


class Threads:
    """A store's threads by their ids. Safe to share between threads of the process."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._known: OrderedDict[str, Thread] = OrderedDict()
        self._lock = Lock()
        # A thread's own, shared with few others, so that threads do not wait for each other.
        self._locks = [RLock() for _ in range(_LOCKS)]

    def holding(self, thread_id: str) -> RLock:
        """Return the lock of a thread."""
        return self._locks[hash(thread_id) % _LOCKS]

    def now(self, thread_id: str) -> Thread:
        """Return a thread as it stands now; whoever asks holds it."""
        thread = self._read(thread_id, self._known.get(thread_id) or Thread())
        with self._lock:
            self._known[thread_id] = thread
            self._known.move_to_end(thread_id)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return thread

    def known(self, thread_id: str) -> Thread:
        """Return a thread as it was when it was last looked at; whoever asks holds it."""
        return self._known.get(thread_id) or self.now(thread_id)

    def every(self) -> Iterator[tuple[str, Thread]]:
        """Yield all threads that have checkpoints, with their ids, in one query; to be looked at.

        Forks and what is not plain text, such as sealed events, are read by themselves.
        """
        with self.store.reading() as connection:
            tables = metadata_for(connection.dialect.name).tables
            streams, events = tables["conversations"].c, tables["events"].c
            saved = tables["events"].alias().c
            query = (
                select(streams.conversation_id, streams.key)
                .add_columns(streams.parent_conversation_id.is_not(None))
                .add_columns(events.version, events.type, events.schema_version)
                .add_columns(as_type(events.data, Text), as_type(events.meta, Text))
                .where(events.conversation_id == streams.conversation_id)
                .where(
                    select(saved.version)
                    .where(saved.conversation_id == streams.conversation_id)
                    .where(saved.type == LanggraphCheckpoint.type)
                    .exists()
                )
                .order_by(streams.conversation_id, events.version)
            )
            query = self.store.owner.limit(query, streams)
            rows = connection.execute(query, execution_options={"yield_per": _PAGE})
            for (stream, key, is_fork), found in groupby(rows, key=lambda row: tuple(row[:3])):
                thread_id = key or str(stream)
                texts = [EventText(*row[3:]) for row in found]
                if is_fork or any(each.text and each.text.startswith(SPECIAL) for each in texts):
                    yield thread_id, self._read(thread_id, Thread())
                    continue
                thread = Thread()
                thread.take(texts)
                yield thread_id, thread

    def append(
        self,
        thread_id: str,
        add: Callable[[Draft], None],
        codec: Codec,
        understood: frozenset[str],
    ) -> None:
        """Append what a draft of the thread holds; again if another process was faster."""
        with self.holding(thread_id):
            thread = self.known(thread_id)
            for attempt in attempts():
                draft = Draft(thread, codec, understood)
                add(draft)
                events = draft.events
                expected = thread.version or NO_STREAM
                with attempt:
                    appended = self.store.append(thread_id, events, expected_version=expected)
                    for version, event in enumerate(events, start=thread.version + 1):
                        told: Any = cast(Payload, event.data).model_dump()
                        thread.fold(version, event.data.type, told, event.meta)
                    thread.chain = appended.anchor.chain
                    thread.remember(draft.told)
                    return
                thread = self.now(thread_id)

    def erase(self, thread_id: str, versions: set[int], reason: str) -> None:
        """Erase events of a thread; whoever asks holds it."""
        if versions:
            self.store.erase(thread_id, reason=reason, versions=versions, derived=False)

    def _read(self, thread_id: str, thread: Thread) -> Thread:
        stream = self.store.stream(thread_id)
        with self.store._on_driver() as connection:
            head, news = news_of(connection, stream, Head(thread.version, thread.chain))
        if news is None:
            thread = Thread()
            thread.take(events_after(self.store, stream, 0, before=head.version + 1))
        else:
            thread.take(news)
        thread.version, thread.chain, _ = head
        return thread
