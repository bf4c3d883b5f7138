"""Build what LangGraph reads of a thread: checkpoints with their values and pending writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from agent_eventstore.integrations.langgraph_codec import Codec
from agent_eventstore.integrations.langgraph_items import at_path
from agent_eventstore.integrations.langgraph_thread import Saved, Thread, Written

__all__ = ["history_of", "listed", "tuple_of"]


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
    return CheckpointTuple(
        config={"configurable": {**named, "checkpoint_id": checkpoint_id}},
        checkpoint={**codec.loads(saved.state), "channel_values": values},
        metadata=codec.loads(saved.metadata),
        parent_config={"configurable": {**named, "checkpoint_id": parent}} if parent else None,
        pending_writes=[
            (task_id, write.channel, codec.loads(write.typed))
            for task_id, write in _pending(thread, namespace, checkpoint_id)
        ],
    )


def listed(
    threads: Iterable[tuple[str, dict[str, dict[str, Saved]]]],
    asked: Mapping[str, Any],
    until: str | None,
    wanted: dict[str, Any],
    codec: Codec,
) -> list[tuple[str, str, str]]:
    """Return the matching checkpoints of threads, newest first: id, thread id, namespace.

    Args:
        threads: The id of each thread, and its checkpoints by namespace and id.
        asked: The fields of a config; ``checkpoint_id`` and ``checkpoint_ns`` restrict the result.
        until: Return only checkpoints with an id before this one.
        wanted: Values that the metadata must have; ``a.b`` is ``b`` in ``a``.
        codec: The codec of the stored values.
    """
    only, namespace = asked.get("checkpoint_id"), asked.get("checkpoint_ns")
    found = [
        (checkpoint_id, thread_id, ns)
        for thread_id, checkpoints in threads
        for ns, held in checkpoints.items()
        for checkpoint_id, saved in held.items()
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
    held, passed = thread.checkpoints.get(namespace, {}), {checkpoint_id}
    found: dict[str, dict[str, Any]] = {name: {"writes": []} for name in channels}
    left = set(channels)
    at = held[checkpoint_id].parent_id if checkpoint_id in held else None
    while left and at in held and at not in passed:  # parents may form a cycle
        passed.add(at)
        for task_id, write in reversed(_pending(thread, namespace, at)):
            if write.channel in left:
                told = task_id, write.channel, codec.loads(write.typed)
                found[write.channel]["writes"].insert(0, told)
        for name in [*left]:
            if (place := held[at].channels.get(name, 0)) in thread.values:
                found[name]["seed"] = thread.values.value(place, codec)
                left.discard(name)
        at = held[at].parent_id
    return found


def _pending(thread: Thread, namespace: str, checkpoint_id: str) -> list[tuple[str, Written]]:
    """Return the writes of tasks since a checkpoint, in the order in which they are applied."""
    held = thread.writes.get((namespace, checkpoint_id), {})
    ordered = sorted(held.items(), key=lambda item: (item[1].task_path, *item[0]))
    return [(task_id, write) for (task_id, _), write in ordered]
