"""The error that a "continue" follows is in every request: document 000, section 4.3, "Errors"."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventstore.events import (
    AssistantMessage,
    LlmError,
    Summary,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.context import ContextSettings, ContextView
from projections.context.compression import strategies
from projections.context.row_cache import CachedPlan, Folded, PlanMemo, Recent
from projections.errors import BudgetInfeasible
from tests.unit.context.log import Log

PARTIAL = "The chapter goes on and on. " * 200  # 5,600 characters
END = "and this is where it broke off"


def broken(*after: str) -> Log:
    """Return a conversation whose answer broke off, with what the user said after it."""
    error = LlmError(llm_call_id="a", kind="timeout", message="late", partial_text=PARTIAL + END)
    told = [AssistantMessage.of(f"It was so on day {n}. " * 30) for n in range(20)]
    said = [UserMessage.text(text) for text in after]
    return Log([UserMessage.text("Write a chapter."), *told, UserMessage.text("On."), error, *said])


def sent(view: ContextView) -> list[str]:
    """Return the errors that are sent."""
    texts = [str(message["content"]) for message in view.messages]
    return [text for text in texts if "LLM_ERROR" in text]


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("strategy", strategies())
def test_its_end_is_sent_however_small_the_budget(strategy: str, steps: bool) -> None:
    """Once, every strategy dropped it, and the model was told to continue nothing."""
    settings = ContextSettings(strategy=strategy, steps=steps)
    view = broken("continue").view(max_tokens=600, settings=settings)
    [error] = sent(view)
    assert END in error
    assert error.index(END) < error.index("LLM_ERROR\n- kind: timeout")
    assert len(error) < 800
    [entry] = [entry for entry in view.ledger if entry.kind == "error"]
    assert "shortened" == entry.level
    assert entry.reason.startswith("mandatory: error before the latest user message")


def test_it_is_whole_where_there_is_room() -> None:
    """Shortened is only what has to be."""
    [error] = sent(broken("continue").view(max_tokens=20_000))
    assert PARTIAL in error


def test_it_is_sent_before_the_user_says_anything() -> None:
    """A loop that asks again by itself goes on from it too."""
    assert 1 == len(sent(broken().view(max_tokens=600)))


def test_it_stays_while_the_turn_goes_on() -> None:
    """However many messages the answer to "continue" takes."""
    log = broken("continue")
    for number in range(200):
        log.add(AssistantMessage.of(f"It was so on day {number}. " * 9))
    for steps in (True, False):
        assert 1 == len(sent(log.view(max_tokens=900, settings=ContextSettings(steps=steps))))


def test_after_another_user_message_it_is_one_message_of_many() -> None:
    """It is the latest user message but one that counts."""
    log = broken("continue")
    log.add(AssistantMessage.of("There is no more."))
    log.add(UserMessage.text("And now?"))
    view = log.view(max_tokens=600, settings=ContextSettings(strategy="window"))
    assert [] == [entry.reason for entry in view.ledger if "error before" in entry.reason]


def test_what_a_summary_stands_for_is_not_sent() -> None:
    """The summary tells it."""
    log = broken("continue")
    log.add(Summary(text="It broke off.", versions=(VersionRange(first=23, last=23),)))
    assert [] == sent(log.view(max_tokens=600))


def test_characters_are_paid_for() -> None:
    """It is shortened if it would take more than half of what is left, and named if it cannot."""
    log = broken("continue")
    whole = log.view(settings=ContextSettings(max_chars=20_000))
    short = log.view(settings=ContextSettings(max_chars=3_000))
    assert [True, False] == [PARTIAL in sent(view)[0] for view in (whole, short)]
    with pytest.raises(BudgetInfeasible, match="error before the latest user message"):
        log.view(settings=ContextSettings(max_chars=300))


def test_a_plan_of_memory_is_the_same() -> None:
    """What a step came to does not depend on whether the error still must be sent."""
    log = broken("continue")
    plans: Recent[CachedPlan] = Recent()
    for number in range(60):
        log.add((UserMessage.text if number == 30 else AssistantMessage.of)(f"Day {number}. " * 30))
        memo = PlanMemo(plans, "log", Folded(log.version, []))
        held = log.view(max_tokens=2_500, memo=memo)
        assert log.view(max_tokens=2_500).messages == held.messages


PROVIDER = "Error code: 500 - {'type': 'server_error'}"
FORMATS = ("openai_chat", "anthropic_messages", "openai_responses")


def failed(partial: str = "") -> LlmError:
    """Return a call that failed with a provider's error."""
    return LlmError(llm_call_id="a", kind="provider", message=PROVIDER, partial_text=partial)


