"""The live items of a session, read from the newest backwards only as far as needed.

Items are withdrawn (popped, cleared, or left behind by a branch switch) by newer events only, so a
reader never has to look further back than the oldest item that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from sys import getsizeof
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy import Pool

from agent_eventstore.integrations.conversation_events import (
    ConversationTail,
    events_after,
    newest_events,
    news_of,
)
from agent_eventstore.integrations.conversation_memory import ConversationMemory
from agent_eventstore.integrations.openai_agents.events import OpenAIItems
from agent_eventstore.integrations.openai_agents.items import (
    TELLING,
    answered_by,
    cut_of,
    is_placeholder,
    items_in,
    json_of,
    replaced_versions,
)
from eventstore import EventStore
from eventstore.database import END, EventText, driver_transaction, read_texts
from eventstore.events import BranchSwitch, Erasure, Meta, Retraction, ToolResult, VersionRange
from eventstore.events.codec import loads_json

__all__ = [
    "CLEARED",
    "WITHDRAWING",
    "Answered",
    "LiveItem",
    "Withdrawn",
    "first_page",
    "forget",
    "has_changes",
    "is_of",
    "live_events",
    "live_items",
    "newest_items",
]


WITHDRAWING = (Retraction.type, BranchSwitch.type)


"""The types of events that withdraw items."""


_CHANGING = (*WITHDRAWING, Erasure.type)


_SMALL = 64


class Withdrawn:
    """Statements about ranges of versions, added from the newest: the first one wins."""

    def __init__(self) -> None:
        self._single: dict[int, bool] = {}
        self._large: list[tuple[int, int, bool]] = []
        self._passed: list[tuple[int, int]] = []

    def add(
        self, ranges: Iterable[dict[str, int]], is_withdrawn: bool, *, all_below: bool = False
    ) -> None:
        """Add a statement about ranges; with ``all_below``, a reader may skip these ranges."""
        for each in ranges:
            first, last = each["first"], each["last"]
            if all_below:
                self._passed.append((first, last))
            if last - first < _SMALL:
                for version in range(first, last + 1):
                    if self.says(version) is None:
                        self._single[version] = is_withdrawn
            else:
                self._large.append((first, last, is_withdrawn))

    def says(self, version: int) -> bool | None:
        """Return the first statement about a version; None if there is none."""
        if (is_withdrawn := self._single.get(version)) is not None:
            return is_withdrawn
        for first, last, is_withdrawn in self._large:
            if first <= version <= last:
                return is_withdrawn
        return None

    def below(self, version: int) -> int:
        """Return the version before which to read on, skipping ranges that hold only dead items."""
        return min([version, *(first for first, last in self._passed if last >= version - 1)])


class Answered:
    """The calls that have a later result, for a reader that goes from the newest event back."""

    def __init__(self, store: EventStore, stream: UUID) -> None:
        self._store, self._stream = store, stream
        self._calls = set[str]()
        self._results: list[EventText] = []  # whose calls are looked up once they are needed
        self._skipped: list[tuple[int, int]] = []

    def skip(self, first: int, before: int) -> None:
        """Note events that the reader skips: from one version to before another."""
        if first < before:
            self._skipped.append((first, before))

    def replaces(self, event: EventText) -> bool:
        """Whether the next tool result is a placeholder of recovery's that has a real one."""
        self._results.append(event)
        if not is_placeholder(event):
            return False
        *later, call = map(answered_by, self._results)
        self._calls.update(later)
        self._results.clear()
        for first, before in self._skipped:
            skipped = events_after(self._store, self._stream, first - 1, before=before)
            results = (each for each in skipped if each.type == ToolResult.type and each.text)
            self._calls.update(map(answered_by, results))
        self._skipped.clear()
        if call in self._calls:
            return True
        self._calls.add(call)
        return False


def has_changes(store: EventStore, stream: UUID, after: int, own: Meta | None) -> bool:
    """Whether items were added, withdrawn, replaced or erased after a version.

    Args:
        store: The store.
        stream: The conversation.
        after: The version.
        own: The metadata of the caller's own recorded run, whose events do not count.
    """
    return any(
        (each.type in _CHANGING or items_in(each)) and not is_of(own, each)
        for each in events_after(store, stream, after)
    )


def is_of(run: Meta | None, event: EventText) -> bool:
    """Whether a run has recorded an event."""
    return run is not None and loads_json(event.meta).get("session_id") == run.session_id


CLEARED = "clear_session"


"""The reason of a retraction that withdraws all live items, and only items."""


_PAGE = 1000


_FEW = 4


_RESULT, _ITEMS = ToolResult.type, OpenAIItems.type


_PLAIN = TELLING - {_RESULT, _ITEMS}


class LiveItem(NamedTuple):
    """An item, the version of its event, and its position among that event's items.

    ``replaces`` are the versions of the recorded events that the item replaces.
    """

    version: int
    place: int
    item: Any
    replaces: tuple[VersionRange, ...] = ()


