"""Reading and appending a conversation's events, as all adapters do it.

One row shows whether there are new events. Each page is read in its own transaction. An append is
retried if another writer was faster.
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
_FURTHEST = 1_000  # a reader that is more events behind reads the whole conversation again

_HEAD = Statement(
    """
    SELECT version, chain, parent_conversation_id IS NOT NULL FROM conversations
    WHERE conversation_id = :conversation_id
    """
)


class Head(NamedTuple):
    """A conversation's last event; a fork's head does not change when its parent is erased."""

    version: int
    chain: bytes
    is_fork: bool = False


NO_HEAD = Head(0, b"")


def head_of(connection: AnyConnection, stream: UUID) -> Head:
    """Return a conversation's head, in the caller's transaction; `NO_HEAD` if it does not exist."""
    for version, chain, is_fork in _HEAD.rows(connection, conversation_id=stream):
        return Head(version, bytes(chain), bool(is_fork))
    return NO_HEAD


def news_of(
    connection: AnyConnection, stream: UUID, known: Head | None
) -> tuple[Head, list[EventText] | None]:
    """Return a conversation's head and the events after a known head, in the caller's transaction.

    The events are None if the caller must read the whole conversation again: there is no known
    head, an event was erased, more than 1,000 events are new, or the conversation is a fork, which
    does not record what is erased in its parent.
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
    """Yield a context manager for each attempt at an append that competes with other writers.

    The caller leaves the loop by returning. Only the last attempt raises `WrongExpectedVersion`.
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        yield suppress(WrongExpectedVersion)
    yield nullcontext()


class _Fold(Protocol):
    """An adapter's state of a conversation, folded from its events; a new one has read nothing."""

    version: int
    chain: bytes

    def fold(self, event: RecordedEvent) -> None: ...


_F = TypeVar("_F", bound=_Fold)


def followed(store: EventStore, stream: UUID, known: _F) -> _F:
    """Return an adapter's state of a conversation after folding the events that it has not read.

    Returns a new object of the same class if an event that the state includes was erased or no
    longer exists. A fork is read in full each time, because it has no event that records an erasure
    in its parent.
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
    """Yield the events after one version and before another."""
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
    """Yield the events before a version, newest first; ``first`` is the size of the first page."""
    size = first or _PAGE
    while before > 1 and (page := newest_events(store, stream, size, before=before)):
        yield from page
        before, size = page[-1].version, _PAGE


def store_of(store: EventStore | AsyncEventStore) -> EventStore:
    """Return the synchronous store, which adapters call in their own threads."""
    return store.store if isinstance(store, AsyncEventStore) else store


def unredacted(store: EventStore | AsyncEventStore, needed: str) -> EventStore:
    """Return the store for a graph, which must read back what it wrote.

    Args:
        store: The store.
        needed: What the graph needs back, for the error message.

    Raises:
        ValueError: The store redacts.
    """
    found = store_of(store)
    if found.redact is not None:
        raise ValueError(
            f"this store redacts what it writes, but a graph needs {needed}: "
            "redact in the graph, and open the store without redact="
        )
    return found