def prompt(log: Log, **options: Any) -> str:
    """Return the whole prompt as JSON."""
    return json.dumps(log.view(**options).prompt, ensure_ascii=False)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("budget", [None, 2_000])
def test_the_providers_words_leave_once_nothing_continues_from_them(
    format: str, budget: int | None
) -> None:
    """Once, every later prompt said that the assistant had answered with an error."""
    log = Log([UserMessage.text("Add 2 and 2."), failed(), UserMessage.text("continue")])
    assert PROVIDER[:15] in prompt(log, format=format, max_tokens=budget)
    log.add(AssistantMessage.of("It is 4."))
    log.add(UserMessage.text("And 3 and 3?"))
    later = prompt(log, format=format, max_tokens=budget)
    assert [] == [each for each in ("LLM_ERROR", "Error code", "500") if each in later]
    assert "Add 2 and 2." in later
    assert "It is 4." in later


@pytest.mark.parametrize("format", FORMATS)
def test_a_text_that_the_user_saw_stays_in_words(format: str) -> None:
    """That it broke off is the only thing left of the error."""
    log = Log([UserMessage.text("Tell."), failed("There was a wolf"), UserMessage.text("Why?")])
    assert "LLM_ERROR" in prompt(log, format=format)
    log.add(AssistantMessage.of("He was hungry."))
    log.add(UserMessage.text("And then?"))
    later = prompt(log, format=format)
    assert "There was a wolf\\n\\nANSWER_BROKEN_OFF" in later
    assert "LLM_ERROR" not in later
    assert "Error code" not in later


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_without_a_link_to_the_failure_settles_it_too(format: str) -> None:
    """A loop that just calls again links nothing; its prompts named the error for two turns."""
    log = Log(
        [UserMessage.text("Add."), failed(), AssistantMessage.of("4."), UserMessage.text("?")]
    )
    assert "LLM_ERROR" not in prompt(log, format=format)


@pytest.mark.parametrize("format", FORMATS)
def test_only_the_newest_of_several_failures_is_sent(format: str) -> None:
    """Three attempts that failed alike say no more than one."""
    log = Log([UserMessage.text("Add."), failed(), failed(), failed(), UserMessage.text("go on")])
    assert 1 == prompt(log, format=format).count("LLM_ERROR")


@pytest.mark.parametrize("format", FORMATS)
def test_failed_turns_can_be_left_out(format: str) -> None:
    """The question, the calls and the failure; the task and the latest message are always sent."""
    call = AssistantMessage(tool_calls=(ToolCallRequest(name="look", arguments_text="{}"),))
    turn = [UserMessage.text("The failed question."), call]
    log = Log([UserMessage.text("The task."), AssistantMessage.of("Yes."), *turn])
    log.add(ToolResult(call_id="4.0", content="what it saw"))
    log.add(failed("half a word"))
    log.add(UserMessage.text("The latest question."))
    without = ContextSettings(include_failed_turns=False)
    told = prompt(log, format=format, settings=without)
    gone = ("The failed question.", "what it saw", "half a word", "LLM_ERROR")
    assert [] == [each for each in gone if each in told]
    assert [] == [
        each for each in ("The task.", "Yes.", "The latest question.") if each not in told
    ]
    assert [] == [each for each in gone if each not in prompt(log, format=format)]


def test_a_turn_that_went_on_after_a_failure_is_not_left_out() -> None:
    """Only its failure is."""
    log = Log([UserMessage.text("One."), AssistantMessage.of("1."), UserMessage.text("Two.")])
    log.add(failed())
    log.add(AssistantMessage.of("2."))
    log.add(UserMessage.text("Three."))
    log.add(failed())
    view = log.view(settings=ContextSettings(include_failed_turns=False))
    assert ["One.", "1.", "Two.", "2.", "Three."] == [each["content"] for each in view.messages]
