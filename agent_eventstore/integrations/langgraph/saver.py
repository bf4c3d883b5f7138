"""`EventStoreSaver`: LangGraph checkpoints stored as events of a conversation.

A thread is the conversation whose key is the thread id or, if the thread id is a UUID, whose id it
is. Each method is one transaction; an asynchronous method runs the synchronous one in a thread.
"""

from __future__ import annotations

import random
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from functools import wraps
from operator import itemgetter
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

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
from langgraph.checkpoint.serde.types import TASKS

from agent_eventstore.integrations.conversation_events import (
    ConversationTail,
    attempts,
    events_after,
    events_with,
    forks_with,
    news_of,
    unredacted,
)
from agent_eventstore.integrations.conversation_memory import ConversationMemory
from agent_eventstore.integrations.langgraph.at_url import AtUrl
from agent_eventstore.integrations.langgraph.checkpoint_codec import Codec
from agent_eventstore.integrations.langgraph.draft import MessageDraft
from agent_eventstore.integrations.langgraph.events import (
    SLOTS,
    GrownList,
    LanggraphCheckpoint,
    LanggraphValues,
    LanggraphWrites,
    Typed,
    typed_in,
)
from agent_eventstore.integrations.langgraph.store import at_path
from agent_eventstore.integrations.langgraph.thread import ChangedList, Saved, Thread, WrittenValues
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent, RecordedEvent
from eventstore.arguments import require_several
from eventstore.database import SPECIAL, driver_transaction, fork_point
from eventstore.events import (
    ConversationStart,
    Payload,
    Retraction,
    ToolResult,
    VersionRange,
)
from eventstore.ids import call_id
from eventstore.threads import to_thread

__all__ = [
    "EventStoreSaver",
    "Threads",
    "copied",
    "history_of",
    "iterated",
    "latest_of",
    "listed",
    "needless",
    "of_runs",
    "threaded",
    "tuple_of",
]


_P = ParamSpec("_P")


_T = TypeVar("_T")


