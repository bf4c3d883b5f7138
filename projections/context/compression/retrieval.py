"""Strategies that keep what answers the current intent, however old it is.

`Retrieval` goes by relevance, which comes from a `Search` through `with_relevance`; without one,
all groups are alike and the older go first. What matters least loses detail first, as by level of
detail: shortened, then its facts only, then nothing.

`Hybrid` keeps what is key and what is relevant. A group's value is the sum of the reciprocals of
its two ranks (Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion", 2009, with their constant
60): by the score of the key messages, and by relevance to the intent. Reciprocals are exact whole
numbers of billionths.
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

    def __post_init__(self) -> None:
        """Refuse what is no number of rounds or groups."""
        require_counts(rounds=self.rounds, recent=self.recent)

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


@dataclass(frozen=True, slots=True)
class Hybrid(Retrieval):
    """Fades by score and relevance together; the last rounds go last of all.

    Attributes as of `Retrieval`.
    """

    name: ClassVar[str] = "hybrid"
    version: ClassVar[int] = 1

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions by both ranks; the intent is in ``Item.relevance`` already."""
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
