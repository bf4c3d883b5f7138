"""Strategies that keep the groups that answer the current intent, however old they are.

`Retrieval` orders groups by relevance, which `with_relevance` takes from a `Search`; without a
search, all groups are equally relevant and older ones come first. The least relevant groups lose
detail first, in the stages of `LevelOfDetail`: shortened, facts, dropped.

`Hybrid` keeps both key and relevant groups. The value of a group is the sum of the reciprocals of
its two ranks, by the score of `KeyMessages` and by relevance to the intent (Cormack, Clarke and
Buettcher, "Reciprocal Rank Fusion", 2009, with their constant 60). Reciprocals are whole numbers of
billionths, so sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from projections.context.compression.items import Item
from projections.context.compression.scoring import fading, protected, score_of
from projections.context.compression.search import Embedding, Search
from projections.context.compression.strategy import Reduction, require_counts

__all__ = ["Hybrid", "Retrieval", "with_relevance"]


_MOST_FOUND = 64

_CONSTANT = 60
_ONE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Lower detail by relevance to the intent; the last rounds lose detail last.

    Attributes:
        rounds: The number of last rounds that lose detail last; 0 for none.
        recent: The most groups that these rounds may have.
        embedding: With an embedding, searches by meaning too, not only by words.
    """

    rounds: int = 4
    recent: int = 16
    embedding: Embedding | None = None

    name: ClassVar[str] = "retrieval"
    version: ClassVar[int] = 1
    retrieves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check that both numbers are whole and not negative, and the embedding's type."""
        require_counts(rounds=self.rounds, recent=self.recent)
        if not isinstance(self.embedding, Embedding | None):
            raise ValueError(f"embedding must be an Embedding or None, not {self.embedding!r}")

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions by ``Item.relevance``, which already reflects ``intent``."""
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
class Hybrid(Retrieval):
    """Lower detail by score and relevance together; the last rounds lose detail last.

    The attributes are those of `Retrieval`.
    """

    name: ClassVar[str] = "hybrid"
    version: ClassVar[int] = 1

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions by both ranks; ``Item.relevance`` already reflects ``intent``."""
        recent = protected(items, self.rounds, self.recent)
        scores = [score_of(item, len(items) - index) for index, item in enumerate(items[:recent])]
        by_score = sorted(range(recent), key=lambda index: (-scores[index].points, -index))
        found = [index for index in range(recent) if items[index].relevance > 0]
        by_relevance = sorted(found, key=lambda index: (-items[index].relevance, -index))
        values = [0] * recent
        for ranking in (by_score, by_relevance):
            for rank, index in enumerate(ranking, start=1):
                values[index] += _ONE // (_CONSTANT + rank)
        order = sorted(range(recent), key=lambda index: (values[index], index))
        reasons = {
            index: f"rank {recent - place} of {recent}: relevance {items[index].relevance:.3f}, "
            f"{scores[index]}"
            for place, index in enumerate(order)
        }
        return fading(items, order, reasons, recent)
