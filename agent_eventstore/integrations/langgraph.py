"""`EventStoreSaver`: LangGraph's checkpoints as events of a conversation.

A thread is the conversation that has the thread's id as its key, or, where the id is a UUID, as
its id. Each method is one transaction of the store's; those that are asynchronous do the same in a
thread.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from agent_eventstore.integrations.conversation_head import attempts
from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_draft import Draft
from agent_eventstore.integrations.langgraph_events import (
    LanggraphWrites,
    PackedValue,
    TaskWrite,
    at_path,
)
from agent_eventstore.integrations.langgraph_keeping import (
    copied,
    latest_of,
    needless,
    read_thread,
    stored_threads,
)
from agent_eventstore.integrations.langgraph_thread import Saved, Thread
from eventstore import NO_STREAM, AsyncEventStore, EventStore
from eventstore.events import Payload

__all__ = ["EventStoreSaver"]

_THREADS = 64
_LOCKS = 64


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _in_thread(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """Return a method that does in a thread what one of the same name without ``a`` does."""

    async def done(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        found: _T = await asyncio.to_thread(getattr(self, method.__name__), *args, **named)
        return found

    done.__name__, done.__doc__ = f"a{method.__name__}", f"Do what `{method.__name__}` does."
    return done


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
        self.store = store.store if isinstance(store, AsyncEventStore) else store
        if self.store.redact is not None:
            raise ValueError(
                "this store redacts what is written, and a graph needs its state as it was: "
                "redact in the graph, and open the store without redact="
            )
        self._codec = Codec(self.serde)
        self._messages = messages
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._lock = Lock()
        # A thread's own, shared with few others, so that threads do not wait for each other.
        self._locks = [RLock() for _ in range(_LOCKS)]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the newest of its thread and namespace."""
        with self._asked(config) as (thread, thread_id, namespace, wanted):
            there = wanted in thread.checkpoints.get(namespace, ())
            return self._tuple(thread, thread_id, namespace, wanted) if there else None

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> dict[str, Any]:
        """Return of what each channel of a checkpoint is rebuilt: a value before it, and writes."""
        with self._asked(config) as (thread, _, namespace, wanted):
            return thread.history(namespace, wanted, channels, self._codec_now())

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest id first; without a config over those of all threads.

        All threads are read for that, so that it takes as long as they are many.
        """
        asked = {} if config is None else config["configurable"]
        ids = [str(asked["thread_id"])] if asked else [*stored_threads(self.store)]
        wanted, namespace = asked.get("checkpoint_id"), asked.get("checkpoint_ns")
        until = None if before is None else get_checkpoint_id(before)
        found = [
            (checkpoint_id, thread_id, ns)
            for thread_id in ids
            for ns, held in self._checkpoints(thread_id).items()
            for checkpoint_id, saved in held.items()
            if namespace in (None, ns)
            and wanted in (None, "", checkpoint_id)
            and (until is None or checkpoint_id < until)
            and (not filter or self._matches(saved, filter))
        ]
        found.sort(key=lambda each: each[0], reverse=True)
        for checkpoint_id, thread_id, ns in found if limit is None else found[: max(limit, 0)]:
            with self._holding(thread_id):
                thread = self._known(thread_id)
                held = checkpoint_id in thread.checkpoints.get(ns, {})
                one = self._tuple(thread, thread_id, ns, checkpoint_id) if held else None
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
        namespace = asked.get("checkpoint_ns", "")

        parent, told = asked.get("checkpoint_id"), get_checkpoint_metadata(config, metadata)
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
        asked, dumps = config["configurable"], self._codec_now().dumps
        if not writes:
            return
        event = LanggraphWrites(
            namespace=asked.get("checkpoint_ns", ""),
            checkpoint_id=asked["checkpoint_id"],
            task_id=task_id,
            task_path=task_path,
            replaces=all(channel in WRITES_IDX_MAP for channel, _ in writes),
            writes=tuple(
                TaskWrite(
                    index=WRITES_IDX_MAP.get(channel, index),
                    channel=channel,
                    value=PackedValue.of(dumps(value)),
                )
                for index, (channel, value) in enumerate(writes)
            ),
        )
        self._append(str(asked["thread_id"]), lambda draft: draft.add(event))

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread's conversation for good; what its model calls have cost stays known."""
        thread_id = str(thread_id)
        with self._holding(thread_id):
            if self._thread(thread_id).has_content:
                self.store.erase(thread_id, reason="the thread was deleted")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of runs, with their writes and the messages that only they have.

        All threads are read for that.
        """
        wanted = set(run_ids)
        for thread_id in stored_threads(self.store) if wanted else ():
            with self._holding(thread_id):
                thread = self._thread(thread_id)
                loads = self._codec_now().loads
                gone = {
                    (ns, checkpoint_id)
                    for ns, held in thread.checkpoints.items()
                    for checkpoint_id, saved in held.items()
                    if loads(saved.metadata).get("run_id") in wanted
                }
                self._erase(thread_id, needless(thread, gone), "its run was deleted")

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints, writes and messages behind another one's."""
        asked, target = str(source_thread_id), str(target_thread_id)
        if self.store.stream(asked) == self.store.stream(target):
            return
        with self._holding(target):
            source = self.store.read(asked)
            for batch in copied(source, self._thread(target).version):
                version = self._thread(target).version
                self.store.append(target, batch, expected_version=version or NO_STREAM)

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
                continue
            with self._holding(thread_id):
                thread = self._thread(thread_id)
                kept = latest_of(thread, self._codec_now().loads)
                gone = {(ns, i) for ns, held in thread.checkpoints.items() for i in held} - kept
                self._erase(thread_id, needless(thread, gone) - thread.messages, "it was pruned")

    aget_tuple = _in_thread(get_tuple)
    aput = _in_thread(put)
    aput_writes = _in_thread(put_writes)
    adelete_thread = _in_thread(delete_thread)
    adelete_for_runs = _in_thread(delete_for_runs)
    acopy_thread = _in_thread(copy_thread)
    aprune = _in_thread(prune)
    aget_delta_channel_history = _in_thread(get_delta_channel_history)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do what `list` does."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

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

    def _thread(self, thread_id: str) -> Thread:
        """Return a thread as it stands now; what is known of it is read no second time."""
        known = self._threads.get(thread_id) or Thread()
        thread = read_thread(self.store, thread_id, known)
        with self._lock:
            self._threads[thread_id] = thread
            self._threads.move_to_end(thread_id)
            if len(self._threads) > _THREADS:
                self._threads.popitem(last=False)
        return thread

    def _known(self, thread_id: str) -> Thread:
        """Return a thread as it was when it was last looked at."""
        return self._threads.get(thread_id) or self._thread(thread_id)

    @contextmanager
    def _asked(self, config: RunnableConfig) -> Iterator[tuple[Thread, str, str, str]]:
        """Hold a thread as it is now; with its id, the namespace and the checkpoint asked for."""
        asked = config["configurable"]
        thread_id, namespace = str(asked["thread_id"]), asked.get("checkpoint_ns", "")
        with self._holding(thread_id):
            thread = self._thread(thread_id)
            held = thread.checkpoints.get(namespace, {})
            yield thread, thread_id, namespace, get_checkpoint_id(config) or max(held, default="")

    def _holding(self, thread_id: str) -> RLock:
        return self._locks[hash(thread_id) % _LOCKS]

    def _append(self, thread_id: str, add: Callable[[Draft], None]) -> None:
        """Append what a draft of the thread holds; again if another process was faster."""
        with self._holding(thread_id):
            thread = self._known(thread_id)
            for attempt in attempts():
                draft = Draft(thread, self._codec_now(), self._understood)
                add(draft)
                events = draft.events
                expected = thread.version or NO_STREAM
                with attempt:
                    appended = self.store.append(thread_id, events, expected_version=expected)
                    for version, event in enumerate(events, start=thread.version + 1):
                        told = cast(Payload, event.data).model_dump()
                        thread.fold(version, event.data.type, told, event.meta)
                    thread.chain = appended.anchor.chain
                    thread.remember(draft.told)
                    return
                thread = self._thread(thread_id)

    def _erase(self, thread_id: str, versions: set[int], reason: str) -> None:
        if versions:
            self.store.erase(thread_id, reason=reason, versions=versions, derived=False)

    def _checkpoints(self, thread_id: str) -> dict[str, dict[str, Saved]]:
        with self._holding(thread_id):
            return {ns: {**held} for ns, held in self._thread(thread_id).checkpoints.items()}

    def _matches(self, saved: Saved, filter: dict[str, Any]) -> bool:
        metadata = self._codec_now().loads(saved.metadata)
        return all(at_path(metadata, key) == value for key, value in filter.items())

    def _tuple(
        self, thread: Thread, thread_id: str, namespace: str, checkpoint_id: str
    ) -> CheckpointTuple:
        codec, saved = self._codec_now(), thread.checkpoints[namespace][checkpoint_id]
        named = {"thread_id": thread_id, "checkpoint_ns": namespace}
        values = {
            name: thread.values.value(place, codec)
            for name, place in saved.channels.items()
            if place in thread.values
        }
        parent = saved.parent_id
        return CheckpointTuple(
            config={"configurable": {**named, "checkpoint_id": checkpoint_id}},
            checkpoint={**codec.loads(saved.state), "channel_values": values},
            metadata=codec.loads(saved.metadata),
            parent_config={"configurable": {**named, "checkpoint_id": parent}} if parent else None,
            pending_writes=[
                (task_id, write.channel, codec.loads(write.typed))
                for task_id, write in thread.pending(namespace, checkpoint_id)
            ],
        )
