"""The measures of benchmarks/context on examples that can be checked by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.context.candidates import Candidate, stateless
from benchmarks.context.measures import (
    Cache,
    Grounding,
    cache,
    grounding,
    of_history,
    of_prefix,
    of_whole,
    shared_tokens,
)
from benchmarks.context.ours import reduced
from benchmarks.context.peers import CLEARED, clear_old_tool_results, first_user_and_newest
from benchmarks.context.transcripts import (
    MODEL,
    Message,
    Transcript,
    broken,
    message_tokens,
    request_tokens,
    said,
    tool_uses,
)
from projections.context.compression import compress, strategies, strategy_of
from projections.errors import BudgetInfeasible

SYSTEM = {"role": "system", "content": "Be brief."}


def user(text: str) -> Message:
    """Return what a user said."""
    return {"role": "user", "content": text}


def calls(*arguments: Any) -> Message:
    """Return an assistant's message that calls a tool with each of these arguments."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": "book", "arguments": json.dumps(each)},
            }
            for number, each in enumerate(arguments)
        ],
    }


def result(text: str) -> Message:
    """Return a tool's result."""
    return {"role": "tool", "tool_call_id": "call_0", "content": text}


BOOKING = Transcript(
    0,
    (
        SYSTEM,
        user("Flight HAT170 for sara_lee, please."),
        calls({"flight": "HAT170"}),
        result("HAT170 leaves at 10:00."),
        calls({"flight": "HAT170", "who": ["sara_lee", "nobody"], "at": "NYC"}),
        result("done"),
    ),
)


def same(name: str = "same") -> Candidate:
    """Return the candidate that sends everything."""
    return stateless(name, lambda messages, budget: list(messages))


def newest(count: int) -> Candidate:
    """Return the candidate that sends the newest messages only."""
    return stateless("newest", lambda messages, budget: list(messages[-count:]))


class TestToolUses:
    """Which values a context is asked for."""

    def test_values_stand_in_the_prefix_and_are_long_enough(self) -> None:
        """Short strings, and those that the prefix does not hold, are not asked for."""
        uses = list(tool_uses(BOOKING, least_tokens=0))
        assert [("HAT170",), ("HAT170", "sara_lee")] == [use.values for use in uses]
        assert [2, 4] == [use.place for use in uses]

    def test_short_prefixes_are_left_out(self) -> None:
        """Only prefixes of enough tokens count."""
        least = request_tokens(BOOKING.messages[:4])
        assert [4] == [use.place for use in tool_uses(BOOKING, least)]

    def test_arguments_of_earlier_calls_count_as_said(self) -> None:
        """What only a call named is part of the prefix's text."""
        assert "HAT170" in said([calls({"flight": "HAT170"})])

    def test_nothing_but_what_a_model_reads_counts_as_said(self) -> None:
        """Ids and roles are not text."""
        assert "yes" == said([result("yes")])


class TestGrounding:
    """Values that are still there."""

    def test_the_whole_prefix_keeps_everything(self) -> None:
        """At a budget of the whole prefix nothing is lost."""
        found = grounding(tool_uses(BOOKING, 0), same(), 1.0)
        assert Grounding(calls=2, values=3, kept=3, whole=2) == found
        assert (1.0, 1.0) == (found.values_share, found.calls_share)

    def test_what_was_cut_off_is_lost(self) -> None:
        """Of the second call, the result names the flight, and nothing the passenger."""
        found = grounding(tool_uses(BOOKING, 0), newest(2), 1.0)
        assert Grounding(calls=2, values=3, kept=2, whole=1) == found

    def test_a_context_over_its_budget_loses_everything(self) -> None:
        """It counts as over, and its values as lost, though they stand there."""
        found = grounding(tool_uses(BOOKING, 0), same(), 0.5)
        assert Grounding(calls=2, values=3, over=2) == found
        assert (0.0, 0.0) == (found.values_share, found.calls_share)

    def test_a_refused_context_loses_everything(self) -> None:
        """It counts as infeasible, and its values as lost."""

        def refuse(messages: Sequence[Message], budget: int) -> list[Message]:
            raise BudgetInfeasible(budget, {"all": 1})

        found = grounding(tool_uses(BOOKING, 0), stateless("none", refuse), 1.0)
        assert Grounding(calls=2, values=3, infeasible=2) == found

    def test_half_a_tool_call_is_seen(self) -> None:
        """A result without its call is counted."""
        assert 1 == grounding(tool_uses(BOOKING, 0), newest(1), 1.0).broken


class TestBudgets:
    """What a share is a share of."""

    def test_a_share_of_the_history_leaves_the_system_message_apart(self) -> None:
        """Half of the history and all of the rules are more than half of both."""
        rules = Transcript(
            0, ({"role": "system", "content": "Be brief. " * 50}, user("a"), user("b"))
        )
        front, whole = request_tokens(rules.messages[:1]), request_tokens(rules.messages)
        assert front + (whole - front) // 2 == of_history(rules, 2, 0.5)
        assert whole // 2 == of_whole(rules, 2, 0.5)
        assert request_tokens(rules.messages[:2]) // 2 == of_prefix(rules, 2, 0.5)


