"""A conversation's events, as adapters read them: by pages, or those alone that are new.

One row tells whether anything is new; a page is a transaction of its own. And appending to it,
again if somebody else was faster; and the store that a product hands in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from eventstore import AsyncEventStore, EventStore, RecordedEvent
from eventstore.errors import WrongExpectedVersion
from eventstore.events import Erasure
from eventstore.sql.backend import AnyConnection, Statement
from eventstore.sql.read import END, EventText, chain_at, read_texts

__all__ = [
    "NO_HEAD",
    "Head",
    "attempts",
    "events_after",
    "events_before",
    "followed",
    "head_of",
    "newest_events",
    "news_of",
    "store_of",
    "unredacted",
]

_MOST_ATTEMPTS = 50
_FURTHEST = 1_000  # events that are read on; if there are more, all is read again

_HEAD = Statement(
    """
    SELECT version, chain, parent_conversation_id IS NOT NULL FROM conversations
    WHERE conversation_id = :conversation_id
    """
)


class Head(NamedTuple):
    """The last event of a conversation; a fork's does not tell what was erased in its parent."""

    version: int
    chain: bytes
    is_fork: bool = False


NO_HEAD = Head(0, b"")


def head_of(connection: AnyConnection, stream: UUID) -> Head:
    """Return a conversation's head, in the caller's transaction; `NO_HEAD` if there is none."""
    for version, chain, is_fork in _HEAD.rows(connection, conversation_id=stream):
        return Head(version, bytes(chain), bool(is_fork))
    return NO_HEAD


def news_of(
    connection: AnyConnection, stream: UUID, known: Head | None
) -> tuple[Head, list[EventText] | None]:
    """Return a conversation's head, and the events behind a known one, in the caller's transaction.

    They are None where all is to be read again: nothing is known, an event was erased, or the
    conversation is a fork, which does not tell what is erased of its parent.
    """
    head = head_of(connection, stream)
    if head.is_fork or known is None or not 0 <= head.version - known.version <= _FURTHEST:
        return head, None
    if known == head:
        return head, []
    if known.version and chain_at(connection, stream, known.version) != known.chain:
        return head, None
    page = read_texts(
        connection, stream, after=known.version, before=head.version + 1, limit=_FURTHEST
    )
    return head, None if any(event.type == Erasure.type for event in page) else page


def attempts() -> Iterator[AbstractContextManager[None]]:
    """Yield a context for each attempt at an append, while others append: to be left by a return.

    Only the last one raises `WrongExpectedVersion`.
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        yield suppress(WrongExpectedVersion)
    yield nullcontext()


class _Fold(Protocol):
    """What an adapter keeps of a conversation; one that is made anew has read nothing yet."""

    version: int
    chain: bytes

    def fold(self, event: RecordedEvent) -> None: ...


_F = TypeVar("_F", bound=_Fold)


def followed(store: EventStore, stream: UUID, known: _F) -> _F:
    """Return what is known of a conversation as it is now; what it has read is read no second time.

    Another of its class where something that it has read was erased, or is no longer there. What a
    fork shares may be erased without an event of its own: that is read each time.
    """
    seen = Head(known.version, known.chain) if known.version else None
    with store._on_driver() as connection:
        head, news = news_of(connection, stream, seen)
    if news == []:
        return known
    known = type(known)() if news is None else known
    for event in store.read(stream, after=known.version, before=head.version + 1):
        known.fold(event)
    return known


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


def store_of(store: EventStore | AsyncEventStore) -> EventStore:
    """Return the synchronous store, which adapters use in threads of their own choice."""
    return store.store if isinstance(store, AsyncEventStore) else store


def unredacted(store: EventStore | AsyncEventStore, needed: str) -> EventStore:
    """Return the store of a graph, which gives back what was written; ``needed`` says what.

    Raises:
        ValueError: It redacts.
    """
    found = store_of(store)
    if found.redact is not None:
        raise ValueError(
            f"this store redacts what is written, and a graph needs {needed}: "
            "redact in the graph, and open the store without redact="
        )
    return found
