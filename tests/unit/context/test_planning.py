"""What a request holds of a history: how far back it reaches, its steps, limits and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from eventstore.events import (
    AssistantMessage,
    Meta,
    NewEvent,
    Payload,
    Summary,
    SystemInstruction,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.context import ContextSettings, ContextView
from projections.context.compression import Item, KeyMessages, Reduction
from projections.context.limits import chars_of
from projections.context.planning import HORIZON
from projections.errors import BudgetInfeasible, InvalidSettings
from projections.tokens import count_messages, count_tools, tokenizer_for
from tests.unit.context.log import Log

SLIDING = ContextSettings(steps=False)
CALL = ToolCallRequest(name="find", arguments_text="{}")
TOOL = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Finds an order.",
        "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
    },
}


def talk(groups: int, *before: Payload) -> Log:
    """Return a conversation that ends with so many answers of eight tokens."""
    told = (AssistantMessage.of(f"This is answer {n:03}.") for n in range(groups))
    return Log([UserMessage.text("task"), *before, *told])


def versions(view: ContextView) -> list[int]:
    """Return the versions of the groups that are sent whole."""
    return [e.version for e in view.ledger if e.level == "full" and e.version is not None]


def contents(view: ContextView) -> list[Any]:
    """Return the contents of the messages."""
    return [message["content"] for message in view.messages]


class TestTheHorizon:
    """Detail is lowered within the newest 128 groups; the cost does not grow with the rest."""

    def test_what_lies_beyond_is_dropped_where_the_newest_do_not_fit(self) -> None:
        """However small it is; the ledger has one entry for all of it."""
        log = talk(200)
        view = log.view(max_tokens=400, settings=SLIDING)
        looked_at = [entry.version for entry in view.ledger if entry.version is not None]
        assert [1, *range(log.version - HORIZON + 1, log.version + 1)] == looked_at
        assert "older" == view.ledger[0].kind

    def test_what_lies_beyond_is_whole_as_far_as_it_fits_whole(self) -> None:
        """Where the newest 128 fit, no group is shortened, and the oldest are left out."""
        log = talk(200)
        whole = log.view().tokens.tokens
        view = log.view(max_tokens=whole - 200, settings=SLIDING)
        assert {"full", "dropped"} == {entry.level for entry in view.ledger}
        sent = versions(view)
        assert [1, *range(sent[1], log.version + 1)] == sent
        assert HORIZON < len(sent) < 201

    def test_no_more_is_read_than_is_looked_at(self) -> None:
        """A conversation of any length has the same ledger, but for the places."""
        short, long = (
            talk(groups).view(max_tokens=500, settings=SLIDING).ledger for groups in (300, 900)
        )
        assert [entry.tokens_after for entry in short] == [entry.tokens_after for entry in long]

    def test_a_standing_summary_is_sent_from_far_behind(self) -> None:
        """It may stand for all that is older than what is read."""
        summary = Summary(text="It began well.", versions=(VersionRange(first=2, last=3),))
        told = AssistantMessage.of("old")
        log = talk(HORIZON + 50, told, told, summary)
        for settings in (SLIDING, ContextSettings()):
            view = log.view(max_tokens=600, settings=settings)
            assert "CONVERSATION_SUMMARY\nIt began well." in contents(view)

    @pytest.mark.parametrize("answers", [HORIZON + 2, HORIZON + 40])
    def test_the_latest_user_message_is_sent_from_far_behind(self, answers: int) -> None:
        """Once, a budget that reached back to just that message left it out."""
        said = UserMessage.text("Go on with it. " * 40)
        log = talk(answers, AssistantMessage.of("ok"), said)
        whole = log.view().tokens.tokens
        for budget in range(whole - 700, whole + 1, 13):
            view = log.view(max_tokens=budget, settings=SLIDING)
            assert view.messages.count({"role": "user", "content": "Go on with it. " * 40}) == 1


class TestSteps:
    """The history is trimmed at once and far, then left alone."""

    def test_nothing_is_trimmed_up_to_the_trigger(self) -> None:
        """At the trigger exactly, everything is there."""
        log = talk(30)
        tokens = log.view().tokens.tokens
        view = log.view(max_tokens=tokens, settings=ContextSettings(target=0.5))
        assert (True, None) == (view.complete, view.step)

    def test_the_newest_group_is_whole_at_a_step(self) -> None:
        """Nobody has answered to it yet, however much it is of what is left."""
        log = talk(30)
        answer = log.add(AssistantMessage(tool_calls=(CALL,)))
        log.add(ToolResult(call_id=f"{answer}.0", content="It is a long result. " * 15))
        view = log.view(max_tokens=250)
        assert view.step is not None
        assert "It is a long result. " * 15 == view.messages[-1]["content"]
        assert view.complete is False

    def test_the_shares_are_the_settings(self) -> None:
        """A higher target trims less."""
        log = talk(30)
        budget = log.view().tokens.tokens - 1
        high = log.view(max_tokens=budget, settings=ContextSettings(target=0.7))
        usual = log.view(max_tokens=budget, settings=ContextSettings(target=0.5))
        assert high.tokens.tokens > usual.tokens.tokens

    def test_what_must_be_sent_is_refused_as_without_steps(self) -> None:
        """With the same sizes."""
        log = talk(9, UserMessage.text("and this " * 50))
        sizes = []
        for settings in (SLIDING, ContextSettings()):
            with pytest.raises(BudgetInfeasible) as refusal:
                log.view(max_tokens=60, settings=settings)
            sizes.append(refusal.value.mandatory)
        assert sizes[0] == sizes[1]


class TestOtherLimits:
    """Limits on messages and characters end the history at a whole group."""

    def test_messages_are_the_newest(self) -> None:
        """Without steps as many as may be."""
        view = talk(30).view(max_messages=12, settings=SLIDING)
        assert [1, *range(21, 32)] == versions(view)

    def test_with_steps_the_history_begins_at_the_same_place_for_some_messages(self) -> None:
        """A power of two of messages, up to a quarter of the limit."""
        log = talk(30)
        firsts = []
        for _ in range(8):
            firsts.append(versions(log.view(max_messages=64))[1])
            log.add(AssistantMessage.of("more"))
        assert 3 >= len(set(firsts))
        assert sorted(firsts) == firsts

    def test_characters_are_limited(self) -> None:
        """A message counts with the characters of its content."""
        settings = SLIDING.with_(max_chars=4 + 3 * len("This is answer 000."))
        view = talk(30).view(settings=settings)
        assert [1, 29, 30, 31] == versions(view)
        assert view.ledger[0].reason.endswith("over max_chars")

    def test_characters_that_must_be_sent_are_refused_by_name(self) -> None:
        """The error tells which limit is too small."""
        with pytest.raises(BudgetInfeasible, match="max_chars=3"):
            talk(3).view(settings=SLIDING.with_(max_chars=3))


@pytest.mark.parametrize(
    "message",
    [
        {"content": "é\n"},
        {
            "content": None,
            "tool_calls": [{"function": {"arguments": '{"a": "b", "c": 1}'}, "x": None}],
        },
        {"content": [{"type": "text", "text": 'say "é"'}, {"type": "file", "file": {"a": True}}]},
    ],
)
def test_characters_are_those_of_json(message: dict[str, Any]) -> None:
    """What Python prints of calls and parts has other quotes, and is never sent."""
    calls = message.get("tool_calls", [])
    listed = [message["content"] or "", *calls]
    sent = [
        each
        if isinstance(each, str)
        else json.dumps(each, ensure_ascii=False, separators=(",", ":"))
        for each in listed
    ]
    assert sum(map(len, sent)) + 24 * len(calls) == chars_of(message)


class TestSettings:
    """What settings change, the request shows."""

    def test_results_may_be_left_out(self) -> None:
        """The call stays, and its result says that it is not shown; no fact of it is told."""
        log = Log([UserMessage.text("task"), AssistantMessage(tool_calls=(CALL,))])
        log.add(
            ToolResult(call_id="2.0", content=json.dumps({"id": "#W2378156"}), alias="@state/x")
        )
        view = log.view(settings=ContextSettings(include_tool_results=False))
        assert view.messages[-1]["content"].startswith("TOOL_RESULT_NOT_SHOWN\n")
        assert "#W2378156" not in json.dumps(view.messages)
        assert view.tokens == count_messages(view.messages, tokenizer_for("gpt-4o"))

    def test_options_reach_the_strategy(self) -> None:
        """They are checked by the strategy itself."""
        log = talk(40)
        options = {"recent": 1}
        settings = SLIDING.with_(strategy="key_messages", strategy_options=options)
        by_settings = log.view(max_tokens=200, settings=settings)
        given = log.view(max_tokens=200, settings=SLIDING, strategy=KeyMessages(**options))
        assert given.messages == by_settings.messages
        with pytest.raises(InvalidSettings, match="key_messages"):
            log.view(settings=settings.with_(strategy_options={"newest": 1}))

    def test_what_the_response_is_left_is_taken_off(self) -> None:
        """The budget of the prompt is what remains."""
        settings = ContextSettings(max_tokens=900, reserve_for_response=500)
        view = talk(9).view(settings=settings)
        assert view.usage is not None
        assert 400 == view.usage.budget

    def test_declared_tools_are_paid_for(self) -> None:
        """They are counted, take room from the history, and are named in a refusal."""
        log = talk(30)
        tokenizer = tokenizer_for("gpt-4o")
        whole = log.view()
        view = log.view(tools=[TOOL])
        assert (whole.tokens + count_tools([TOOL], tokenizer)).tokens == view.tokens.tokens
        limited = log.view(tools=[TOOL], max_tokens=whole.tokens.tokens, settings=SLIDING)
        assert limited.complete is False
        with pytest.raises(BudgetInfeasible, match="tools and request overhead"):
            log.view(tools=[TOOL], max_tokens=20)

    def test_a_warning_may_come_earlier(self) -> None:
        """From ``warn_prompt_tokens`` on, up to the trigger."""
        log = talk(9)
        tokens = log.view().tokens.tokens
        statuses = [
            view.usage.status
            for limit in (None, tokens, tokens + 1)
            if (
                view := log.view(
                    max_tokens=9_000, settings=ContextSettings(warn_prompt_tokens=limit)
                )
            ).usage
        ]
        assert ["normal", "warning", "normal"] == statuses

    def test_a_request_that_lost_detail_is_compressing(self) -> None:
        """However few tokens are left of it."""
        view = talk(60).view(max_tokens=400)
        assert view.usage is not None
        assert "compressing" == view.usage.status

    def test_another_tokenizer_may_count(self) -> None:
        """The setting goes before the model, whose own it may be or not."""
        log = Log([UserMessage.text("数据库里的事件" * 9)])
        view = log.view(model="claude-sonnet-4", settings=ContextSettings(tokenizer="cl100k_base"))
        assert ("cl100k_base", True) == (view.encoding, view.tokens.exact)
        assert view.tokens == count_messages(view.messages, tokenizer_for("gpt-4"))

    def test_excluded_messages_are_not_shown_from_a_list_either(self) -> None:
        """Unless the source is made to show them."""
        hidden = NewEvent(AssistantMessage.of("collapsed"), meta=Meta(in_context=False))
        log = Log([SystemInstruction(text="rules"), UserMessage.text("task"), hidden])
        assert ["rules", "task"] == contents(log.view())


@pytest.mark.parametrize("place", [99, -1])
@pytest.mark.parametrize("steps", [True, False])
def test_a_strategy_that_names_no_item_is_refused(place: int, steps: bool) -> None:
    """Also where a summary is in effect, whose items a step spares: that raised IndexError."""

    class Astray:
        name, version = "astray", 1

        def reductions(self, items: Sequence[Item], intent: str) -> list[Reduction]:
            return [Reduction(place, "dropped")]

    covered = Summary(text="All is well.", versions=(VersionRange(first=2, last=3),))
    log = talk(40, AssistantMessage.of("One."), AssistantMessage.of("Two."), covered)
    with pytest.raises(ValueError, match="the strategy returned Reduction"):
        log.view(max_tokens=200, strategy=Astray(), settings=ContextSettings(steps=steps))
