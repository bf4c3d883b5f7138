"""Searches the whole conversation for messages that answer the intent: for retrieving strategies.

The planner lowers detail within the newest groups only. A strategy with ``retrieves`` also gets the
best older hits, and the relevance of every item. The number of hits does not depend on the budget,
so that a larger budget never keeps less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from projections.context.compression.search import Embedding
from projections.context.compression.strategy import Strategy
from projections.context.groups import groups_of
from projections.context.plans import Group
from projections.context.rows import ContextRow, Key
from projections.context.search_tables import item_to_search
from projections.context.source import RowSource

__all__ = ["HITS", "Recall", "adds_block", "embedding_of", "recall_for", "retrieves"]


HITS = 64
"""The most hits, including the message that is to be answered."""


class Recall:
    """The hits of one request; searches once for each intent and key.

    Args:
        source: The rows.
        embedding: The embedding to search with as well; None for full-text search only.
        grouped: Makes a counted group of its rows.
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

    @property
    def by_words(self) -> bool:
        """Whether scores are those of full-text search alone."""
        return self._embedding is None

    def within(self, groups: Iterable[Group]) -> Recall:
        """Return a copy that returns only these groups."""
        bounded = Recall(self._source, self._embedding, self.grouped)
        bounded._reach = {group.key: group for group in groups}
        return bounded

    def scores(
        self, questions: Sequence[ContextRow], until: Key | None, most: int = HITS
    ) -> Mapping[Key, float]:
        """Return the keys and scores of the hits for a message, best first.

        Args:
            questions: The rows of the message.
            until: Ignore everything after this key.
            most: The most hits to return.
        """
        return self.scores_of(item_to_search(questions).text, until, most)

    def scores_of(self, intent: str, until: Key | None, most: int = HITS) -> Mapping[Key, float]:
        """Return the keys and scores of the hits for a text, best first; see `scores`."""
        request_key = (intent, until, most)
        if request_key not in self._scores:
            self._scores[request_key] = self._source.search(
                intent, most, until=until, embedding=self._embedding
            )
        return self._scores[request_key]

    def around(self, keys: Sequence[Key]) -> Iterator[Group]:
        """Yield the group of each key, then the groups directly before and after it.

        Keeps the order of the keys, and yields no group twice.
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
        """Return the groups with these keys, in any order."""
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
    """Return the `Recall` of a strategy, or None if it does not retrieve."""
    if not retrieves(strategy):
        return None
    return Recall(source, embedding_of(strategy), grouped)


def retrieves(strategy: Strategy) -> bool:
    """Whether a strategy needs ``Item.relevance``: its attribute ``retrieves`` is true.

    If its attribute ``embedding`` is not None, relevance includes the search by meaning.
    """
    return bool(getattr(strategy, "retrieves", False))


def adds_block(strategy: Strategy) -> bool:
    """Whether a strategy's plan with steps is made without search, and gets a block on top."""
    return bool(getattr(strategy, "adds_block", False))


def embedding_of(strategy: Strategy) -> Embedding | None:
    """Return the embedding of a strategy, or None."""
    found: Embedding | None = getattr(strategy, "embedding", None)
    return found
