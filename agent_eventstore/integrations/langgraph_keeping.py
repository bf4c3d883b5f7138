"""Find the events to erase with a thread's checkpoints, and copy threads; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from agent_eventstore.integrations.langgraph_events import (
    SLOTS,
    GrownList,
    LanggraphCheckpoint,
    LanggraphValues,
    LanggraphWrites,
    Typed,
    kept_in,
)
from agent_eventstore.integrations.langgraph_thread import Thread
from agent_eventstore.integrations.langgraph_values import KeptList
from eventstore import NewEvent, RecordedEvent
from eventstore.events import (
    ConversationStart,
    Payload,
    Retraction,
    ToolResult,
    VersionRange,
)
from eventstore.ids import call_id

__all__ = ["copied", "latest_of", "needless", "of_runs"]

_BATCH = 500
Named = tuple[str, str]
"""A namespace and the id of a checkpoint in it."""


def latest_of(thread: Thread, loads: Callable[[Typed], Any]) -> set[Named]:
    """Return the newest checkpoint of each namespace, and those it is rebuilt from."""
    kept = set[Named]()
    for namespace, held in thread.checkpoints.items():
        at: str | None = max(held)
        wanted = set(loads(held[max(held)].metadata).get("counters_since_delta_snapshot") or ())
        while at is not None and at in held:
            kept.add((namespace, at))
            wanted -= held[at].channels.keys()
            at = held[at].parent_id if wanted else None
    return kept


def of_runs(thread: Thread, run_ids: Collection[str], loads: Callable[[Typed], Any]) -> set[Named]:
    """Return the checkpoints of runs."""
    return {
        (namespace, checkpoint_id)
        for namespace, held in thread.checkpoints.items()
        for checkpoint_id, saved in held.items()
        if loads(saved.metadata).get("run_id") in run_ids
    }


def needless(thread: Thread, gone: set[Named]) -> set[int]:
    """Return the versions of events that only these checkpoints need."""
    if not gone:
        return set()
    named = {
        (namespace, checkpoint_id): saved
        for namespace, held in thread.checkpoints.items()
        for checkpoint_id, saved in held.items()
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
        if isinstance(node := thread.values.get(place), KeptList):
            left += node.added if node.base is None else (node.base, *node.added)
    return found


def copied(source: Iterable[RecordedEvent], version: int) -> Iterator[list[NewEvent]]:
    """Yield a thread's events in batches, renumbered to follow ``version`` of another thread."""
    moved, batch = dict[int, int](), list[NewEvent]()
    for event in source:
        data = event.data
        if isinstance(data, ConversationStart) and version:
            continue
        if data is None or not (isinstance(data, _COPIED) or kept_in(getattr(data, "raw", None))):
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
            kept = [moved[each] for each in named if each in moved]
            changed["versions"] = VersionRange.of((each, each) for each in kept)
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
