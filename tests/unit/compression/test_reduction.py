"""Reductions are carried out in order, up to the first moment when the request fits."""

from __future__ import annotations

from typing import Any

import pytest

from projections.context.compression import Item, Level, LevelOfDetail, Reduced, Reduction, reduce
from projections.context.compression.pipeline import assemble
from projections.context.compression.reduction import DIGEST_HEADER, digest_text
from projections.errors import BudgetInfeasible
from tests.unit.compression.example import TOKENIZER, identifiers, item, said


def carry_out(items: list[Item], *reductions: Reduction, max_tokens: int, **more: Any) -> Reduced:
    """Reduce with nothing fixed."""
    return reduce(items, reductions, fixed=0, max_tokens=max_tokens, tokenizer=TOKENIZER, **more)


def drops(*indexes: int) -> list[Reduction]:
    """Return drops in an order."""
    return [Reduction(index, "dropped", why=f"drop {index}") for index in indexes]


def test_what_fits_is_left_alone() -> None:
    """No reduction is carried out, and no reason given."""
    reduced = carry_out([item(1), item(2)], *drops(0, 1), max_tokens=20)

    assert reduced.levels == ("full", "full")
    assert reduced.reasons == ("", "")


def test_it_stops_at_the_first_moment_that_fits() -> None:
    """The list's order decides, not the items' order."""
    reduced = carry_out([item(1), item(2), item(3)], *drops(1, 0, 2), max_tokens=20)

    assert reduced.levels == ("full", "dropped", "full")
    assert reduced.reasons == ("", "drop 1", "")


def test_a_level_is_never_raised() -> None:
    """A reduction to a level that was passed changes nothing."""
    shorter = (said("short"),)
    items = [item(1, 100, shorter=shorter, shorter_tokens=5), item(2)]

    reduced = carry_out(items, *drops(0), Reduction(0, "shortened"), *drops(1), max_tokens=0)

    assert reduced.levels == ("dropped", "dropped")


def test_a_gist_says_its_facts_in_a_line() -> None:
    """The digest stands where the oldest gist stood."""
    items = [item(1), item(2, 500, facts=identifiers("id_1", "id_2")), item(3)]

    reduced = carry_out(items, Reduction(1, "facts"), max_tokens=100)

    assert digest_text(items, reduced) == f"{DIGEST_HEADER}\n2: id_1 id_2"
    assert [placed.item for placed in assemble(items, reduced)] == [items[0], None, items[2]]


def test_a_fact_leaves_a_gist_and_the_last_one_takes_it_along() -> None:
    """An empty line is not a gist."""
    items = [item(1, 500, facts=identifiers("id_1", "id_2"))]
    steps = [Reduction(0, "facts"), Reduction(0, "facts", fact=0), Reduction(0, "facts", fact=1)]

    some = carry_out(items, *steps[:2], max_tokens=0, strict=False)
    none = carry_out(items, *steps, max_tokens=0)

    assert some.facts == (("id_2",),)
    assert none.levels == ("dropped",)
    assert none.tokens == 0


def test_a_fact_that_is_said_again_stands_once() -> None:
    """The later gist keeps it; what a mandatory message says is in neither."""
    facts = identifiers("id_1", "id_2")
    items = [
        item(1, 500, facts=facts),
        item(2, 500, facts=identifiers("id_2", "id_3")),
        item(3, mandatory="latest user message", messages=(said("about id_3"),)),
    ]

    reduced = carry_out(items, Reduction(0, "facts"), Reduction(1, "facts"), max_tokens=200)

    assert reduced.facts == (("id_1",), ("id_2",), ())


def test_an_item_without_facts_of_its_own_has_no_gist() -> None:
    """It is dropped at once."""
    assert carry_out([item(1, 500)], Reduction(0, "facts"), max_tokens=9).levels == ("dropped",)


def test_a_products_own_gist_is_said() -> None:
    """It takes the place of the facts."""
    items = [item(1, 500, digest_text="asked for a refund", facts=identifiers("id_1"))]

    reduced = carry_out(items, Reduction(0, "facts"), max_tokens=99)

    assert digest_text(items, reduced) == f"{DIGEST_HEADER}\n1: asked for a refund"


def test_what_cannot_fit_is_refused_with_sizes() -> None:
    """The error names what is mandatory and what is fixed."""
    items = [item(1, 70, mandatory="system part"), item(2)]

    with pytest.raises(BudgetInfeasible) as caught:
        reduce(items, drops(1), fixed=5, max_tokens=74, tokenizer=TOKENIZER)

    assert caught.value.mandatory == {"system part (version 1)": 70, "fixed part": 5}


@pytest.mark.parametrize(
    ("max_tokens", "levels"),
    [
        (4_000, ("full", "full")),
        (3_000, ("shortened", "full")),
        (1_300, ("facts", "shortened")),
        (500, ("dropped", "facts")),
        (10, ("dropped", "dropped")),
    ],
)
def test_the_default_strategy_fades_from_the_oldest(
    max_tokens: int, levels: tuple[Level, ...]
) -> None:
    """The older is at the lower level, whatever the budget."""
    items = [
        item(
            place,
            2_000,
            shorter=(said("short"),),
            shorter_tokens=1_000,
            facts=identifiers(f"id_{place}"),
        )
        for place in (1, 2)
    ]

    reduced = carry_out(items, *LevelOfDetail().reductions(items, ""), max_tokens=max_tokens)

    assert reduced.levels == levels


def test_an_item_without_a_shorter_form_takes_all_of_its_tokens() -> None:
    """A product's item that says nothing of a shorter form was counted as 0 tokens, and sent."""
    items = [Item((n, 0), "assistant", (said("long"),), tokens=100) for n in (1, 2)]
    reductions = (*(Reduction(n, "shortened") for n in (0, 1)), *drops(0))

    reduced = carry_out(items, *reductions, max_tokens=150)

    assert ("dropped", "shortened") == reduced.levels
    assert 100 == reduced.tokens


def test_an_item_says_how_large_its_shorter_form_is() -> None:
    """Without that, a request could not be counted."""
    with pytest.raises(ValueError, match="needs its shorter_tokens"):
        Item((1, 0), "assistant", (said("long"),), tokens=100, shorter=(said("short"),))
