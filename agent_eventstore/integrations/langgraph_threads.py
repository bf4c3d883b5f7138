"""A saver's threads: read, append to, copy and erase them, and cache recently used ones.

A cached thread only reads new events. The caller must hold the lock of a thread that it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import get_checkpoint_id

from agent_eventstore.integrations.conversation_events import Head, attempts, events_after, news_of
from agent_eventstore.integrations.conversation_finding import events_with, forks_with
from agent_eventstore.integrations.conversation_memory import Memory
from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_draft import Draft
from agent_eventstore.integrations.langgraph_events import LanggraphCheckpoint, Typed
from agent_eventstore.integrations.langgraph_keeping import copied, latest_of, needless, of_runs
from agent_eventstore.integrations.langgraph_thread import Saved, Thread
from eventstore import NO_STREAM, EventStore, NewEvent, RecordedEvent
from eventstore.events import Payload
from eventstore.sql.decoding import SPECIAL
from eventstore.sql.lineage import fork_point

__all__ = ["Threads"]

_LOCKS = 64


class Threads:
    """A store's threads by id. Safe to share between threads of the process."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._known: Memory[Thread] = Memory(newest=True)
        # Striped by thread id: few threads share a lock.
        self._locks = [RLock() for _ in range(_LOCKS)]

    def holding(self, thread_id: str) -> RLock:
        """Return a thread's lock."""
        return self._locks[hash(thread_id) % _LOCKS]

    def now(self, thread_id: str) -> Thread:
        """Return a thread's current state; the caller holds its lock."""
        thread = self._read(thread_id, self._known.get(thread_id) or Thread())
        self._known.keep(thread_id, thread, thread.size)
        return thread

    def known(self, thread_id: str) -> Thread:
        """Return a thread's cached state, or else its current one; the caller holds its lock."""
        return self._known.get(thread_id) or self.now(thread_id)

    @contextmanager
    def asked(self, config: RunnableConfig) -> Iterator[tuple[Thread, str, str, str]]:
        """Lock a config's thread; yield its state, its id, the namespace and the checkpoint id."""
        asked = config["configurable"]
        thread_id, namespace = str(asked["thread_id"]), asked.get("checkpoint_ns", "")
        with self.holding(thread_id):
            thread = self.now(thread_id)
            held = thread.checkpoints.get(namespace, {})
            yield thread, thread_id, namespace, get_checkpoint_id(config) or max(held, default="")

    def every(self) -> Iterator[tuple[str, Thread]]:
        """Yield the id and state of each thread with checkpoints; read-only.

        One query reads them all, but for forks, and threads with events that are not plain text,
        such as sealed ones: these are read one by one, last, as the query holds a connection.
        """
        apart: list[str] = []
        for thread_id, is_fork, texts in events_with(self.store, LanggraphCheckpoint.type):
            if is_fork or any(each.text and each.text.startswith(SPECIAL) for each in texts):
                apart.append(thread_id)
                continue
            thread = Thread()
            thread.take(texts)
            yield thread_id, thread
        for thread_id in (*apart, *forks_with(self.store, LanggraphCheckpoint.type)):
            yield thread_id, self._read(thread_id, Thread())

    def append(
        self,
        thread_id: str,
        add: Callable[[Draft], None],
        codec: Codec,
        understood: frozenset[str],
    ) -> None:
        """Append the events of a draft of the thread; redraft it if another writer was faster."""
        with self.holding(thread_id):
            thread = self.known(thread_id)

            def read(after: int, before: int) -> Iterator[RecordedEvent]:
                return self.store.read(thread_id, after=after, before=before)

            for attempt in attempts():
                draft = Draft(thread, codec, understood, read)
                add(draft)
                events = draft.events
                expected = thread.version or NO_STREAM
                with attempt:
                    appended = self.store.append(
                        thread_id, events, expected_version=expected, allow_empty=True
                    )
                    for version, event in enumerate(events, start=thread.version + 1):
                        told: Any = cast(Payload, event.data).model_dump()
                        thread.fold(version, event.data.type, told, event.meta)
                    thread.chain = appended.anchor.chain
                    thread.read += appended.size
                    thread.remember(draft.packed)
                    self._known.keep(thread_id, thread, thread.size)
                    return
                thread = self.now(thread_id)

    def checkpoints(
        self, thread_id: str | None
    ) -> Iterator[tuple[str, dict[str, dict[str, Saved]]]]:
        """Yield the checkpoints of a thread, or of every thread, by namespace and id."""
        if thread_id is None:
            yield from ((each, thread.checkpoints) for each, thread in self.every())
            return
        with self.holding(thread_id):
            held = self.now(thread_id).checkpoints
            yield thread_id, {namespace: {**each} for namespace, each in held.items()}

    def copy(self, source: str, target: str) -> None:
        """Append a copy of a thread's events to another thread, in one transaction.

        The copy is made again if another writer has appended to the other thread meanwhile.
        """
        if self.store.stream(source) == self.store.stream(target):
            return
        with self.holding(target):
            for attempt in attempts():
                version = self.now(target).version
                # Before the transaction, which would need a second connection to read.
                batches = [*copied(self.store.read(source), version)]
                with attempt:
                    self._append_all(target, version, batches)
                    return

    def _append_all(self, thread_id: str, version: int, batches: list[list[NewEvent]]) -> None:
        with self.store.transaction() as connection:
            for batch in batches:
                expected = version or NO_STREAM
                done = self.store.append(
                    thread_id,
                    batch,
                    expected_version=expected,
                    connection=connection,
                    allow_empty=True,
                )
                version = done.version

    def delete(self, thread_id: str) -> None:
        """Erase a thread's conversation."""
        with self.holding(thread_id):
            if self.now(thread_id).has_content:
                self.store.erase(thread_id, reason="the thread was deleted")
                self._known.take(thread_id)

    def delete_runs(self, run_ids: Collection[str], loads: Callable[[Typed], Any]) -> None:
        """Erase the checkpoints of runs in all threads, and the events that only they need."""
        for thread_id in [each for each, found in self.every() if of_runs(found, run_ids, loads)]:
            with self.holding(thread_id):
                thread = self.now(thread_id)
                gone = needless(thread, of_runs(thread, run_ids, loads))
                self._erase(thread_id, gone, "its run was deleted")

    def prune(self, thread_id: str, loads: Callable[[Typed], Any]) -> None:
        """Erase what a thread's newest checkpoints do not need, except its messages."""
        with self.holding(thread_id):
            thread = self.now(thread_id)
            every = {(ns, each) for ns, held in thread.checkpoints.items() for each in held}
            gone = needless(thread, every - latest_of(thread, loads))
            self._erase(thread_id, gone - thread.messages, "it was pruned")

    def _erase(self, thread_id: str, versions: set[int], reason: str) -> None:
        """Erase events of a thread; those that a fork shares are erased in their own thread."""
        with self.store._on_driver() as connection:
            parent = fork_point(connection, self.store.stream(thread_id))
        own = {each for each in versions if parent is None or each > parent.version}
        if own:
            self.store.erase(thread_id, reason=reason, versions=own, derived=False)
            self._known.take(thread_id)

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
