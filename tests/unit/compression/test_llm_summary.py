"""When a summary is due, of what, and what happens if the model fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from projections.context.compression import (
    Item,
    KeyMessages,
    Level,
    LevelOfDetail,
    LlmSummary,
    Message,
    SummaryRequest,
    summary_due,
)
from projections.context.compression.llm_summary import SUMMARY_PROMPT
from projections.errors import UnknownStrategy
from tests.unit.compression.example import called, item, items, said


def due(history: Sequence[Item], *levels: Level, least: int = 1, most: int = 99_999) -> list[int]:
    """Return the versions of the summary that is due; empty if none is."""
    request = summary_due(history, levels, least_tokens=least, most_tokens=most)
    return [] if request is None else list(request.versions)


def test_the_oldest_that_lost_their_texts_are_summarised() -> None:
    """Also what was lost behind a group that is sent: by default there is always one."""
    history = [item(place) for place in range(1, 6)]

    assert due(history, "dropped", "facts", "full", "dropped", "full") == [1, 2, 4]


def test_what_was_shortened_before_the_last_rounds_is_summarised() -> None:
    """It would leave the request little by little, and no summary would ever be due."""
    history = [item(place, kind="user" if place % 2 else "assistant") for place in range(1, 13)]

    levels: list[Level] = ["shortened"] * 12
    assert due(history, *levels) == [1, 2, 3, 4]


def test_what_is_mandatory_stays_out_and_does_not_end_it() -> None:
    """The first user message stands before most of what is lost."""
    history = [item(1, mandatory="first user message"), item(2)]

    assert due(history, "full", "dropped") == [2]


def test_there_is_none_until_enough_was_lost() -> None:
    """So not every turn has a summary of its own."""
    history = [item(1, 600), item(2, 600)]

    assert due(history, "dropped", "full", least=1_000) == []
    assert due(history, "dropped", "dropped", least=1_000) == [1, 2]


def test_an_earlier_summary_is_taken_in_but_does_not_count() -> None:
    """One summary replaces the other, by the version of its event; and not for its own sake."""
    earlier = item(1, 5_000, kind="summary", messages=({"role": "system", "content": "SUMMARY"},))
    placed = replace(earlier, key=(1, -7))

    assert due([placed, item(9, 900)], "full", "dropped", least=1_000) == []
    assert due([placed, item(9, 1_900)], "full", "dropped", least=1_000) == [7, 9]
    assert due([placed], "dropped") == []


def test_what_exceeds_one_request_waits_for_the_next() -> None:
    """The request is made of shorter forms, and ends where they are too many."""
    history = [
        item(place, 100, shorter=(said(f"short {place}"),), shorter_tokens=40)
        for place in (1, 2, 3)
    ]

    request = summary_due(history, ["dropped"] * 3, least_tokens=1, most_tokens=90)

    assert request is not None
    assert request.indexes == (0, 1)
    assert request.messages[1]["content"] == "assistant: short 1\n\nassistant: short 2"


def test_the_prompt_holds_calls_and_results() -> None:
    """The document's prompt comes first, the material behind it."""
    history = items(*called("find", "found it"))

    request = summary_due(history, ["dropped"], least_tokens=1)

    assert request is not None
    assert request.messages == (
        {"role": "system", "content": SUMMARY_PROMPT},
        {"role": "user", "content": "assistant: calls find {}\n\ntool: found it"},
    )


REQUEST = SummaryRequest((1,), (said("x"),), (0,))


def test_a_written_summary_is_returned() -> None:
    """Without the blanks around it."""
    sent: list[Sequence[Message]] = []

    def summarize(messages: Sequence[Message]) -> str:
        sent.append(messages)
        return " The user wants a refund.\n"

    assert LlmSummary(summarize).write(REQUEST).text == "The user wants a refund."
    assert sent == [REQUEST.messages]


def _raise(messages: Sequence[Message]) -> str:
    raise TimeoutError("no answer in 30 s")


@pytest.mark.parametrize(
    ("strategy", "failure"),
    [
        (LlmSummary(_raise), "TimeoutError: no answer in 30 s"),
        (LlmSummary(lambda messages: " "), "the model answered without a text"),
        (LlmSummary(), "no callable to summarise with"),
    ],
)
def test_a_failure_is_said_in_words(strategy: LlmSummary, failure: str) -> None:
    """Nothing is raised: the base strategy's plan stands."""
    written = strategy.write(REQUEST)

    assert (written.text, written.failure) == ("", failure)


def test_without_a_callable_it_is_its_base_strategy() -> None:
    """The name can be chosen without one: no summary is ever due."""
    history = [item(1, 9_999), item(2)]

    assert LlmSummary().due(history, ["dropped", "full"]) is None
    reductions = list(LlmSummary().reductions(history, ""))
    assert reductions == list(KeyMessages().reductions(history, ""))


@pytest.mark.parametrize(("base", "expected"), [("retrieval", True), ("key_messages", False)])
def test_it_retrieves_if_its_base_does(base: str, expected: bool) -> None:
    """So that relevance is set for the base strategy."""
    assert LlmSummary(base=base).retrieves is expected


def test_it_sends_only_the_newest_input_whole_if_its_base_does() -> None:
    """As its base strategy in all respects, not only in what loses detail first."""
    assert LlmSummary(base=LevelOfDetail(live_only_newest=True)).live_only_newest
    assert not LlmSummary().live_only_newest


def test_a_base_that_does_not_exist_is_refused_when_it_is_named() -> None:
    """It was found out at the first request."""
    with pytest.raises(UnknownStrategy, match="unknown strategy 'key_mesages': choose from"):
        LlmSummary(base="key_mesages")
    with pytest.raises(TypeError, match="is not a strategy"):
        LlmSummary(base=KeyMessages)  # type: ignore[arg-type]