def live_items(store: EventStore, stream: UUID, limit: int | None = None) -> list[LiveItem]:
    """Return the newest live items of a conversation, in order; all of them without a limit."""
    found = (
        LiveItem(event.version, place, item, replaced_versions(event))
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
                    withdrawn.add([each.model_dump() for each in replaced_versions(event)], True)
            elif kind in WITHDRAWING:
                payload, changed = loads_json(text), True
                all_below = payload.get("reason") == CLEARED
                withdrawn.add(payload.get("versions", ()), True, all_below=all_below)
                switched.add(payload.get("restored", ()), False)
                switched.add(payload.get("withdrawn", ()), True)
        if len(page) < size:
            return
        last, size = page[-1].version, min(size * 8, _PAGE)
        before = withdrawn.below(last)
        answered.skip(before, last)
        newest = None


def first_page(limit: int | None) -> int:
    """Return the number of events in the first page, for a number of items."""
    return _PAGE if limit is None else min(limit + _FEW, _PAGE)


_TOOL_RESULT = ToolResult.type


def newest_items(store: EventStore, stream: UUID, limit: int | None) -> tuple[list[Any], int]:
    """Return a conversation's newest live items, in order, and the version of its last event.

    Uses one transaction, unless the items fill more than a page. If nothing has changed since the
    last read, it reads one row. A fork is read each time, because it has no event that records an
    erasure in its parent.
    """
    cache = _cache_of(store)
    before = cache.get(stream)
    with driver_transaction(store) as connection:
        head, page = news_of(connection, stream, None if before is None else before.head)
        known = None if before is None else before.caught_up(page, head)
        if known is None or not known.has(limit):
            size = first_page(limit)
            page = read_texts(connection, stream, backward=True, limit=size) if head.version else []
            known = None
    if known is None:
        known, items = _read(store, stream, head, limit, page or [])
    else:
        items = known.newest(limit)
    if not head.is_fork:
        cache.keep(stream, known, None if known is before else known.size)
    return items, head.version


def forget(store: EventStore, stream: UUID) -> None:
    """Remove a conversation, which was erased, from the cache."""
    _cache_of(store).take(stream)


@dataclass(frozen=True, slots=True)
class _CachedItems:
    """The live items of a conversation: all of them, or the newest.

    Attributes:
        head: The last event that was read.
        texts: The JSON of each event's items, separated by commas, by version.
        complete: Whether these are all live items.
        placeholders: The versions of results that recovery recorded, by call id.
    """

    head: ConversationTail
    texts: dict[int, str]
    complete: bool
    placeholders: dict[str, int]

    @property
    def size(self) -> int:
        """The memory that the JSON takes, in bytes; a character takes one to four."""
        return sum(map(getsizeof, self.texts.values()))

    def has(self, limit: int | None) -> bool:
        """Whether the cache holds as many of the newest items as ``limit`` requests."""
        return self.complete or (limit is not None and limit <= len(self.texts))

    def newest(self, limit: int | None) -> list[Any]:
        """Return the newest items, in order."""
        texts: Iterable[str] = self.texts.values()
        if limit is not None:
            texts = [*islice(reversed(self.texts.values()), max(limit, 1))][::-1]
        items: list[Any] = loads_json(f"[{','.join(texts)}]")
        return items if limit is None else items[-limit:] if limit else []

    def caught_up(
        self, page: list[EventText] | None, head: ConversationTail
    ) -> _CachedItems | None:
        """Return the items after newer events; None if the session must be read again."""
        if page is None or any(event.type == BranchSwitch.type for event in page):
            return None
        return self._followed_by(page, head) if page else self

    def _followed_by(self, page: Iterable[EventText], head: ConversationTail) -> _CachedItems:
        texts, placeholders = self.texts.copy(), self.placeholders.copy()
        for event in page:
            if event.text is None:
                continue
            gone: list[dict[str, int]] = []
            if event.type == Retraction.type:
                gone = loads_json(event.text)["versions"]
            elif event.type == OpenAIItems.type:
                gone = loads_json(event.text).get("replaces", [])
            elif event.type == _TOOL_RESULT and placeholders:
                texts.pop(placeholders.pop(answered_by(event), 0), None)
            for version in chain(*(range(each["first"], each["last"] + 1) for each in gone)):
                texts.pop(version, None)
            if text := json_of(event):
                texts[event.version] = text
                if event.type == _TOOL_RESULT:
                    _note(placeholders, event)
        return _CachedItems(head, texts, self.complete, placeholders)


def _read(
    store: EventStore,
    stream: UUID,
    head: ConversationTail,
    limit: int | None,
    newest: Sequence[EventText],
) -> tuple[_CachedItems, list[Any]]:
    """Return the live items up to a head, and the newest of them; ``newest`` is the first page."""
    try:
        return _read_by(cut_of, store, stream, head, limit, newest)
    except ValueError:  # An event has a nested "raw" too: check each event by itself.
        return _read_by(json_of, store, stream, head, limit, newest)


def _read_by(
    json_in: Callable[[EventText], str],
    store: EventStore,
    stream: UUID,
    head: ConversationTail,
    limit: int | None,
    newest: Sequence[EventText],
) -> tuple[_CachedItems, list[Any]]:
    texts, placeholders = dict[int, str](), dict[str, int]()
    most = END if limit is None else max(limit, 1)
    complete = True
    for event in live_events(store, stream, limit, newest=newest):
        if len(texts) == most:
            complete = False
            break
        if text := json_in(event):
            texts[event[0]] = text
            if event[1] == _TOOL_RESULT:
                _note(placeholders, event)
    known = _CachedItems(head, dict(reversed(texts.items())), complete, placeholders)
    return known, known.newest(limit)


def _note(placeholders: dict[str, int], event: EventText) -> None:
    if is_placeholder(event):
        placeholders[answered_by(event)] = event.version


_caches: WeakKeyDictionary[Pool, ConversationMemory[_CachedItems]] = WeakKeyDictionary()


def _cache_of(store: EventStore) -> ConversationMemory[_CachedItems]:
    """Return the cache of a store's database, which the stores of single owners share."""
    return _caches.setdefault(store.engine.pool, ConversationMemory())
