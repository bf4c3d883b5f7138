"""Exact BM25 over the items of one conversation, in memory.

Latin and other words are lower-cased; identifiers and paths count whole and by their words;
scripts without blanks between words count by pairs of characters. k1 = 1.2, b = 0.75.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from projections.compression.items import Item

__all__ = ["DECIMALS", "MemorySearch", "best", "share", "terms", "wanted", "weight"]

_K1 = 1.2
_B = 0.75
_MOST_WANTED = 256
DECIMALS = 6
"""Of a score: logarithms differ in their last digits between platforms."""

_CJK = r"\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
_TERM = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[_.:/@+-]+[^\W_{_CJK}]+)*")
_WORD = re.compile(r"[^\W_]+")


class MemorySearch:
    """A `Search` over items: an index of their words, made once, in time linear in their texts."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._keys = [item.key for item in items]
        self._lengths: list[int] = []
        self._found: dict[str, list[tuple[int, int]]] = {}
        for number, item in enumerate(items):
            counts = Counter(terms(item.text))
            self._lengths.append(counts.total())
            for term, count in counts.items():
                self._found.setdefault(term, []).append((number, count))
        self._mean = sum(self._lengths) / len(items) if items else 0.0

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return the best items with their scores, best first; of equal ones the newer first."""
        points: dict[int, float] = {}
        for term in wanted(terms(intent)):
            found = self._found.get(term, ())
            worth = weight(len(self._keys), len(found))
            for number, count in found:
                gained = worth * share(count, self._lengths[number] / self._mean)
                points[number] = points.get(number, 0.0) + gained
        return best({self._keys[number]: value for number, value in points.items()}, limit)


def terms(text: str) -> Iterator[str]:
    """Yield what of a text is indexed, in its order.

    >>> list(terms("Open src/app.py, 退款状态"))
    ['open', 'src/app.py', 'src', 'app', 'py', '退款', '款状', '状态']
    """
    for found in _TERM.finditer(text):
        term = found.group()
        if _is_cjk(term[0]):
            yield from (term[i : i + 2] for i in range(len(term) - 1)) if term[1:] else (term,)
            continue
        whole = term.lower()
        yield whole
        words = _WORD.findall(whole)
        if len(words) > 1:
            yield from words


def wanted(terms: Iterable[str]) -> list[str]:
    """Return the distinct terms that are searched for: the first, of an intent of very many."""
    return list(islice(dict.fromkeys(terms), _MOST_WANTED))


def weight(items: int, found: int) -> float:
    """Return what a term is worth that stands in ``found`` of the items."""
    return math.log(1 + (items - found + 0.5) / (found + 0.5))


def share(count: int, length: float) -> float:
    """Return how much of a term's worth an item gets.

    Args:
        count: How often the term stands in it.
        length: Its length, as a multiple of the mean length.
    """
    return count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length))


def best(scores: Mapping[tuple[int, int], float], limit: int) -> dict[tuple[int, int], float]:
    """Return the highest scores above 0.0, rounded, best first; of equal ones the newer first."""
    rounded = {key: round(value, DECIMALS) for key, value in scores.items()}
    above = [key for key, value in rounded.items() if value > 0]
    above.sort(key=lambda key: (rounded[key], key), reverse=True)
    return {key: rounded[key] for key in above[: max(limit, 0)]}


def _is_cjk(character: str) -> bool:
    return re.match(f"[{_CJK}]", character) is not None
