"""Compression of plain messages, without a store."""

from __future__ import annotations

from typing import Any

import pytest

from projections.context.compression import MemorySearch, Retrieval, Thresholds, compress
from projections.errors import BudgetInfeasible
from projections.tokens import count_messages
from tests.unit.compression.example import RETAIL_ORDER, TOKENIZER, called, said, user

TOOL = {"type": "function", "function": {"name": "find", "description": "Finds an order."}}


def a_history(rounds: int) -> list[dict[str, Any]]:
    """Return questions and answers of about the same size."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You help."}]
    for number in range(rounds):
        messages += [user(f"question {number}"), said(f"answer {number}. " + "Some words. " * 20)]
    return [*messages, user("and now?")]


def tokens(messages: list[dict[str, Any]]) -> int:
    """Return what the messages count."""
    return count_messages(messages, TOKENIZER).tokens


def test_what_fits_is_returned_as_it_is() -> None:
    """The very messages, each said to be in full."""
    history = a_history(3)

    done = compress(history, max_tokens=tokens(history))

    assert list(done.messages) == history
    assert done.tokens == tokens(history)
    assert {entry.level for entry in done.entries} == {"full"}


def test_the_account_adds_up() -> None:
    """The sizes of all groups, with the frame and the header, are no less than the request."""
    history = [*a_history(9), *called("find", RETAIL_ORDER), user("well?")]

    done = compress(history, max_tokens=tokens(history) // 2)

    assert sum(entry.count for entry in done.entries) == len(history)
    assert sum(entry.tokens_before for entry in done.entries) == tokens(history) - 3
    assert all(entry.why for entry in done.entries if entry.level != "full")
    assert done.tokens <= sum(entry.tokens_after for entry in done.entries) + 3 + 20


def test_tools_are_part_of_the_budget() -> None:
    """What would just fit does not, once tools are declared."""
    history = a_history(3)

    done = compress(history, max_tokens=tokens(history), tools=[TOOL])

    assert done.tokens <= tokens(history)
    assert {entry.level for entry in done.entries} > {"full"}


def test_up_to_the_trigger_nothing_happens() -> None:
    """Not at the trigger itself either."""
    history = a_history(20)
    budget = tokens(history) * 10 // 8 + 1

    done = compress(history, max_tokens=budget, thresholds=Thresholds(0.8, 0.5))

    assert list(done.messages) == history
    assert done.usage.status == "warning"


def test_above_the_trigger_it_goes_down_to_the_target() -> None:
    """Though it would have fitted."""
    history = a_history(20)
    budget = tokens(history) * 10 // 9

    done = compress(history, max_tokens=budget, strategy="window", thresholds=Thresholds(0.8, 0.5))

    assert budget * 0.4 < done.tokens <= budget * 0.5
    assert done.usage.status == "compressing"


def test_a_large_system_part_does_not_defeat_the_target() -> None:
    """Half of the budget is taken by what must be sent, and there is still room for more."""
    history = [{"role": "system", "content": "rule " * 600}, *a_history(20)[1:]]

    done = compress(history, max_tokens=1_200, thresholds=Thresholds(0.8, 0.5))

    assert done.tokens > 620
    assert done.usage.percent < 80


def test_what_must_be_sent_may_not_fit() -> None:
    """The error names it."""
    with pytest.raises(BudgetInfeasible) as caught:
        compress(a_history(1), max_tokens=10)

    assert "system part (version 1)" in caught.value.mandatory


def test_retrieval_searches_by_itself() -> None:
    """Without a search the words of the items are searched for the latest user message."""
    history = a_history(30)
    history.insert(3, said("The warranty lasts two years."))
    history[-1] = user("how long does the warranty last?")

    done = compress(history, max_tokens=700, strategy=Retrieval(recent=2))

    assert said("The warranty lasts two years.") in done.messages


def test_a_search_can_be_given() -> None:
    """As an object or as what makes one; its keys are the places of first messages."""
    history = a_history(30)
    strategy = Retrieval(recent=2)

    class Third:
        def scores(self, intent: str, limit: int) -> dict[tuple[int, int], float]:
            return {(3, 0): 1.0}

    for search in (Third(), lambda items: Third()):
        done = compress(history, max_tokens=700, strategy=strategy, search=search)
        assert history[2] in done.messages
    assert (
        history[2]
        not in compress(history, max_tokens=700, strategy=strategy, search=MemorySearch).messages
    )


def test_a_digest_that_is_compressed_again_is_no_system_part() -> None:
    """Whoever goes on with compressed messages does not pile up digests."""
    history = [*a_history(9), *called("find", RETAIL_ORDER), *a_history(9)[1:]]
    once = compress(history, max_tokens=900)
    more = [*once.messages, *a_history(9)[1:]]

    again = compress(more, max_tokens=900)

    digests = [
        message
        for message in again.messages
        if str(message.get("content")).startswith("CONVERSATION_DIGEST")
    ]
    assert len(digests) <= 1


@pytest.mark.parametrize("messages", [[], [user("")], [said("")], [{"role": "system"}]])
def test_next_to_nothing_is_returned_as_it_is(messages: list[dict[str, Any]]) -> None:
    """An empty history is a history."""
    assert list(compress(messages, max_tokens=50).messages) == messages