class TestBroken:
    """Calls and results go together."""

    def test_whole_groups_are_not_broken(self) -> None:
        """Two calls with two results are whole."""
        assert not broken([SYSTEM, calls({}, {}), result("a"), result("b"), user("c")])

    def test_a_missing_result_is_broken(self) -> None:
        """At the end as well as in between."""
        assert broken([calls({}, {}), result("a")])
        assert broken([calls({}), user("a")])

    def test_a_result_too_many_is_broken(self) -> None:
        """A second result of one call has no call."""
        assert broken([calls({}), result("a"), result("b")])


class TestCache:
    """What prompts share with the prompt before."""

    def test_a_growing_history_shares_all_but_what_is_new(self) -> None:
        """The first prompt shares nothing, the second the whole of the first."""
        found = cache([BOOKING], same(), 1.0)
        first, second = BOOKING.messages[:2], BOOKING.messages[:4]
        expected = Cache(
            calls=2,
            tokens=request_tokens(first) + request_tokens(second),
            shared=sum(map(message_tokens, first)),
        )
        assert expected == found

    def test_a_sliding_window_shares_nothing(self) -> None:
        """The same message at another place is not the same prefix."""
        assert 0.0 == cache([BOOKING], newest(2), 1.0).share

    def test_a_changed_message_ends_the_prefix(self) -> None:
        """What follows it is equal in vain."""
        before = [SYSTEM, user("a"), user("b")]
        assert message_tokens(SYSTEM) == shared_tokens(before, [SYSTEM, user("x"), user("b")])

    def test_a_prompt_over_its_budget_is_none(self) -> None:
        """It is counted apart, and the next prompt shares nothing with it."""
        budget = request_tokens(BOOKING.messages[:2]) / request_tokens(BOOKING.messages)
        found = cache([BOOKING], same(), budget + 0.01)
        assert (1, 1, 0) == (found.calls, found.over, found.shared)

    def test_under_pressure_the_system_message_does_not_count(self) -> None:
        """Where the history is over the budget, only what follows the system message is seen."""
        told = user("first")
        history = (SYSTEM, told, user("one " * 50), calls({}), result("1"), calls({}), result("2"))
        stays = stateless("stays", lambda messages, budget: [SYSTEM, told, *messages[3:5]])
        found = cache([Transcript(0, history)], stays, 0.5)
        assert (2, message_tokens(told)) == (found.pressed, found.pressed_shared)
        assert message_tokens(SYSTEM) + message_tokens(told) == found.shared
        assert found.pressed_tokens / found.pressed_budget == found.fill

    def test_what_a_cache_reads_costs_a_tenth(self) -> None:
        """What a prompt shares with the one before is paid at a tenth of its price."""
        found = Cache(calls=2, tokens=300, shared=100)
        assert 210.0 == found.cost


class TestPeers:
    """What we compare with does what it is known for."""

    def test_old_results_are_cleared_but_three(self) -> None:
        """The oldest is replaced, and only over the budget."""
        history = [message for text in "abcd" for message in (calls({}), result(text))]
        cleared = clear_old_tool_results(history, 1)
        assert [CLEARED, "b", "c", "d"] == [each["content"] for each in cleared[1::2]]
        assert history == clear_old_tool_results(history, request_tokens(history))

    def test_the_window_keeps_whole_groups(self) -> None:
        """System and first user message stay; a group that does not fit ends the window."""
        history = [SYSTEM, user("a"), user("b"), calls({}), result("c" * 99), user("d")]
        budget = request_tokens([SYSTEM, user("a"), user("d")]) + message_tokens(result("c" * 99))
        assert [SYSTEM, user("a"), user("d")] == first_user_and_newest(history, budget)


class TestStrategiesAlone:
    """A strategy without a store."""

    TALK = user("I am sara_lee_1234. " + "Well, you know how it is with flights. " * 20)
    HISTORY = (SYSTEM, user("a"), TALK, user("b"))
    BUDGET = request_tokens([SYSTEM, user("a"), user("b")]) + 40

    def test_the_digest_is_part_of_what_is_measured(self) -> None:
        """A value of which only the digest is left still counts, and the tokens of the digest."""
        sent = reduced(self.HISTORY, self.BUDGET, strategy_of("level_of_detail"))
        assert request_tokens(sent) <= self.BUDGET
        assert "sara_lee_1234" in said(sent)
        assert self.TALK not in sent

    @pytest.mark.parametrize("name", strategies())
    def test_it_answers_as_compress_does(self, name: str) -> None:
        """Making the items only once changes nothing."""
        done = compress(self.HISTORY, max_tokens=self.BUDGET, strategy=name, model=MODEL)
        assert list(done.messages) == reduced(self.HISTORY, self.BUDGET, strategy_of(name))
