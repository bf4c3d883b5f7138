"""Searching rows that were read: for lists of them, and for databases that cannot keep an index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from projections.compression.items import Item
from projections.compression.memory_search import MemorySearch
from projections.compression.search import Search
from projections.compression.vector_search import Embedding, FusedSearch, VectorSearch
from projections.context.budget import groups_of
from projections.context.rows import ContextRow

__all__ = ["item_to_search", "search_in_memory"]


def item_to_search(rows: Sequence[ContextRow]) -> Item:
    """Return a group as an item to be searched, not to be sent: its tokens are not counted."""
    messages = tuple(row.message for row in rows)
    return Item(key=rows[0].key, kind=rows[0].kind, messages=messages, tokens=0)


def search_in_memory(
    rows: Iterable[ContextRow],
    intent: str,
    limit: int,
    *,
    until: tuple[int, int] | None = None,
    embedding: Embedding | None = None,
) -> Mapping[tuple[int, int], float]:
    """Return the groups that answer an intent best, with their scores.

    Args:
        rows: All visible rows of a conversation, newest first.
        intent: What is looked for.
        limit: The most to return.
        until: As if what stands after this place had not been said yet.
        embedding: Finds by meaning too; each text is embedded.
    """
    groups = [item_to_search(group) for group in groups_of(rows)]
    items = [item for item in groups if until is None or item.key <= until]
    search: Search = MemorySearch(items)
    if embedding is not None:
        search = FusedSearch(search, VectorSearch(items, embedding.embed))
    return search.scores(intent, limit)
