"""Find the items that answer an intent: by words, by vectors, or by both.

A strategy that retrieves receives items whose ``relevance`` is set. The relevance comes from a
`Search`: in memory over the items of one conversation, as here, or in the database over the whole
conversation (`projections.context.recall_search`).

`MemorySearch` is exact BM25 (k1 = 1.2, b = 0.75). Words are lower-cased and English ones stemmed;
identifiers and paths are indexed whole and by their words; scripts without spaces between words are
indexed by pairs of characters.

`VectorSearch` searches by meaning. This module uses no model and no network: the product's
embedding callable turns texts into vectors. `FusedSearch` merges several searches.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

from projections.context.compression.dates import written_otherwise
from projections.context.compression.items import Item
from projections.errors import EmbeddingFailed

__all__ = [
    "DECIMALS",
    "LONGEST_TEXT",
    "MOST_POSTINGS",
    "Embed",
    "Embedding",
    "FusedSearch",
    "MemorySearch",
    "Search",
    "VectorSearch",
    "best",
    "cosine",
    "embedded",
    "query_text",
    "rarest",
    "scores_among",
    "share",
    "terms",
    "wanted",
    "weight",
    "without_embedding",
]

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Returns a vector for each text, in order, all of the same length."""

DECIMALS = 6
"""Scores are rounded to these: logarithms differ in their last digits between platforms."""

LONGEST_TEXT = 8_000
"""The most characters of an item that are embedded."""

_K1 = 1.2
_B = 0.75
_MOST_WANTED = 256

MOST_POSTINGS = 1_000
"""The most occurrences of terms in items that a search adds up; see `rarest`."""

_ENDINGS = (
    *(("ings", "", 3), ("ing", "", 3), ("ied", "y", 2), ("ies", "y", 2), ("ed", "", 3)),
    *(("sses", "ss", 1), ("ss", "ss", 1), ("us", "us", 1), ("is", "is", 1), ("s", "", 3)),
)
_CJK = r"\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
_FIRST_CJK = "\u3041"
_MOST_CACHED = 32  # characters of a word
_TERM = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[_.:/@+-]+[^\W_{_CJK}]+)*")
_WORD = re.compile(r"[^\W_]+")

_CONSTANT = 60  # of reciprocal rank fusion


@runtime_checkable
class Search(Protocol):
    """Scores the items of one conversation."""

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return the keys and scores of the best items, all above 0.0, at most ``limit``.

        Deterministic: other conversations do not affect the scores.
        """


class MemorySearch:
    """A `Search` over items, whose words are counted once."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._keys = [item.key for item in items]
        self._counted = [Counter(terms(item.text)) for item in items]

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return the best items with their scores, best first; of equal scores the newer first."""
        return scores_among(self._keys, self._counted, intent, limit)


def scores_among(
    keys: Sequence[tuple[int, int]], counted: Sequence[Counter[str]], intent: str, limit: int
) -> dict[tuple[int, int], float]:
    """Return the scores of the best items, given their keys and how often they contain each term.

    Best first; of equal scores the newer first.
    """
    found = {
        term: [(place, words[term]) for place, words in enumerate(counted) if term in words]
        for term in wanted(terms(query_text(intent)))
    }
    lengths = [words.total() for words in counted]
    mean = sum(lengths) / max(len(lengths), 1)
    points: dict[int, float] = {}
    for term in rarest({term: len(places) for term, places in found.items()}):
        worth = weight(len(keys), len(found[term]))
        for place, count in found[term]:
            gained = worth * share(count, lengths[place] / mean)
            points[place] = points.get(place, 0.0) + gained
    return best({keys[place]: value for place, value in points.items()}, limit)


def terms(text: str) -> Iterator[str]:
    """Yield the terms to index of a text, in order.

    >>> list(terms("Open src/app.py, 退款状态"))
    ['open', 'src/app.py', 'src', 'app', 'py', '退款', '款状', '状态']
    """
    for found in _TERM.finditer(text):
        term = found.group()
        if term[0] >= _FIRST_CJK and _is_cjk(term[0]):
            yield from (term[i : i + 2] for i in range(len(term) - 1)) if term[1:] else (term,)
            continue
        whole = term.lower()
        if whole.isalnum():
            yield stem(whole)
            continue
        words = _WORD.findall(whole)
        if len(words) > 1:
            yield whole
        yield from map(stem, words)


def query_text(intent: str) -> str:
    """Return the text to search for: an intent, with its dates in the forms of other writers."""
    return f"{dates} {intent}" if (dates := written_otherwise(intent)) else intent


def wanted(terms: Iterable[str]) -> list[str]:
    """Return the distinct terms to search for, from the first 256 of an intent.

    Words that only frame a question are left out, unless there are no others.
    """
    found = list(islice(dict.fromkeys(terms), _MOST_WANTED))
    return [term for term in found if term not in _FRAMING] or found


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Return the terms to search for, given in how many items each occurs.

    The rarest first, as long as they occur in no more than `MOST_POSTINGS` items together: in a
    long conversation, its common words say little, and would take most of a search's time.
    """
    found, total = [], 0
    for term in sorted(counts, key=lambda term: counts[term]):
        total += counts[term]
        if total > MOST_POSTINGS:
            break
        if counts[term]:
            found.append(term)
    return found


