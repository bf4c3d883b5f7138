"""Retrieval from the whole conversation of what answers the intent, for strategies that retrieve.

The planner lowers detail only within the newest groups. A strategy with ``retrieves`` also gets the
best hits beyond them, and every item's relevance. The number of hits does not depend on the budget,
so that a larger budget never keeps less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from projections.context.compression.search import Embedding
from projections.context.compression.strategy import Strategy
from projections.context.past import groups_of
from projections.context.plans import Group
from projections.context.rows import ContextRow
from projections.context.search_tables import item_to_search
from projections.context.source import RowSource

__all__ = ["HITS", "Recall", "embedding_of", "recall_for", "retrieves"]

Key = tuple[int, int]

HITS = 64
"""The most groups that may be relevant, including the message that is answered."""


class Recall:
    """The hits of one request, searched once for each intent and place.

    Args:
        source: The rows.
        embedding: Searches by meaning as well.
        grouped: Makes a group of its rows, with its tokens.
    """

    def __init__(
        self,
        source: RowSource,
        embedding: Embedding | None,
        grouped: Callable[[tuple[ContextRow, ...]], Group],
    ) -> None:
        self._source = source
        self._embedding = embedding
        self.grouped = grouped
        self._scores: dict[tuple[str, Key | None, int], Mapping[Key, float]] = {}
        self._groups: dict[Key, Group] = {}
        self._reach: Mapping[Key, Group] | None = None

    def within(self, groups: Iterable[Group]) -> Recall:
        """Return a recall that is restricted to these groups."""
        bounded = Recall(self._source, self._embedding, self.grouped)
        bounded._reach = {group.key: group for group in groups}
        return bounded

    def scores(
        self, said: Sequence[ContextRow], until: Key | None, most: int = HITS
    ) -> Mapping[Key, float]:
        """Return the places of the hits for a message with their scores, best first.

        Args:
            said: The rows of the message.
            until: Ignore everything after this place.
            most: The most hits.
        """
        intent = item_to_search(said).text
        asked = (intent, until, most)
        if asked not in self._scores:
            self._scores[asked] = self._source.search(
                intent, most, until=until, embedding=self._embedding
            )
        return self._scores[asked]

    def around(self, keys: Sequence[Key]) -> Iterator[Group]:
        """Yield the groups at these places, each followed by its predecessor and its successor.

        In the order of the places, without repetitions.
        """
        rows = self._source.rows_around([version for version, _ in keys])
        groups = [self.grouped(each) for each in groups_of(rows)][::-1]
        places = {group.key: place for place, group in enumerate(groups)}
        seen: set[int] = set()
        for key in keys:
            place = places.get(key)
            for each in () if place is None else (place, place - 1, place + 1):
                if 0 <= each < len(groups) and each not in seen:
                    seen.add(each)
                    yield groups[each]

    def groups(self, keys: Iterable[Key]) -> list[Group]:
        """Return the groups at these places, in any order."""
        wanted = set(keys)
        if self._reach is not None:
            return [self._reach[key] for key in wanted & self._reach.keys()]
        versions = sorted({version for version, _ in wanted - self._groups.keys()})
        if versions:
            for rows in groups_of(self._source.rows_at(versions)):
                group = self.grouped(rows)
                self._groups[group.key] = group
        return [self._groups[key] for key in wanted if key in self._groups]


def recall_for(
    strategy: Strategy,
    source: RowSource,
    grouped: Callable[[tuple[ContextRow, ...]], Group],
) -> Recall | None:
    """Return the recall for a strategy; None if it does not retrieve."""
    if not retrieves(strategy):
        return None
    return Recall(source, embedding_of(strategy), grouped)


def retrieves(strategy: Strategy) -> bool:
    """Whether a strategy uses ``Item.relevance``: its attribute ``retrieves`` is true.

    If its attribute ``embedding`` is not None, relevance also reflects meaning.
    """
    return bool(getattr(strategy, "retrieves", False))


def embedding_of(strategy: Strategy) -> Embedding | None:
    """Return a strategy's embedding, or None."""
    found: Embedding | None = getattr(strategy, "embedding", None)
    return found
