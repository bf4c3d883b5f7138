"""What every strategy promises, over histories that nobody would write by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from projections.context.compression import (
    Item,
    MemorySearch,
    Reduced,
    compress,
    items_of,
    reduce,
    strategy_of,
    with_relevance,
)
from projections.context.compression.items import LEVELS
from projections.context.compression.pipeline import assemble
from projections.context.compression.reduction import digest_text
from projections.errors import BudgetInfeasible
from projections.tokens import count_messages, tokenizer_for

TOKENIZER = tokenizer_for("gpt-4o")
FRAME = 3
NAMES = (
    "level_of_detail",
    "key_messages",
    "window",
    "retrieval",
    "hybrid",
    "llm_summary",
)

TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "",
            " ",
            "\ud800",
            "My order is #W2378156. It must arrive! Thanks.",
            "订单 #W2378156 必须退款。谢谢。决定:完成。",
            "“ quoted ” and 「 两个 」 in src/app/main.py\n\n\n",
            "word " * 400,
            "Nothing here. " * 60 + "Except mia_li_3668.",
        ]
    ),
    st.builds(
        json.dumps,
        st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.sampled_from(["HAT001", "a\tb", "\u3000中", "\ud800x"]),
                    "n": st.integers(),
                }
            ),
            max_size=4,
        ),
        ensure_ascii=st.booleans(),
    ),
)
USER = st.builds(lambda text: [{"role": "user", "content": text}], TEXTS)
SYSTEM = st.builds(lambda text: [{"role": "system", "content": text}], TEXTS)
ORPHAN = st.builds(lambda text: [{"role": "tool", "tool_call_id": "x", "content": text}], TEXTS)
PROSE = st.builds(lambda text: [{"role": "assistant", "content": text}], TEXTS)


def calling(arguments: list[str], results: list[str]) -> list[dict[str, Any]]:
    """Return a message with calls and some results, not always as many."""
    calls = [
        {"id": "c", "type": "function", "function": {"name": "find", "arguments": text}}
        for text in arguments
    ]
    said = [{"role": "tool", "tool_call_id": "c", "content": text} for text in results]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *said]


GROUPS = st.one_of(
    USER,
    PROSE,
    SYSTEM,
    ORPHAN,
    st.builds(calling, st.lists(TEXTS, min_size=1, max_size=2), st.lists(TEXTS, max_size=3)),
)
HISTORIES = st.lists(GROUPS, max_size=14).map(
    lambda groups: [each for one in groups for each in one]
)
SHARES = st.integers(0, 100)

every_strategy = pytest.mark.parametrize("name", NAMES)


def prepared(history: list[dict[str, Any]]) -> tuple[list[Item], str]:
    """Return the items of a history with their relevance, and its intent."""
    items = items_of(history, TOKENIZER)
    intent = next((item.text for item in reversed(items) if item.kind == "user"), "")
    return with_relevance(items, MemorySearch(items), intent), intent


def reduced_to(items: list[Item], intent: str, name: str, share: int) -> Reduced:
    """Reduce to what is mandatory and a share, in percent, of everything else."""
    mandatory = sum(item.tokens for item in items if item.mandatory)
    rest = sum(item.tokens for item in items) - mandatory
    return reduce(
        items,
        strategy_of(name).reductions(items, intent),
        fixed=FRAME,
        max_tokens=FRAME + mandatory + rest * share // 100,
        tokenizer=TOKENIZER,
    )


@every_strategy
@given(history=HISTORIES, share=SHARES)
def test_any_budget_that_holds_what_is_mandatory_is_held(
    name: str, history: list[dict[str, Any]], share: int
) -> None:
    """What is sent is counted again from its messages, digest included."""
    items, intent = prepared(history)
    mandatory = FRAME + sum(item.tokens for item in items if item.mandatory)
    rest = FRAME + sum(item.tokens for item in items) - mandatory

    reduced = reduced_to(items, intent, name, share)
    sent = [message for placed in assemble(items, reduced) for message in placed.messages]

    assert count_messages(sent, TOKENIZER).tokens <= reduced.tokens
    assert reduced.tokens <= mandatory + rest * share // 100


@every_strategy
@given(history=HISTORIES)
def test_a_budget_below_what_is_mandatory_is_refused(
    name: str, history: list[dict[str, Any]]
) -> None:
    """The error names the sizes, which add up to the least budget that works."""
    items, intent = prepared(history)
    least = FRAME + sum(item.tokens for item in items if item.mandatory)

    with pytest.raises(BudgetInfeasible) as caught:
        reduce(
            items,
            strategy_of(name).reductions(items, intent),
            fixed=FRAME,
            max_tokens=least - 1,
            tokenizer=TOKENIZER,
        )

    assert sum(caught.value.mandatory.values()) == least


@every_strategy
@given(history=HISTORIES, shares=st.tuples(SHARES, SHARES))
def test_a_larger_budget_never_keeps_less(
    name: str, history: list[dict[str, Any]], shares: tuple[int, int]
) -> None:
    """No level is lower, and no line of the digest lacks a fact that the smaller budget kept."""
    items, intent = prepared(history)
    small, large = (reduced_to(items, intent, name, share) for share in sorted(shares))

    for less, more in zip(small.levels, large.levels, strict=True):
        assert LEVELS.index(more) <= LEVELS.index(less)
    for level, less_facts, more_facts in zip(large.levels, small.facts, large.facts, strict=True):
        assert level != "facts" or set(less_facts) <= set(more_facts)


@every_strategy
@given(history=HISTORIES, share=SHARES)
def test_the_same_history_and_budget_give_the_same_bytes(
    name: str, history: list[dict[str, Any]], share: int
) -> None:
    """Items made anew, from an equal history, come to the same levels, digest and reasons."""
    first, second = (prepared(json.loads(json.dumps(history))) for _ in range(2))

    reduced = reduced_to(*first, name, share)

    assert reduced_to(*second, name, share) == reduced
    assert digest_text(second[0], reduced) == digest_text(first[0], reduced)


@every_strategy
@given(history=HISTORIES, share=SHARES)
def test_what_is_mandatory_is_sent_as_it_is(
    name: str, history: list[dict[str, Any]], share: int
) -> None:
    """System part, first and latest user message are in every request, unchanged."""
    items, intent = prepared(history)
    reduced = reduced_to(items, intent, name, share)
    users = [index for index, item in enumerate(items) if item.kind == "user"]

    kept = {index for index, level in enumerate(reduced.levels) if level == "full"}

    assert {*users[:1], *users[-1:]} <= kept
    assert {index for index, item in enumerate(items) if item.mandatory} <= kept


@every_strategy
@given(history=HISTORIES, share=SHARES)
def test_groups_stay_whole_and_in_order(
    name: str, history: list[dict[str, Any]], share: int
) -> None:
    """An item is sent with all its messages, in their roles, or with none."""
    items, intent = prepared(history)

    placed = [each for each in assemble(items, reduced_to(items, intent, name, share)) if each.item]

    keys = [each.item.key for each in placed if each.item]
    assert keys == sorted(keys)
    for each in placed:
        assert each.item is not None
        roles = [message["role"] for message in each.item.messages]
        assert [message["role"] for message in each.messages] == roles


@every_strategy
@given(history=HISTORIES)
def test_every_reduction_says_why_and_spares_what_is_mandatory(
    name: str, history: list[dict[str, Any]]
) -> None:
    """A strategy's list names no mandatory item, and each entry has a reason."""
    items, intent = prepared(history)

    for reduction in strategy_of(name).reductions(items, intent):
        assert not items[reduction.item].mandatory
        assert reduction.why


@every_strategy
@given(history=HISTORIES, share=SHARES)
def test_compressing_twice_changes_nothing_that_fits(
    name: str, history: list[dict[str, Any]], share: int
) -> None:
    """Messages that fit are returned as they are, whatever they went through before."""
    whole = count_messages(history, TOKENIZER).tokens
    budget = whole * share // 100
    try:
        done = compress(history, max_tokens=budget, strategy=name)
    except BudgetInfeasible:
        assume(False)

    again = compress(done.messages, max_tokens=budget, strategy=name)

    assert again.messages == done.messages
    assert done.tokens == count_messages(done.messages, TOKENIZER).tokens <= budget
