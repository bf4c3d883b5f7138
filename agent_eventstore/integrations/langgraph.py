"""`EventStoreSaver`: LangGraph's checkpoints as events of a conversation.

A thread is the conversation that has the thread's id as its key, or, where the id is a UUID, as
its id. Each method is one transaction of the store's; those that are asynchronous do the same in a
thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from agent_eventstore.integrations.conversation_events import unredacted
from agent_eventstore.integrations.langgraph_async import iterated, threaded
from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_draft import Draft
from agent_eventstore.integrations.langgraph_reading import history_of, listed, tuple_of
from agent_eventstore.integrations.langgraph_threads import Threads
from eventstore import AsyncEventStore, EventStore

__all__ = ["EventStoreSaver"]


class EventStoreSaver(BaseCheckpointSaver[str]):
    """A checkpointer that keeps graphs' states in an event store.

    Values of channels are stored once, by content, and messages as events: what was said, asked of
    tools and spent is seen by all views. What was read of the latest threads is kept in memory, and
    only what has come in since is read again. Safe to share between threads and processes.

    Args:
        store: Where to; one of `EventStore.for_owner` for the threads of one tenant or user.
        serde: LangGraph's serialiser of values, or one of the product's own.
        messages: The channels whose messages become events. By default ``messages``, and none with
            a serialiser that encrypts.

    Raises:
        ValueError: The store redacts, and could not give back what a graph has written.
    """

    def __init__(
        self,
        store: EventStore | AsyncEventStore,
        *,
        serde: Any = None,
        messages: Collection[str] | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self.store = unredacted(store, "its state as it was")
        self._codec = Codec(self.serde)
        self._messages = messages
        self._threads = Threads(self.store)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the newest of its thread and namespace."""
        with self._threads.asked(config) as (thread, thread_id, namespace, wanted):
            return tuple_of(thread, thread_id, namespace, wanted, self._codec_now())

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> dict[str, Any]:
        """Return of what each channel of a checkpoint is rebuilt: a value before it, and writes."""
        with self._threads.asked(config) as (thread, _, namespace, wanted):
            return history_of(thread, namespace, wanted, channels, self._codec_now())

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest id first; without a config over those of all threads.

        All threads are read for that, in one query, which takes as long as they are many.
        """
        asked, codec = {} if config is None else config["configurable"], self._codec_now()
        only = str(asked["thread_id"]) if asked else None
        until = None if before is None else get_checkpoint_id(before)
        found = listed(self._threads.checkpoints(only), asked, until, filter or {}, codec)
        fresh = set[str]() if only is None else {only}
        for checkpoint_id, thread_id, ns in found if limit is None else found[: max(limit, 0)]:
            with self._threads.holding(thread_id):
                look = self._threads.known if thread_id in fresh else self._threads.now
                one = tuple_of(look(thread_id), thread_id, ns, checkpoint_id, codec)
                fresh.add(thread_id)
            if one is not None:
                yield one

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; return the config that names it."""
        asked = config["configurable"]
        namespace, parent = asked.get("checkpoint_ns", ""), asked.get("checkpoint_id")
        told = get_checkpoint_metadata(config, metadata)
        self._append(
            str(asked["thread_id"]),
            lambda draft: draft.checkpoint(namespace, parent, checkpoint, told, new_versions),
        )
        named = {"thread_id": asked["thread_id"], "checkpoint_ns": namespace}
        return {"configurable": {**named, "checkpoint_id": checkpoint["id"]}}

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task has written, until the next checkpoint shows it."""
        asked = config["configurable"]
        if writes:
            named = asked.get("checkpoint_ns", ""), asked["checkpoint_id"]
            self._append(
                str(asked["thread_id"]),
                lambda draft: draft.writes(*named, writes, task_id, task_path),
            )

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread's conversation for good; what its model calls have cost stays known."""
        self._threads.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs, with their writes and the messages that only they have.

        All threads are looked through for that.
        """
        if wanted := set(run_ids):
            self._threads.delete_runs(wanted, self._codec_now().loads)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints, writes and messages behind another one's."""
        self._threads.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Erase all checkpoints but the newest of each namespace, or with ``delete`` the threads.

        Messages stay events of the conversation. What a `DeltaChannel` is rebuilt from stays too.

        Raises:
            ValueError: There is no such strategy.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"{strategy!r} is no strategy: there are keep_latest and delete")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                self._threads.prune(thread_id, self._codec_now().loads)

    aget_tuple = threaded(get_tuple)
    alist = iterated(list)
    aput = threaded(put)
    aput_writes = threaded(put_writes)
    adelete_thread = threaded(delete_thread)
    adelete_for_runs = threaded(delete_for_runs)
    acopy_thread = threaded(copy_thread)
    aprune = threaded(prune)
    aget_delta_channel_history = threaded(get_delta_channel_history)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version of a channel after another; no two are the same, forks included."""
        before = 0 if current is None else int(str(current).split(".")[0])
        return f"{before + 1:032}.{random.random():016}"  # noqa: S311 - to tell two apart

    @property
    def _understood(self) -> frozenset[str]:
        if self._messages is None:
            return frozenset() if self._codec_now().encrypts else frozenset({"messages"})
        return frozenset(self._messages)

    def _codec_now(self) -> Codec:
        """Return the codec of the serialiser, which a graph may have exchanged in a copy."""
        if self._codec.serde is not self.serde:
            self._codec = Codec(self.serde)
        return self._codec

    def _append(self, thread_id: str, add: Callable[[Draft], None]) -> None:
        self._threads.append(thread_id, add, self._codec_now(), self._understood)
