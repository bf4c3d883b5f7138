"""The items of a session that are live: read from the newest, as far as is asked for.

What was popped, cleared or left with a branch is told by newer events than it, so that nobody has
to look further back than to the oldest item that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, NamedTuple
from uuid import UUID

from agent_eventstore.integrations.openai_items import (
    TELLING,
    ItemWriter,
    OpenAIItems,
    items_in,
    told_by,
)
from eventstore import EventStore, NewEvent
from eventstore.events import BranchSwitch, Retraction, VersionRange
from eventstore.events.codec import loads_json
from eventstore.sql.read import END, EventText, read_texts
from projections.engine.folding import joined

__all__ = [
    "CLEARED",
    "LiveItem",
    "has_changes",
    "live_items",
    "newest_events",
    "outdated",
    "replacing",
]

CLEARED = "clear_session"
"""The reason of a retraction that withdraws all live items, and nothing but items."""

_PAGE = 1_000
_SMALL = 64
_WITHDRAWING = (Retraction.type, BranchSwitch.type)


class LiveItem(NamedTuple):
    """An item, with the version of its event and its place among the items of that.

    ``told`` are the versions of what was recorded while it happened, which the item stands for.
    """

    version: int
    place: int
    item: Any
    told: tuple[VersionRange, ...] = ()


def newest_events(store: EventStore, stream: UUID, limit: int) -> list[EventText]:
    """Return the newest events of a conversation, newest first, in one transaction."""
    with store._on_driver() as connection:
        return read_texts(connection, stream, backward=True, limit=limit)


def live_items(
    store: EventStore, stream: UUID, limit: int | None = None, *, upto: int = END - 1
) -> list[LiveItem]:
    """Return the newest live items of a conversation, in order; all of them without a limit.

    Args:
        store: Where it is kept.
        stream: The conversation.
        limit: The most to return.
        upto: The newest version that is looked at.
    """
    found = _backward(store, stream, _PAGE if limit is None else min(limit * 2 + 16, _PAGE), upto)
    return list(found if limit is None else islice(found, limit))[::-1]


def has_changes(store: EventStore, stream: UUID, after: int) -> bool:
    """Whether items were added, withdrawn or exchanged after a version."""
    while True:
        with store._on_driver() as connection:
            page = read_texts(connection, stream, after=after, limit=_PAGE)
        if any(each.type in _WITHDRAWING or items_in(each) for each in page):
            return True
        if len(page) < _PAGE:
            return False
        after = page[-1].version


def replacing(
    store: EventStore,
    stream: UUID,
    writer: ItemWriter,
    gone: Sequence[LiveItem],
    items: Sequence[Any],
    reason: str,
    *,
    also: Sequence[LiveItem] = (),
) -> list[NewEvent]:
    """Return the events that withdraw the newest live items, and put others in their place.

    Of an event of which some items stay, those are written again. Whole events that are older may
    ``also`` be withdrawn.
    """
    events: list[NewEvent] = []
    if gone:
        first, withdrawn = gone[0], _ranges_of([*also, *gone])
        events.append(writer.place(Retraction(versions=withdrawn, reason=reason)))
        if first.place:
            with store._on_driver() as connection:
                [event] = read_texts(connection, stream, after=first.version - 1, limit=1)
            events += writer.events(items_in(event)[: first.place])
    return events + writer.events(items)


def outdated(live: Sequence[LiveItem], prune: Callable[[Any], bool]) -> list[LiveItem]:
    """Return the oldest items that may be pruned, as far as they are whole events."""
    expired = list(takewhile(lambda each: prune(each.item), live))
    left = {each.version for each in live[len(expired) :]}
    return [each for each in expired if each.version not in left]


def _ranges_of(items: Iterable[LiveItem]) -> tuple[VersionRange, ...]:
    """Return the versions of items and of what they stand for, as a retraction has them."""
    found = joined(
        each
        for item in items
        for each in ((item.version, item.version), *((told.first, told.last) for told in item.told))
    )
    return tuple(VersionRange(first=first, last=last) for first, last in found)


def _backward(store: EventStore, stream: UUID, size: int, upto: int) -> Iterator[LiveItem]:
    withdrawn, switched, before = _Ranges(), _Ranges(), upto + 1
    while before > 1:
        with store._on_driver() as connection:
            page = read_texts(connection, stream, before=before, backward=True, limit=size)
        for event in page:
            version = event.version
            if event.type == Retraction.type and event.text is not None:
                told = loads_json(event.text)
                withdrawn.add(told["versions"], True, all_below=told.get("reason") == CLEARED)
            elif event.type == BranchSwitch.type and event.text is not None:
                told = loads_json(event.text)
                switched.add(told.get("restored", ()), False)
                switched.add(told.get("withdrawn", ()), True)
            elif event.type in TELLING:
                told_here = told_by(event) if event.type == OpenAIItems.type else ()
                if not withdrawn.says(version) and not switched.says(version):
                    items = items_in(event)
                    for place in range(len(items) - 1, -1, -1):
                        yield LiveItem(version, place, items[place], told_here)
                withdrawn.add((each.model_dump() for each in told_here), True)
        if len(page) < size:
            return
        before, size = withdrawn.below(page[-1].version), _PAGE


class _Ranges:
    """What is said of ranges of versions; what is said first holds."""

    def __init__(self) -> None:
        self._single: dict[int, bool] = {}
        self._large: list[tuple[int, int, bool]] = []
        self._passed: list[tuple[int, int]] = []

    def add(self, ranges: Iterable[dict[str, int]], said: bool, *, all_below: bool = False) -> None:
        for each in ranges:
            first, last = each["first"], each["last"]
            if all_below:
                self._passed.append((first, last))
            if last - first < _SMALL:
                for version in range(first, last + 1):
                    if self.says(version) is None:
                        self._single[version] = said
            else:
                self._large.append((first, last, said))

    def says(self, version: int) -> bool | None:
        if (said := self._single.get(version)) is not None:
            return said
        for first, last, said in self._large:
            if first <= version <= last:
                return said
        return None

    def below(self, version: int) -> int:
        """Return the version before which to read on; what holds only dead items is passed by."""
        return min([version, *(first for first, last in self._passed if last >= version - 1)])
