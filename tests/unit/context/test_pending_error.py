"""The error that a "continue" follows is in every request: document 000, section 4.3, "Errors"."""

from __future__ import annotations

import pytest

from eventstore.events import AssistantMessage, LlmError, Summary, UserMessage, VersionRange
from projections.context import ContextSettings, ContextView
from projections.context.compression import strategies
from projections.context.plan_cache import Folded, KeptPlan, PlanMemo, Recent
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
    view = log.view(max_tokens=600, settings=ContextSettings(strategy="sliding_window"))
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
    plans: Recent[KeptPlan] = Recent()
    for number in range(60):
        log.add((UserMessage.text if number == 30 else AssistantMessage.of)(f"Day {number}. " * 30))
        memo = PlanMemo(plans, "log", Folded(log.version, []))
        held = log.view(max_tokens=2_500, memo=memo)
        assert log.view(max_tokens=2_500).messages == held.messages
