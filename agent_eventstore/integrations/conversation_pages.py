"""A conversation's events as the database has them, read page by page, a transaction each."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from eventstore import EventStore
from eventstore.sql.read import END, EventText, read_texts

__all__ = ["events_after", "events_before", "newest_events"]

_PAGE = 1_000


def newest_events(
    store: EventStore, stream: UUID, limit: int, *, before: int = END
) -> list[EventText]:
    """Return the newest events before a version, newest first, in one transaction."""
    with store._on_driver() as connection:
        return read_texts(connection, stream, before=before, backward=True, limit=limit)


def events_after(
    store: EventStore, stream: UUID, after: int, *, before: int = END
) -> Iterator[EventText]:
    """Yield the events after a version, and before another."""
    while after < before - 1:
        with store._on_driver() as connection:
            page = read_texts(connection, stream, after=after, before=before, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].version


def events_before(
    store: EventStore, stream: UUID, before: int = END, *, first: int | None = None
) -> Iterator[EventText]:
    """Yield the events before a version, newest first; ``first`` are in the first page."""
    size = first or _PAGE
    while before > 1 and (page := newest_events(store, stream, size, before=before)):
        yield from page
        before, size = page[-1].version, _PAGE
