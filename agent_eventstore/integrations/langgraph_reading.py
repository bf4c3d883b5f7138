"""What LangGraph asks of a thread: a checkpoint with its values, and what was written since."""

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
    """Return a checkpoint with its values and what was written since; None if there is none."""
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
    """Return the checkpoints of threads that are asked for: id, thread, namespace; newest first.

    Args:
        threads: Their checkpoints, by namespace and id.
        asked: ``checkpoint_id`` and ``checkpoint_ns`` of a config, as far as it names them.
        until: Only those before this one.
        wanted: Values that their metadata must have; ``a.b`` is ``b`` in ``a``.
        codec: Of what is stored.
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
    """Return of what each channel of a checkpoint is rebuilt.

    ``seed`` is its value at the nearest checkpoint before that has one, and ``writes`` is what
    was written to it since, in order.
    """
    held, passed = thread.checkpoints.get(namespace, {}), {checkpoint_id}
    found: dict[str, dict[str, Any]] = {name: {"writes": []} for name in channels}
    left = set(channels)
    at = held[checkpoint_id].parent_id if checkpoint_id in held else None
    while left and at in held and at not in passed:  # one may name another as its parent later
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
    """Return what tasks have written since a checkpoint, in the order of its application."""
    held = thread.writes.get((namespace, checkpoint_id), {})
    ordered = sorted(held.items(), key=lambda item: (item[1].task_path, *item[0]))
    return [(task_id, write) for (task_id, _), write in ordered]
