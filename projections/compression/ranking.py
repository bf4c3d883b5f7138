"""A history that fades by rank: as the default strategy fades it by age.

The least valued group stands where the oldest would, the most valued where the newest would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from projections.compression.items import Item, Level
from projections.compression.level_of_detail import LevelOfDetail
from projections.compression.scoring import last_rounds
from projections.compression.strategy import Reduction

__all__ = ["fading", "protected"]

_SAID: Mapping[Level, str] = {"summary": "shortened", "gist": "facts only", "dropped": "dropped"}


def protected(items: Sequence[Item], rounds: int, most: int) -> int:
    """Return the index from which on items are recent: the last rounds, at most ``most`` items.

    A single round of an agent can be the whole history, so rounds alone would protect it all.
    """
    return max(last_rounds(items, rounds), len(items) - most)


def fading(
    items: Sequence[Item], order: Sequence[int], reasons: Mapping[int, str], recent: int
) -> list[Reduction]:
    """Return reductions that take items in an order, those from ``recent`` on last of all.

    Args:
        items: Oldest first.
        order: Indexes of the items before ``recent``, the least valued first.
        reasons: Of each of these, why it stands where it stands.
        recent: Index from which on items go by age, after all others.
    """
    history = [index for index in order if not items[index].mandatory]
    newest = [index for index in range(recent, len(items)) if not items[index].mandatory]
    return [*_faded(items, history, reasons), *_faded(items, newest, {})]


def _faded(
    items: Sequence[Item], order: Sequence[int], reasons: Mapping[int, str]
) -> Iterator[Reduction]:
    for reduction in LevelOfDetail().reductions([items[index] for index in order], ""):
        index = order[reduction.item]
        said = _SAID["dropped"] if reduction.fact is not None else _SAID[reduction.to]
        why = reasons.get(index, f"recent, {len(items) - index} from the end")
        yield Reduction(index, reduction.to, fact=reduction.fact, why=f"{said}, {why}")
