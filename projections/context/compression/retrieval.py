"""Strategies that keep the groups that answer the current intent, however old they are.

`Retrieval` orders groups by relevance, which `with_relevance` takes from a `Search`; without a
search, all groups are equally relevant and older ones come first. The least relevant groups lose
detail first, in the stages of `LevelOfDetail`: shortened, facts, dropped.

`Hybrid`, the default, is `KeyMessages` with recall on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from projections.context.compression.items import Item
from projections.context.compression.key_messages import KeyMessages, RankedItems
from projections.context.compression.scoring import (
    fading,
    has_results,
    last_rounds,
    protected,
)
from projections.context.compression.search import Embedding, Search
from projections.context.compression.strategy import Reduction, require_counts

__all__ = ["Hybrid", "Retrieval", "require_embedding", "with_relevance"]


_MOST_FOUND = 64
_MOST_RELEVANT = 8


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Lower detail by relevance to the intent; the last rounds lose detail last.

    Attributes:
        recent: The most groups that the last rounds may have, which lose detail last.
        embedding: With an embedding, searches by meaning too, not only by words.
    """

    recent: int = 16
    embedding: Embedding | None = None

    name: ClassVar[str] = "retrieval"
    version: ClassVar[int] = 2
    retrieves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check that the number is whole and not negative, and the embedding's type."""
        require_counts(recent=self.recent)
        require_embedding(self.embedding)

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions by ``Item.relevance``, which already reflects ``intent``."""
        recent = protected(items, self.recent)
        order = sorted(range(recent), key=lambda index: (items[index].relevance, index))
        reasons = {
            index: f"relevance {items[index].relevance:.3f}, rank {recent - place} of {recent}"
            for place, index in enumerate(order)
        }
        return fading(items, order, reasons, recent)


def with_relevance(
    items: Sequence[Item], search: Search, intent: str, limit: int = _MOST_FOUND
) -> list[Item]:
    """Return the items with their relevance set to their score in a search, or to 0.0.

    Args:
        items: Items of one conversation.
        search: A search over the items of the same conversation.
        intent: The text to search for: the latest user message.
        limit: The most items that may be relevant.
    """
    scores = search.scores(intent, limit)
    return [replace(item, relevance=max(scores.get(item.key, 0.0), 0.0)) for item in items]


@dataclass(frozen=True, slots=True)
class Hybrid(KeyMessages):
    """Lower detail as `KeyMessages` does; what answers the intent comes back, or goes last.

    With steps, the plan is that of `KeyMessages`, and messages that answer the latest user message
    stand in one block before it (`projections.context.recalled_block`). Without steps, the best
    of them lose detail after all others before the last rounds.

    Attributes:
        embedding: With an embedding, searches by meaning too, not only by words.
    """

    embedding: Embedding | None = None

    name: ClassVar[str] = "hybrid"
    version: ClassVar[int] = 3
    retrieves: ClassVar[bool] = True
    adds_block: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the number and the embedding's type."""
        require_counts(recent=self.recent)
        require_embedding(self.embedding)

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions of key messages; those of relevant items come last."""
        recent = last_rounds(items) or last_rounds(items, 1)
        talk = [n for n in range(recent) if items[n].relevance > 0 and not has_results(items[n])]
        ranked = sorted(talk, key=lambda n: (-items[n].relevance, -n))[:_MOST_RELEVANT]
        least = items[ranked[0]].relevance / 2 if ranked else 0.0
        relevant = [n for n in ranked if items[n].relevance >= least]
        return RankedItems(items, self.recent, relevant).reductions()


def require_embedding(embedding: Embedding | None) -> None:
    """Check the type of an option ``embedding``.

    Raises:
        ValueError: It is neither an `Embedding` nor None.
    """
    if not isinstance(embedding, Embedding | None):
        raise ValueError(f"embedding must be an Embedding or None, not {embedding!r}")