def stem(word: str) -> str:
    """Return the stem of an English word, equal for most of its forms; other words unchanged.

    >>> [stem(word) for word in ("moves", "moving", "planned", "studies", "bus", "W2378156")]
    ['mov', 'mov', 'plan', 'study', 'bus', 'W2378156']
    """
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    # Texts repeat their words, but not their longest ones.
    return _stem(word) if len(word) <= _MOST_CACHED else _stem.__wrapped__(word)


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    for ending, instead, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == "e":
        return word[:-1]
    return word[:-1] if word[-1] == word[-2] and word[-1] in "bdgmnprt" else word


def weight(items: int, found: int) -> float:
    """Return the worth of a term that occurs in ``found`` of the items."""
    return math.log(1 + (items - found + 0.5) / (found + 0.5))


def share(count: int, length: float) -> float:
    """Return the factor by which a term's worth counts for an item.

    Args:
        count: How often the term occurs in the item.
        length: The length of the item, as a multiple of the mean length.
    """
    return count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length))


def best(scores: Mapping[tuple[int, int], float], limit: int) -> dict[tuple[int, int], float]:
    """Return the best scores above 0.0, rounded, best first; of equal scores the newer first."""
    rounded = {key: round(value, DECIMALS) for key, value in scores.items()}
    above = [key for key, value in rounded.items() if value > 0]
    above.sort(key=lambda key: (rounded[key], key), reverse=True)
    return {key: rounded[key] for key in above[: max(limit, 0)]}


def _is_cjk(character: str) -> bool:
    return re.match(f"[{_CJK}]", character) is not None


_FRAMING = frozenset(
    map(
        stem,
        "a about again all also am an and any are as at be because been before being but by can"
        " could did do does doing done earlier for from had has have having he her here him his"
        " how i if in into is it its just know let like me might mind more most my need no not of"
        " off on once one only or other our out over own please re remember remind said same say"
        " she should so some speak spoke such sure tell than that the their them then there these"
        " they this those through to told too under until up us very want was we were what when"
        " where which while who whom why will with would yes you your".split(),
    )
)
"""Words that only frame a question, in the form in which `terms` yields them."""


class Embedding(NamedTuple):
    """An embedding callable, and the name under which its vectors are stored.

    If you change the model behind the callable, change the name.
    """

    name: str
    embed: Embed


class VectorSearch:
    """A `Search` by the cosine of embeddings.

    All items are embedded together, once, at the first search; the intent at each search.

    Args:
        items: Items of one conversation; items without a word are never found.
        embed: Receives texts without lone surrogates, each of at most ``LONGEST_TEXT`` characters.

    Raises:
        EmbeddingFailed: Raised by ``scores``; see `embedded`.
    """

    def __init__(self, items: Sequence[Item], embed: Embed) -> None:
        self._texts = {item.key: item.text for item in items if any(terms(item.text))}
        self._embed = embed
        self._vectors: dict[tuple[int, int], Sequence[float]] | None = None

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return the best items with their cosines above 0.0, best first."""
        if not self._texts or not intent.strip():
            return {}
        if self._vectors is None:
            vectors = embedded(list(self._texts.values()), self._embed)
            self._vectors = dict(zip(self._texts, vectors, strict=True))
        (wanted,) = embedded([intent], self._embed)
        return best({key: cosine(wanted, vector) for key, vector in self._vectors.items()}, limit)


class FusedSearch:
    """A `Search` that merges others by reciprocal rank, so their scores need no common scale."""

    def __init__(self, *searches: Search) -> None:
        self._searches = searches

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return the items that any search found, best first, scored by sums of 1 / (60 + rank)."""
        sums: dict[tuple[int, int], float] = {}
        for search in self._searches:
            found = search.scores(intent, limit)
            ranked = sorted(found, key=lambda key: (found[key], key), reverse=True)
            for rank, key in enumerate(ranked, start=1):
                sums[key] = sums.get(key, 0.0) + 1 / (_CONSTANT + rank)
        return best(sums, limit)


def embedded(texts: Sequence[str], embed: Embed) -> list[array[float]]:
    """Return the vectors of texts in single precision, scaled to length 1.

    A vector whose length is 0 or not finite becomes all zeros.

    Raises:
        EmbeddingFailed: The callable raised an exception, or did not return one vector for each
            text, all of the same length.
    """
    try:
        vectors = [_normal(vector) for vector in embed([_cleaned(text) for text in texts])]
    except Exception as error:
        raise EmbeddingFailed(f"{type(error).__name__}: {error}") from error
    if len(vectors) != len(texts):
        raise EmbeddingFailed(f"it returned {len(vectors)} vectors for {len(texts)} texts")
    if len({len(vector) for vector in vectors}) > 1:
        raise EmbeddingFailed("it returned vectors of different lengths")
    return vectors


def without_embedding(strategy: Any) -> Any:
    """Return a strategy that searches by words only; the same object if it has no embedding."""
    base = getattr(strategy, "base", None)
    if base is None and isinstance(getattr(strategy, "embedding", None), Embedding):
        return replace(strategy, embedding=None)
    lesser = base if base is None or isinstance(base, str) else without_embedding(base)
    return strategy if lesser is base else replace(strategy, base=lesser)


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors of length 1.

    Raises:
        EmbeddingFailed: The vectors have different numbers of dimensions.
    """
    if len(left) != len(right):
        raise EmbeddingFailed(f"its vectors have {len(left)} and {len(right)} dimensions")
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _cleaned(text: str) -> str:
    return text[:LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")


def _normal(vector: Sequence[float]) -> array[float]:
    values = [float(value) for value in vector]
    length = math.sqrt(math.fsum(value * value for value in values))
    usable = length > 0 and math.isfinite(length)
    return array("f", [value / length for value in values] if usable else [0.0] * len(values))
