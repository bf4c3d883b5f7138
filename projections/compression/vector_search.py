"""Search by meaning, with an embedding callable of the product's, and searches made one.

Nothing here knows a model or a network: the product's callable turns texts into vectors.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from eventstore.errors import EmbeddingFailed
from projections.compression.items import Item
from projections.compression.memory_search import best, terms
from projections.compression.search import Search

__all__ = [
    "LONGEST_TEXT",
    "Embed",
    "Embedding",
    "FusedSearch",
    "VectorSearch",
    "cosine",
    "embedded",
    "without_embedding",
]

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Returns a vector for each text, in their order, all of one length."""

LONGEST_TEXT = 8_000
"""Characters of an item that are embedded."""

_CONSTANT = 60


class Embedding(NamedTuple):
    """An embedding callable, and the name that its vectors are kept under.

    A product that changes the model behind the callable changes the name.
    """

    name: str
    embed: Embed


class VectorSearch:
    """A `Search` by the cosine of embeddings.

    The items are embedded together at the first search and never again; an intent at each search.

    Args:
        items: Of one conversation; those without a word are never found.
        embed: Gets texts without lone surrogates, each of at most ``LONGEST_TEXT`` characters.

    Raises:
        EmbeddingFailed: By ``scores``; see `embedded`.
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
        return best({key: cosine(wanted, held) for key, held in self._vectors.items()}, limit)


class FusedSearch:
    """A `Search` that joins others by reciprocal rank: no scale of scores matters."""

    def __init__(self, *searches: Search) -> None:
        self._searches = searches

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return the items that any search found, best first, with the sums of 1 / (60 + rank)."""
        sums: dict[tuple[int, int], float] = {}
        for search in self._searches:
            found = search.scores(intent, limit)
            ranked = sorted(found, key=lambda key: (found[key], key), reverse=True)
            for rank, key in enumerate(ranked, start=1):
                sums[key] = sums.get(key, 0.0) + 1 / (_CONSTANT + rank)
        return best(sums, limit)


def embedded(texts: Sequence[str], embed: Embed) -> list[array[float]]:
    """Return the vectors of texts, of length 1 (or 0.0 throughout), in single precision.

    Raises:
        EmbeddingFailed: The callable raised, returned another number of vectors than it got texts,
            or vectors of several lengths.
    """
    try:
        vectors = [_normal(vector) for vector in embed([_cleaned(text) for text in texts])]
    except Exception as error:
        raise EmbeddingFailed(f"{type(error).__name__}: {error}") from error
    if len(vectors) != len(texts):
        raise EmbeddingFailed(f"it returned {len(vectors)} vectors for {len(texts)} texts")
    if len({len(vector) for vector in vectors}) > 1:
        raise EmbeddingFailed("it returned vectors of several lengths")
    return vectors


def without_embedding(strategy: Any) -> Any:
    """Return a strategy that finds by words alone; the same one if it has no embedding."""
    if isinstance(getattr(strategy, "embedding", None), Embedding):
        return replace(strategy, embedding=None)
    base = getattr(strategy, "base", None)
    lesser = base if base is None or isinstance(base, str) else without_embedding(base)
    return strategy if lesser is base else replace(strategy, base=lesser)


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of vectors of length 1.

    Raises:
        EmbeddingFailed: One has more dimensions than the other.
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
