"""Withdraw the newest items of a session, or all, or replace them with others.

Each change is one transaction. With ``erase``, it also erases the items that it withdraws. Items
that stay are recorded again, and the retraction names their new events: they count once in usage,
in lists and in the audit table, and keep their turn and time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import groupby, takewhile
from typing import Any, NamedTuple
from uuid import UUID

from agent_eventstore.formats.response_items import grouped
from agent_eventstore.integrations.conversation_events import events_after, newest_events
from agent_eventstore.integrations.openai_cache import forget
from agent_eventstore.integrations.openai_end import SessionEnd
from agent_eventstore.integrations.openai_history import CLEARED, LiveItem, live_items
from agent_eventstore.integrations.openai_items import items_in
from agent_eventstore.integrations.openai_writing import ItemWriter
from eventstore import EventStore, NewEvent
from eventstore.events import AssistantMessage, Meta, Retraction, VersionRange
from eventstore.events.codec import dumps_json
from projections.engine.folding import joined

__all__ = ["pop_newest", "replace_all", "replace_newest"]


def _beside(store: EventStore, stream: UUID, gone: Sequence[LiveItem]) -> list[LiveItem]:
    """Return the items before the oldest withdrawn one, in its event: they are to stay."""
    if not gone or not gone[0].place:
        return []
    first = gone[0]
    [event] = events_after(store, stream, first.version - 1, before=first.version + 1)
    items = enumerate(items_in(event)[: first.place])
    return [first._replace(place=place, item=item) for place, item in items]


class Earlier(NamedTuple):
    """An event whose items are recorded again: its metadata with its time, and its model calls."""

    meta: Meta
    calls: Sequence[str]

    @classmethod
    def of(cls, store: EventStore, stream: UUID, items: Sequence[LiveItem]) -> dict[int, Earlier]:
        """Return the events of items by version."""
        ranges = _ranges_of(items)
        if not ranges:
            return {}
        first, last = ranges[0].first, ranges[-1].last
        known = {
            each.version: each for each in store.read(stream, after=first - 1, before=last + 1)
        }
        found: dict[int, Earlier] = {}
        for version, told in {item.version: item.told for item in items}.items():
            event = known[version]
            own = [event, *(known[v] for each in told for v in range(each.first, each.last + 1))]
            calls = (
                each.data.llm_call_id or f"v{each.version}"
                for each in own
                if isinstance(each.data, AssistantMessage)
            )
            meta = event.meta.model_copy(update={"occurred_at": event.occurred_at})
            found[version] = cls(meta, tuple(calls))
        return found


def _sources(before: Sequence[LiveItem], items: Sequence[Any]) -> list[LiveItem | None]:
    """Return for each item the earlier one that it equals, if any; each earlier one once."""
    known: dict[str, deque[LiveItem]] = defaultdict(deque)
    for each in before:
        known[dumps_json(each.item)].append(each)
    found = (known.get(dumps_json(item)) for item in items)
    return [queue.popleft() if queue else None for queue in found]


def _replacing(
    writer: ItemWriter,
    before: Sequence[LiveItem],
    items: Sequence[Any],
    reason: str,
    earlier: dict[int, Earlier],
) -> list[NewEvent]:
    """Return the events that withdraw whole events, and append the items that follow now.

    Args:
        writer: Where they are appended.
        before: The items of the withdrawn events.
        items: The items that follow; those that equal earlier ones are recorded again.
        reason: The reason of the retraction.
        earlier: The withdrawn events by version.
    """
    sources = _sources(before, items)
    again = {each.version for each in sources if each}
    events: list[NewEvent] = []
    if lost := [each for each in before if each.version not in again]:
        events.append(writer.place(Retraction(versions=_ranges_of(lost), reason=reason)))
    if not again:
        return events + writer.events(items)
    pairs = zip((each and each.version for each in sources), items, strict=True)
    runs = [
        (version, [item for _, item in run])
        for version, run in groupby(pairs, lambda pair: pair[0])
    ]
    kept = _ranges_of([each for each in before if each.version in again])
    replaced_by = VersionRange.of(_places_of(runs, writer.version + 2))
    events.append(writer.place(Retraction(versions=kept, reason=reason, replaced_by=replaced_by)))
    turn: int | None = None
    turns: list[int | None] = []
    for version, _ in reversed(runs):  # what is inserted before them is in the turn that follows
        turn = earlier[version].meta.turn if version else turn
        turns.append(turn)
    for (version, run), turn in zip(runs, reversed(turns), strict=True):
        if version is not None:
            events += writer.events_again(run, *earlier[version])
        else:
            events += (
                writer.events(run) if turn is None else writer.events_again(run, Meta(turn=turn))
            )
    return events


def _places_of(
    runs: Sequence[tuple[int | None, Sequence[Any]]], first: int
) -> list[tuple[int, int]]:
    """Return the versions at which runs of items are recorded again, from a first one on."""
    found: list[tuple[int, int]] = []
    for version, run in runs:
        size = len(list(grouped(run)))
        if version is not None:
            found.append((first, first + size - 1))
        first += size
    return joined(found)


def _outdated(live: Sequence[LiveItem], prune: Callable[[Any], bool]) -> list[LiveItem]:
    """Return the oldest items that may be pruned, as long as they are whole events."""
    expired = list(takewhile(lambda each: prune(each.item), live))
    left = {each.version for each in live[len(expired) :]}
    return [each for each in expired if each.version not in left]


def _versions_of(items: Sequence[LiveItem]) -> set[int]:
    """Return the versions of items and of the recorded events that they replace."""
    ranges = _ranges_of(items)
    return {version for each in ranges for version in range(each.first, each.last + 1)}


def _ranges_of(items: Sequence[LiveItem]) -> tuple[VersionRange, ...]:
    """Return the versions of items and of the events that they replace, for a retraction."""
    own = [(item.version, item.version) for item in items]
    told = [(each.first, each.last) for item in items for each in item.told]
    return VersionRange.of(joined(own + told))


def pop_newest(store: EventStore, end: SessionEnd, *, erase: bool) -> Any:
    """Withdraw the newest item and return it; None if there is none."""
    popped: list[LiveItem] = []
    staying: list[LiveItem] = []
    earlier: dict[int, Earlier] = {}

    def find() -> set[int]:
        popped[:] = live_items(store, end.id, 1)
        staying[:] = _beside(store, end.id, popped)
        earlier.update(Earlier.of(store, end.id, staying))
        return _versions_of(popped)

    def withdrawing(writer: ItemWriter) -> list[NewEvent]:
        if not erase:
            find()
        items = [each.item for each in staying]
        return _replacing(writer, [*staying, *popped], items, "pop_item", earlier)

    if erase:
        end.erase(find, withdrawing, "pop_item")
        forget(store, end.id)
    else:
        end.append(withdrawing)
    return popped[0].item if popped else None


def replace_all(store: EventStore, end: SessionEnd, items: Sequence[Any], *, erase: bool) -> None:
    """Withdraw all items, and add others."""

    def replaced(writer: ItemWriter) -> list[NewEvent]:
        live = [] if erase else live_items(store, end.id)
        earlier = Earlier.of(store, end.id, live if items else ())
        return _replacing(writer, live, items, CLEARED, earlier)

    if erase and newest_events(store, end.id, 1):
        end.erase(lambda: None, replaced, CLEARED)
        forget(store, end.id)
    else:
        end.append(replaced)


def replace_newest(
    store: EventStore,
    end: SessionEnd,
    wanted: Sequence[LiveItem],
    output: Sequence[Any],
    prune: Callable[[Any], bool] | None,
) -> bool:
    """Replace the newest items, in one transaction; return False if they have changed.

    Args:
        store: The store.
        end: The session's end.
        wanted: The newest items, as they were read.
        output: The items that replace them.
        prune: Whether an older item is to be withdrawn too; called for the oldest ones.
    """
    found = True

    def replaced(writer: ItemWriter) -> list[NewEvent]:
        nonlocal found
        live = live_items(store, end.id, None if prune else len(wanted))
        found = live[-len(wanted) :] == list(wanted)
        if not found:
            return []
        expired = () if prune is None else _outdated(live[: -len(wanted)], prune)
        staying = _beside(store, end.id, wanted)
        before = [*staying, *wanted]
        items = [*(each.item for each in staying), *output]
        earlier = Earlier.of(store, end.id, before)
        return _replacing(writer, [*expired, *before], items, "compaction", earlier)

    end.append(replaced)
    return found
