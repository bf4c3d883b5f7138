"""Strategies by age: old items lose detail first, or drop out of a window.

`LevelOfDetail` orders reductions by weight times age, highest first: an item of age ``a`` (the
newest is 1) is shortened at the same point at which an item of age ``16 a`` is reduced to its
facts, and an item of age ``64 a`` loses its identifiers. Facts are removed one by one. There is no
fixed age limit, and the newest messages lose detail last.

For screens, it can send only the newest input or tool result unchanged, and summaries of all others
from the start (document 004).

`NewestGroups` is the baseline: it sends the newest groups unchanged and drops the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import ClassVar

from projections.context.compression.facts import FactKind
from projections.context.compression.items import Item, Level
from projections.context.compression.strategy import Reduction

__all__ = ["LevelOfDetail", "NewestGroups"]


_SUMMARY = 64
_TO_FACTS = 4
_UNIT = 8  # factor on the age of every item except the newest and summaries
# At most _TO_FACTS, because a fact can be removed only after its item was reduced to facts.
_FACTS: dict[FactKind, int] = {
    "term": 4,
    "phrase": 3,
    "name": 2,
    "conclusion": 2,
    "identifier": 1,
    "rule": 1,
}
_NO_ROOM = "no room for all of its facts"


@dataclass(frozen=True, slots=True)
class LevelOfDetail:
    """Lower detail with age: full, shortened, facts; then remove the facts one by one.

    Attributes:
        live_only_newest: Whether the newest input or tool result is sent unchanged, and all others
            as summaries even while there is room.
    """

    live_only_newest: bool = False

    name: ClassVar[str] = "level_of_detail"
    version: ClassVar[int] = 2

    def reductions(self, items: Sequence[Item], intent: str) -> Iterator[Reduction]:
        """Yield the reductions by weight times age, highest first; ``intent`` is not used."""
        # A summary replaces everything older, and the newest group has no answer yet: both lose
        # detail last.
        newest = len(items) - 1
        ages = {
            index: 1 if item.kind == "summary" or index == newest else _UNIT * (len(items) - index)
            for index, item in enumerate(items)
            if not item.mandatory
        }
        order = sorted(ages, key=lambda index: (-ages[index], index))
        stages = [
            (_SUMMARY, _summaries(items, order)),
            (_TO_FACTS, _lowered(order, "facts", "only facts found nowhere else are kept")),
            *((weight, _facts(items, order, kind)) for kind, weight in _FACTS.items()),
            (min(_FACTS.values()), _lowered(order, "dropped", _NO_ROOM)),
        ]
        placed = [
            _placed(reductions, ages, weight, stage)
            for stage, (weight, reductions) in enumerate(stages)
        ]
        return (reduction for _, reduction in merge(*placed, key=itemgetter(0)))


def _placed(
    reductions: Iterator[Reduction], ages: Mapping[int, int], weight: int, stage: int
) -> Iterator[tuple[tuple[int, int, int], Reduction]]:
    for each in reductions:
        yield (-ages[each.item] * weight, stage, each.item), each


def _summaries(items: Sequence[Item], order: Sequence[int]) -> Iterator[Reduction]:
    for index in order:
        if items[index].has_shorter:
            yield Reduction(index, "shortened", why="older texts are shortened first")


def _lowered(order: Sequence[int], level: Level, why: str) -> Iterator[Reduction]:
    for index in order:
        yield Reduction(index, level, why=why)


def _facts(items: Sequence[Item], order: Sequence[int], kind: FactKind) -> Iterator[Reduction]:
    for index in order:
        for number, fact in enumerate(items[index].facts):
            if fact.kind == kind:
                yield Reduction(index, "facts", number, _NO_ROOM)


class NewestGroups:
    """Drop whole groups, oldest first; nothing is shortened."""

    name = "window"
    version = 1

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return a reduction to ``dropped`` for each item, except mandatory ones."""
        return [
            Reduction(
                index, "dropped", why=f"outside the window, {len(items) - index} from the end"
            )
            for index, item in enumerate(items)
            if not item.mandatory
        ]
