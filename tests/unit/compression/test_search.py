"""Finding items by words and by meaning, within one conversation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from projections.context.compression import (
    FusedSearch,
    MemorySearch,
    VectorSearch,
    with_relevance,
)
from projections.context.compression.search import query_text, terms
from projections.errors import EmbeddingFailed
from tests.unit.compression.example import item, items, said, user


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Refund Order", ["refund", "order"]),
        ("#W2378156", ["w2378156"]),
        ("order_id", ["order_id", "order", "id"]),
        ("退款状态", ["退款", "款状", "状态"]),
        ("款", ["款"]),
        ("退款HAT001", ["退款", "hat001"]),
        ("Привет", ["привет"]),
        ("\ud800 ! --", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    """Words in lower case, identifiers whole and in parts, pairs of characters without blanks."""
    assert list(terms(text)) == expected


def test_a_score_is_that_of_bm25() -> None:
    """Computed by hand from the formula."""
    history = items(said("refund order"), said("hello world"), said("order order now then"))
    k1, b, mean = 1.2, 0.75, 8 / 3
    weight = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))

    found = MemorySearch(history).scores("order", 9)

    assert found == {
        (3, 0): round(weight * 2 * (k1 + 1) / (2 + k1 * (1 - b + b * 4 / mean)), 6),
        (1, 0): round(weight * 1 * (k1 + 1) / (1 + k1 * (1 - b + b * 2 / mean)), 6),
    }


def test_the_best_come_first_up_to_the_limit() -> None:
    """Of equal ones the newer comes first."""
    history = items(said("退款 一"), said("退款 二"), said("nothing"))

    assert list(MemorySearch(history).scores("退款", 9)) == [(2, 0), (1, 0)]
    assert list(MemorySearch(history).scores("退款", 1)) == [(2, 0)]


@pytest.mark.parametrize(
    ("question", "stated"),
    [
        ("What happened on May 7th, 2023?", "arrival 2023-05-07"),
        ("What happened on the 7th of May 2023?", "arrival 05/07/2023"),
        ("Was geschah am 7. Mai 2023?", "arrival 2023-05-07"),
        ("Was geschah am 07.05.2023?", "we met on 7 May"),
        ("2023年5月7日发生了什么", "arrival 2023-05-07"),
        ("What about 2023-05-07?", "we met on the 7th of May"),
        ("Wann im März 2023?", "sometime in March"),
    ],
)
def test_a_date_is_found_in_another_form(question: str, stated: str) -> None:
    """A question names a day as people speak, a tool as programs write, and the other way round."""
    others = [said(f"arrival 2024-0{month}-1{month}") for month in (1, 2, 6)]
    found = MemorySearch(items(*others[:2], said(stated), others[2])).scores(question, 1)
    assert [3] == [version for version, _ in found]


@pytest.mark.parametrize(
    "text", ["13月", "2023-13-01", "may I ask", "on 5/7", "Mary 7", "", "32. Mai"]
)
def test_what_is_no_date(text: str) -> None:
    """Nothing is searched for besides the words."""
    assert text == query_text(text)


@pytest.mark.parametrize("intent", ["", "unheard", "\ud800", "!"])
def test_nothing_is_found_by_nothing(intent: str) -> None:
    """Neither in a conversation nor in an empty one."""
    assert MemorySearch(items(user("hello"))).scores(intent, 9) == {}
    assert MemorySearch([]).scores(intent, 9) == {}


def by_letters(texts: Sequence[str]) -> list[list[float]]:
    """Embed a text as how often it has a and b."""
    return [[float(text.count("a")), float(text.count("b"))] for text in texts]


def test_vectors_find_by_cosine() -> None:
    """Length does not matter; what has no vector is not found."""
    history = items(said("aaaa"), said("ab"), said("b"), said("zzz"), said(" "))

    found = VectorSearch(history, by_letters).scores("a", 9)

    assert found == {(1, 0): 1.0, (2, 0): round(math.sqrt(0.5), 6)}


def test_items_are_embedded_once() -> None:
    """A second search sends only its intent."""
    sent: list[list[str]] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        sent.append(list(texts))
        return by_letters(texts)

    search = VectorSearch(items(said("a \ud800")), embed)
    search.scores("a", 9)
    search.scores("b", 9)

    assert sent == [["a ?"], ["a"], ["b"]]


def test_a_wrong_number_of_vectors_is_refused() -> None:
    """Pairing what remains would rank the wrong items."""
    with pytest.raises(EmbeddingFailed, match="1 vectors for 2 texts"):
        VectorSearch(items(said("a"), said("b")), lambda texts: [[1.0]]).scores("a", 9)


class Found:
    """A search that always finds the same."""

    def __init__(self, **places: float) -> None:
        self._found = {(int(place[1:]), 0): score for place, score in places.items()}

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return what it was made with."""
        return self._found


def test_fused_searches_add_their_reciprocal_ranks() -> None:
    """The scale of scores does not matter; what both found leads."""
    fused = FusedSearch(Found(_1=1000.0, _2=1.0), Found(_2=0.02, _3=0.01))

    assert fused.scores("", 9) == {
        (2, 0): round(1 / 62 + 1 / 61, 6),
        (1, 0): round(1 / 61, 6),
        (3, 0): round(1 / 62, 6),
    }


def test_relevance_is_set_where_something_was_found() -> None:
    """All others have none, nor has what a search scores below zero."""
    history = with_relevance([item(1), item(2), item(3)], Found(_1=0.5, _2=-1.0), "intent")

    assert [each.relevance for each in history] == [0.5, 0.0, 0.0]
