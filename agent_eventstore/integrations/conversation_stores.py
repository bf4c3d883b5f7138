"""The store that a product hands to an adapter of a framework."""

from __future__ import annotations

from eventstore import AsyncEventStore, EventStore

__all__ = ["store_of", "unredacted"]


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
