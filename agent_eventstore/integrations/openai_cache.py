"""A cache of the items of recently read sessions: later reads only read new events.

Items are cached as JSON, which each reader parses into its own objects. One row shows whether
anyone has changed the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from sys import getsizeof
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy import Pool

from agent_eventstore.integrations.conversation_events import Head, news_of
from agent_eventstore.integrations.conversation_memory import Memory
from agent_eventstore.integrations.openai_events import OpenAIItems
from agent_eventstore.integrations.openai_history import first_page, live_events
from agent_eventstore.integrations.openai_items import answered_by, cut_of, is_placeholder, json_of
from eventstore import EventStore
from eventstore.events import BranchSwitch, Retraction, ToolResult
from eventstore.events.codec import loads_json
from eventstore.sql.read import END, EventText, read_texts

__all__ = ["forget", "newest_items"]

_RESULT = ToolResult.type


def newest_items(store: EventStore, stream: UUID, limit: int | None) -> tuple[list[Any], int]:
    """Return a conversation's newest live items, in order, and the version of its last event.

    Uses one transaction, unless the items fill more than a page. If nothing has changed since the
    last read, it reads one row. A fork is read each time, because it has no event that records an
    erasure in its parent.
    """
    cache = _cache_of(store)
    before = cache.get(stream)
    with store._on_driver() as connection:
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
class _Known:
    """The live items of a conversation: all of them, or the newest.

    Attributes:
        head: The last event that was read.
        texts: The JSON of each event's items, separated by commas, by version.
        complete: Whether these are all live items.
        placeholders: The versions of results that recovery recorded, by call id.
    """

    head: Head
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

    def caught_up(self, page: list[EventText] | None, head: Head) -> _Known | None:
        """Return the items after newer events; None if the session must be read again."""
        if page is None or any(event.type == BranchSwitch.type for event in page):
            return None
        return self._followed_by(page, head) if page else self

    def _followed_by(self, page: Iterable[EventText], head: Head) -> _Known:
        texts, placeholders = self.texts.copy(), self.placeholders.copy()
        for event in page:
            if event.text is None:
                continue
            gone: list[dict[str, int]] = []
            if event.type == Retraction.type:
                gone = loads_json(event.text)["versions"]
            elif event.type == OpenAIItems.type:
                gone = loads_json(event.text).get("told", [])
            elif event.type == _RESULT and placeholders:
                texts.pop(placeholders.pop(answered_by(event), 0), None)
            for version in chain(*(range(each["first"], each["last"] + 1) for each in gone)):
                texts.pop(version, None)
            if text := json_of(event):
                texts[event.version] = text
                if event.type == _RESULT:
                    _note(placeholders, event)
        return _Known(head, texts, self.complete, placeholders)


def _read(
    store: EventStore, stream: UUID, head: Head, limit: int | None, newest: Sequence[EventText]
) -> tuple[_Known, list[Any]]:
    """Return the live items up to a head, and the newest of them; ``newest`` is the first page."""
    try:
        return _read_by(cut_of, store, stream, head, limit, newest)
    except ValueError:  # An event has a nested "raw" too: check each event by itself.
        return _read_by(json_of, store, stream, head, limit, newest)


def _read_by(
    json_in: Callable[[EventText], str],
    store: EventStore,
    stream: UUID,
    head: Head,
    limit: int | None,
    newest: Sequence[EventText],
) -> tuple[_Known, list[Any]]:
    texts, placeholders = dict[int, str](), dict[str, int]()
    most = END if limit is None else max(limit, 1)
    complete = True
    for event in live_events(store, stream, limit, newest=newest):
        if len(texts) == most:
            complete = False
            break
        if text := json_in(event):
            texts[event[0]] = text
            if event[1] == _RESULT:
                _note(placeholders, event)
    known = _Known(head, dict(reversed(texts.items())), complete, placeholders)
    return known, known.newest(limit)


def _note(placeholders: dict[str, int], event: EventText) -> None:
    if is_placeholder(event):
        placeholders[answered_by(event)] = event.version


_caches: WeakKeyDictionary[Pool, Memory[_Known]] = WeakKeyDictionary()


def _cache_of(store: EventStore) -> Memory[_Known]:
    """Return the cache of a store's database, which the stores of single owners share."""
    return _caches.setdefault(store.engine.pool, Memory())