def threaded(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """Return a coroutine method that runs the method without the ``a`` in a thread."""

    @wraps(method)
    async def done(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        found: _T = await to_thread(getattr(self, method.__name__), *args, **named)
        return found

    done.__name__, done.__doc__ = f"a{method.__name__}", f"Run `{method.__name__}` in a thread."
    return done


def iterated(
    method: Callable[Concatenate[Any, _P], Iterator[_T]],
) -> Callable[Concatenate[Any, _P], AsyncIterator[_T]]:
    """Return an asynchronous generator method that runs each step of a method in a thread."""

    @wraps(method)
    async def done(self: Any, /, *args: _P.args, **named: _P.kwargs) -> AsyncIterator[_T]:
        found: Iterator[_T] = getattr(self, method.__name__)(*args, **named)
        nothing: Any = object()
        while (one := await to_thread(next, found, nothing)) is not nothing:
            yield one

    done.__name__, done.__doc__ = f"a{method.__name__}", f"Run `{method.__name__}` in a thread."
    return done


def tuple_of(
    thread: Thread, thread_id: str, namespace: str, checkpoint_id: str, codec: Codec
) -> CheckpointTuple | None:
    """Return a checkpoint with its values and pending writes; None if it does not exist."""
    saved = thread.checkpoints.get(namespace, {}).get(checkpoint_id)
    if saved is None:
        return None
    named = {"thread_id": thread_id, "checkpoint_ns": namespace}
    values = {
        name: thread.values.value(place, codec)
        for name, place in saved.channels.items()
        if place in thread.values
    }
    parent = saved.parent_id
    checkpoint = {**codec.loads(saved.state), "channel_values": values}
    if parent is not None and checkpoint.get("v", _SENDS_IN_CHANNEL) < _SENDS_IN_CHANNEL:
        _add_sends(checkpoint, _pending(thread, namespace, parent), codec)
    return CheckpointTuple(
        config={"configurable": {**named, "checkpoint_id": checkpoint_id}},
        checkpoint=checkpoint,
        metadata=codec.loads(saved.metadata),
        parent_config={"configurable": {**named, "checkpoint_id": parent}} if parent else None,
        pending_writes=[
            (task_id, write.channel, codec.loads(write.typed))
            for task_id, write in _pending(thread, namespace, checkpoint_id)
        ],
    )


_SENDS_IN_CHANNEL = 4
"""The version of a checkpoint's format since which a channel holds what tasks have sent."""


def _add_sends(
    checkpoint: dict[str, Any], writes: Iterable[tuple[str, WrittenValues]], codec: Codec
) -> None:
    """Put what tasks sent in the step before into its channel, as for LangGraph's own savers."""
    sends = [codec.loads(write.typed) for _, write in writes if write.channel == TASKS]
    if sends and TASKS not in checkpoint["channel_values"]:
        versions = checkpoint.get("channel_versions") or {}
        newest = max(versions.values(), default=f"{1:032}.0")
        checkpoint["channel_versions"] = {**versions, TASKS: newest}
        checkpoint["channel_values"][TASKS] = sends


def listed(
    threads: Iterable[tuple[str, dict[str, dict[str, Saved]]]],
    configurable: Mapping[str, Any],
    until: str | None,
    wanted: dict[str, Any],
    codec: Codec,
) -> list[tuple[str, str, str]]:
    """Return the matching checkpoints of threads, newest first: id, thread id, namespace.

    Args:
        threads: The id of each thread, and its checkpoints by namespace and id.
        configurable: The fields of a config; ``checkpoint_id`` and ``checkpoint_ns`` restrict the
            result.
        until: Return only checkpoints with an id before this one.
        wanted: Values that the metadata must have; ``a.b`` is ``b`` in ``a``.
        codec: The codec of the stored values.
    """
    only, namespace = configurable.get("checkpoint_id"), configurable.get("checkpoint_ns")
    found = [
        (checkpoint_id, thread_id, ns)
        for thread_id, checkpoints in threads
        for ns, stored in checkpoints.items()
        for checkpoint_id, saved in stored.items()
        if namespace in (None, ns)
        and only in (None, "", checkpoint_id)
        and (until is None or checkpoint_id < until)
        and (not wanted or _matches(saved, wanted, codec))
    ]
    return sorted(found, key=itemgetter(0), reverse=True)


def _matches(saved: Saved, wanted: dict[str, Any], codec: Codec) -> bool:
    metadata = codec.loads(saved.metadata)
    return all(at_path(metadata, key) == value for key, value in wanted.items())


def history_of(
    thread: Thread, namespace: str, checkpoint_id: str, channels: Sequence[str], codec: Codec
) -> dict[str, Any]:
    """Return what each channel's value at a checkpoint is rebuilt from.

    ``seed`` is its value at the nearest earlier checkpoint that has one; ``writes`` are the writes
    to it since then, in order.
    """
    stored, passed = thread.checkpoints.get(namespace, {}), {checkpoint_id}
    found: dict[str, dict[str, Any]] = {name: {"writes": []} for name in channels}
    left = set(channels)
    at = stored[checkpoint_id].parent_id if checkpoint_id in stored else None
    while left and at in stored and at not in passed:  # parents may form a cycle
        passed.add(at)
        for task_id, write in reversed(_pending(thread, namespace, at)):
            if write.channel in left:
                write_values = task_id, write.channel, codec.loads(write.typed)
                found[write.channel]["writes"].insert(0, write_values)
        for name in [*left]:
            if (place := stored[at].channels.get(name, 0)) in thread.values:
                found[name]["seed"] = thread.values.value(place, codec)
                left.discard(name)
        at = stored[at].parent_id
    return found


def _pending(thread: Thread, namespace: str, checkpoint_id: str) -> list[tuple[str, WrittenValues]]:
    """Return the writes of tasks since a checkpoint, in the order in which they are applied."""
    writes = thread.writes.get((namespace, checkpoint_id), {})
    ordered = sorted(writes.items(), key=lambda item: (item[1].task_path, *item[0]))
    return [(task_id, write) for (task_id, _), write in ordered]


_BATCH = 500


Named = tuple[str, str]


"""A namespace and the id of a checkpoint in it."""


def latest_of(thread: Thread, loads: Callable[[Typed], Any]) -> set[Named]:
    """Return the newest checkpoint of each namespace, and those it is rebuilt from."""
    newest = set[Named]()
    for namespace, stored in thread.checkpoints.items():
        at: str | None = max(stored)
        wanted = set(loads(stored[max(stored)].metadata).get("counters_since_delta_snapshot") or ())
        while at is not None and at in stored:
            newest.add((namespace, at))
            wanted -= stored[at].channels.keys()
            at = stored[at].parent_id if wanted else None
    return newest


def of_runs(thread: Thread, run_ids: Collection[str], loads: Callable[[Typed], Any]) -> set[Named]:
    """Return the checkpoints of runs."""
    return {
        (namespace, checkpoint_id)
        for namespace, stored in thread.checkpoints.items()
        for checkpoint_id, saved in stored.items()
        if loads(saved.metadata).get("run_id") in run_ids
    }


def needless(thread: Thread, gone: set[Named]) -> set[int]:
    """Return the versions of events that only these checkpoints need."""
    if not gone:
        return set()
    named = {
        (namespace, checkpoint_id): saved
        for namespace, stored in thread.checkpoints.items()
        for checkpoint_id, saved in stored.items()
    }
    needed, of_gone = set[int](), set[int]()
    for name, saved in named.items():
        part = of_gone if name in gone else needed
        part.add(saved.version)
        part.update(write.version for write in thread.writes.get(name, {}).values())
        part.update(place // SLOTS for place in _reached(thread, saved.channels.values()))
    return of_gone - needed


def _reached(thread: Thread, places: Iterable[int]) -> set[int]:
    """Return these places and, for lists, those of their earlier lists and elements."""
    found, left = set[int](), list(places)
    while left:
        place = left.pop()
        if place in found:
            continue
        found.add(place)
        if isinstance(node := thread.values.get(place), ChangedList):
            left += node.added if node.base is None else (node.base, *node.added)
    return found


def copied(source: Iterable[RecordedEvent], version: int) -> Iterator[list[NewEvent]]:
    """Yield a thread's events in batches, renumbered to follow ``version`` of another thread."""
    moved, batch = dict[int, int](), list[NewEvent]()
    for event in source:
        data = event.data
        if isinstance(data, ConversationStart) and version:
            continue
        if data is None or not (isinstance(data, _COPIED) or typed_in(getattr(data, "raw", None))):
            continue
        version += 1
        moved[event.version] = version
        batch.append(NewEvent(_moved(data, event.version, moved), meta=event.meta))
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


_COPIED = (ConversationStart, LanggraphCheckpoint, LanggraphValues, LanggraphWrites, Retraction)


def _moved(data: Any, version: int, moved: dict[int, int]) -> Payload:
    """Return a payload whose references are changed to the versions of the copy."""

    def place(before: int) -> int:
        # An erased value gets a place at which there is no value.
        return moved.get(before // SLOTS, 0) * SLOTS + before % SLOTS

    changed: dict[str, Any] = {}
    match data:
        case LanggraphCheckpoint():
            changed["channels"] = tuple((name, place(at)) for name, at in data.channels)
        case LanggraphValues():
            changed["values"] = tuple(
                value.model_copy(
                    update={
                        "base": None if value.base is None else place(value.base),
                        "added": tuple(map(place, value.added)),
                    }
                )
                if isinstance(value, GrownList)
                else value
                for value in data.values
            )
        case Retraction():
            named = (each for part in data.versions for each in range(part.first, part.last + 1))
            remaining = [moved[each] for each in named if each in moved]
            changed["versions"] = VersionRange.of((each, each) for each in remaining)
            # The messages that replace these follow at once, and each of them is copied.
            ahead = moved[version] - version
            changed["replaced_by"] = VersionRange.of(
                (each.first + ahead, each.last + ahead) for each in data.replaced_by
            )
        case ToolResult():
            of, _, index = data.call_id.partition(".")
            if of.isdigit() and int(of) in moved:
                changed["call_id"] = call_id(moved[int(of)], int(index))
    return data.model_copy(update=changed) if changed else data  # type: ignore[no-any-return]


_LOCKS = 64


class Threads:
    """A store's threads by id. Safe to share between threads of the process."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._known: ConversationMemory[Thread] = ConversationMemory(newest=True)
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
    def requested(self, config: RunnableConfig) -> Iterator[tuple[Thread, str, str, str]]:
        """Lock a config's thread; yield its state, its id, the namespace and the checkpoint id."""
        configurable = config["configurable"]
        thread_id, namespace = str(configurable["thread_id"]), configurable.get("checkpoint_ns", "")
        with self.holding(thread_id):
            thread = self.now(thread_id)
            stored = thread.checkpoints.get(namespace, {})
            yield thread, thread_id, namespace, get_checkpoint_id(config) or max(stored, default="")

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
        add: Callable[[MessageDraft], None],
        codec: Codec,
        understood: frozenset[str],
    ) -> None:
        """Append the events of a draft of the thread; redraft it if another writer was faster."""
        with self.holding(thread_id):
            thread = self.known(thread_id)

            def read(after: int, before: int) -> Iterator[RecordedEvent]:
                return self.store.read(thread_id, after=after, before=before)

            for attempt in attempts():
                draft = MessageDraft(thread, codec, understood, read)
                add(draft)
                events = draft.events
                expected = thread.version or NO_STREAM
                with attempt:
                    appended = self.store.append(
                        thread_id, events, expected_version=expected, allow_empty=True
                    )
                    for version, event in enumerate(events, start=thread.version + 1):
                        payload: Any = cast(Payload, event.data).model_dump()
                        thread.fold(version, event.data.type, payload, event.meta)
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
            stored = self.now(thread_id).checkpoints
            yield thread_id, {namespace: {**each} for namespace, each in stored.items()}

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
            every = {(ns, each) for ns, stored in thread.checkpoints.items() for each in stored}
            gone = needless(thread, every - latest_of(thread, loads))
            self._erase(thread_id, gone - thread.messages, "it was pruned")

    def _erase(self, thread_id: str, versions: set[int], reason: str) -> None:
        """Erase events of a thread; those that a fork shares are erased in their own thread."""
        with driver_transaction(self.store) as connection:
            parent = fork_point(connection, self.store.stream(thread_id))
        own = {each for each in versions if parent is None or each > parent.version}
        if own:
            self.store.erase(thread_id, reason=reason, versions=own, derived=False)
            self._known.take(thread_id)

    def _read(self, thread_id: str, thread: Thread) -> Thread:
        stream = self.store.stream(thread_id)
        with driver_transaction(self.store) as connection:
            head, news = news_of(connection, stream, ConversationTail(thread.version, thread.chain))
        if news is None:
            thread = Thread()
            thread.take(events_after(self.store, stream, 0, before=head.version + 1))
        else:
            thread.take(news)
        thread.version, thread.chain, _ = head
        return thread


class EventStoreSaver(AtUrl, BaseCheckpointSaver[str]):
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
        with self._threads.requested(config) as (thread, thread_id, namespace, wanted):
            return tuple_of(thread, thread_id, namespace, wanted, self._codec_now())

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> dict[str, Any]:
        """Return, for each channel, an earlier value and the writes to rebuild its value from."""
        require_several(channels=channels)
        with self._threads.requested(config) as (thread, _, namespace, wanted):
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
        configurable, codec = {} if config is None else config["configurable"], self._codec_now()
        only = str(configurable["thread_id"]) if configurable else None
        until = None if before is None else get_checkpoint_id(before)
        found = listed(self._threads.checkpoints(only), configurable, until, filter or {}, codec)
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
        configurable = config["configurable"]
        namespace, parent = configurable.get("checkpoint_ns", ""), configurable.get("checkpoint_id")
        stored_metadata = get_checkpoint_metadata(config, metadata)
        self._append(
            str(configurable["thread_id"]),
            lambda draft: draft.checkpoint(
                namespace, parent, checkpoint, stored_metadata, new_versions
            ),
        )
        named = {"thread_id": configurable["thread_id"], "checkpoint_ns": namespace}
        return {"configurable": {**named, "checkpoint_id": checkpoint["id"]}}

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, until the next checkpoint contains them."""
        configurable = config["configurable"]
        if writes:
            named = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
            self._append(
                str(configurable["thread_id"]),
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

    def _append(self, thread_id: str, add: Callable[[MessageDraft], None]) -> None:
        self._threads.append(thread_id, add, self._codec_now(), self._understood)
