"""Keeps what answers the current intent, however old it is.

Relevance comes from a `Search`, through `with_relevance`; without one, all groups are alike and
the older go first. What matters least loses detail first, as by the default strategy: shortened,
then its facts only, then nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from projections.compression.items import Item
from projections.compression.ranking import fading, protected
from projections.compression.search import Search
from projections.compression.strategy import Reduction
from projections.compression.vector_search import Embedding

__all__ = ["Retrieval", "with_relevance"]

_MOST_FOUND = 64


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Fades by relevance to the intent; the last rounds go last of all.

    Attributes:
        rounds: How many of the last rounds go last.
        recent: How many groups these are at most.
        embedding: Finds by meaning too, not by words alone.
    """

    rounds: int = 4
    recent: int = 16
    embedding: Embedding | None = None

    name: ClassVar[str] = "retrieval"
    version: ClassVar[int] = 1
    retrieves: ClassVar[bool] = True

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions by ``Item.relevance``, in which the intent already is."""
        recent = protected(items, self.rounds, self.recent)
        order = sorted(range(recent), key=lambda index: (items[index].relevance, index))
        reasons = {
            index: f"relevance {items[index].relevance:.3f}, rank {recent - place} of {recent}"
            for place, index in enumerate(order)
        }
        return fading(items, order, reasons, recent)


def with_relevance(
    items: Sequence[Item], search: Search, intent: str, limit: int = _MOST_FOUND
) -> list[Item]:
    """Return the items with their relevance set: what a search found, 0.0 for all others.

    Args:
        items: Of one conversation.
        search: Over the items of the same conversation.
        intent: What is looked for: the text of the latest user message.
        limit: How many items may be relevant.
    """
    scores = search.scores(intent, limit)
    return [replace(item, relevance=max(scores.get(item.key, 0.0), 0.0)) for item in items]
