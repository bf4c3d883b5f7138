"""`EventStoreSaver`: LangGraph checkpoints stored as events of a conversation.

A thread is the conversation whose key is the thread id or, if the thread id is a UUID, whose id it
is. Each method is one transaction; an asynchronous method runs the synchronous one in a thread.
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
from eventstore.options import require_several

__all__ = ["EventStoreSaver"]


class EventStoreSaver(BaseCheckpointSaver[str]):
    """A checkpointer that stores the states of graphs in an event store.

    Channel values are stored once, by content. Messages become events, so that all views show them
    with their tool calls and usage. The most recently used threads are cached, and only new events
    are read. Safe to share between threads and processes.

    Args:
        store: The store; a store from `EventStore.for_owner` sees only the threads of its tenant or
            user.
        serde: The serialiser of values; by default LangGraph's.
        messages: The channels whose messages become events. By default ``messages``, or none with a
            serialiser that encrypts.

    Raises:
        ValueError: The store redacts, and so could not return what a graph has written.
    """

    def __init__(
        self,
        store: EventStore | AsyncEventStore,
        *,
        serde: Any = None,
        messages: Collection[str] | None = None,
    ) -> None:
        require_several(messages=messages)
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
        """Return, for each channel, an earlier value and the writes to rebuild its value from."""
        require_several(channels=channels)
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
        """Iterate over checkpoints, newest id first; without a config, over those of all threads.

        Without a config, it reads all threads in one query, so the time grows with their number.
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
        """Store a checkpoint and return the config that names it."""
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
        """Store the writes of a task, until the next checkpoint contains them."""
        asked = config["configurable"]
        if writes:
            named = asked.get("checkpoint_ns", ""), asked["checkpoint_id"]
            self._append(
                str(asked["thread_id"]),
                lambda draft: draft.writes(*named, writes, task_id, task_path),
            )

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread's conversation; the usage of its model calls is kept."""
        self._threads.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs, their writes, and the messages that only they contain.

        It reads all threads.

        Raises:
            TypeError: ``run_ids`` is one text.
        """
        require_several(run_ids=run_ids)
        if wanted := set(run_ids):
            self._threads.delete_runs(wanted, self._codec_now().loads)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Append a copy of a thread's checkpoints, writes and messages to another thread."""
        self._threads.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Erase all checkpoints except the newest of each namespace; with ``delete``, the threads.

        Messages stay events of the conversation. The checkpoints that a `DeltaChannel` is rebuilt
        from stay too.

        Raises:
            ValueError: The strategy is unknown.
            TypeError: ``thread_ids`` is one text.
        """
        require_several(thread_ids=thread_ids)
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"unknown strategy {strategy!r}: use keep_latest or delete")
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
        """Return a new version of a channel; no two are equal, not even in forks of a thread."""
        before = 0 if current is None else int(str(current).split(".")[0])
        return f"{before + 1:032}.{random.random():016}"  # noqa: S311 - only for uniqueness

    @property
    def _understood(self) -> frozenset[str]:
        if self._messages is None:
            return frozenset() if self._codec_now().encrypts else frozenset({"messages"})
        return frozenset(self._messages)

    def _codec_now(self) -> Codec:
        """Return the codec of the current serialiser, which a graph may replace in a copy."""
        if self._codec.serde is not self.serde:
            self._codec = Codec(self.serde)
        return self._codec

    def _append(self, thread_id: str, add: Callable[[Draft], None]) -> None:
        self._threads.append(thread_id, add, self._codec_now(), self._understood)
