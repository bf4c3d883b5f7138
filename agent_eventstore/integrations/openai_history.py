"""The live items of a session, read from the newest backwards only as far as needed.

Items are withdrawn (popped, cleared, or left behind by a branch switch) by newer events only, so a
reader never has to look further back than the oldest item that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from agent_eventstore.integrations.conversation_events import newest_events
from agent_eventstore.integrations.openai_events import OpenAIItems
from agent_eventstore.integrations.openai_items import TELLING, items_in, told_by
from agent_eventstore.integrations.openai_withdrawn import WITHDRAWING, Answered, Withdrawn
from eventstore import EventStore
from eventstore.events import ToolResult, VersionRange
from eventstore.events.codec import loads_json
from eventstore.sql.read import END, EventText

__all__ = [
    "CLEARED",
    "LiveItem",
    "first_page",
    "live_events",
    "live_items",
]

CLEARED = "clear_session"
"""The reason of a retraction that withdraws all live items, and only items."""

_PAGE = 1000
_FEW = 4
_RESULT, _ITEMS = ToolResult.type, OpenAIItems.type
_PLAIN = TELLING - {_RESULT, _ITEMS}


class LiveItem(NamedTuple):
    """An item, the version of its event, and its position among that event's items.

    ``told`` are the versions of the recorded events that the item replaces.
    """

    version: int
    place: int
    item: Any
    told: tuple[VersionRange, ...] = ()


def live_items(store: EventStore, stream: UUID, limit: int | None = None) -> list[LiveItem]:
    """Return the newest live items of a conversation, in order; all of them without a limit."""
    found = (
        LiveItem(event.version, place, item, told_by(event))
        for event in live_events(store, stream, limit)
        for place, item in reversed(list(enumerate(items_in(event))))
    )
    return list(found if limit is None else islice(found, limit))[::-1]


def live_events(
    store: EventStore,
    stream: UUID,
    limit: int | None = None,
    *,
    newest: Sequence[EventText] | None = None,
) -> Iterator[EventText]:
    """Yield the events whose items are live, newest first.

    Args:
        store: The store.
        stream: The conversation.
        limit: The number of items that the caller will read, if known.
        newest: The first page, if it was read already: `first_page` events.
    """
    size, before = first_page(limit), END
    withdrawn, switched, answered = Withdrawn(), Withdrawn(), Answered(store, stream)
    changed = False
    while before > 1:
        page = newest_events(store, stream, size, before=before) if newest is None else newest
        for event in page:
            version, kind, _, text, _ = event
            if text is None:
                continue
            if kind in _PLAIN and not changed:
                yield event
            elif kind in TELLING:
                is_live = not (changed and (withdrawn.says(version) or switched.says(version)))
                if kind == _RESULT and answered.replaces(event):
                    is_live = False
                if is_live:
                    yield event
                if kind == _ITEMS:
                    changed = True
                    withdrawn.add([each.model_dump() for each in told_by(event)], True)
            elif kind in WITHDRAWING:
                told, changed = loads_json(text), True
                all_below = told.get("reason") == CLEARED
                withdrawn.add(told.get("versions", ()), True, all_below=all_below)
                switched.add(told.get("restored", ()), False)
                switched.add(told.get("withdrawn", ()), True)
        if len(page) < size:
            return
        last, size = page[-1].version, min(size * 8, _PAGE)
        before = withdrawn.below(last)
        answered.skip(before, last)
        newest = None


def first_page(limit: int | None) -> int:
    """Return the number of events in the first page, for a number of items."""
    return _PAGE if limit is None else min(limit + _FEW, _PAGE)
