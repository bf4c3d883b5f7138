"""What users state once stays in requests with its words, and the newer statement wins."""

from __future__ import annotations

import pytest

from eventstore.events import AssistantMessage, Summary, UserMessage, VersionRange
from projections.context import ContextSettings
from tests.unit.context.log import Log

TALK = "Tides and lanterns have much in common, and comets have little of either. "
FACTS = (
    ("Shellfish makes me really ill.", "What food makes me ill?"),
    ("The wifi password at the cabin is bluefinch.", "What is the wifi password?"),
    ("Wir haben drei Kinder.", "Wie viele Kinder haben wir?"),
    ("Mein Budget für den Urlaub liegt bei 900 Euro.", "Wie hoch ist mein Budget?"),
    ("我希望座位靠窗。", "我希望坐在哪里?"),
    ("我的生日是三月五日。", "我的生日是哪天?"),
)


def talk(turns: int, statements: dict[int, str]) -> Log:
    """Return a log of so many turns, with a user's statements before some of them."""
    log = Log([UserMessage.text("Let us talk."), AssistantMessage.of("Gladly.")])
    for turn in range(turns):
        if turn in statements:
            log.add(UserMessage.text(statements[turn]))
            log.add(AssistantMessage.of("Thank you."))
        log.add(UserMessage.text("What do experts think of it?"))
        log.add(AssistantMessage.of(f"{turn}: {TALK}"))
    return log


def sent(log: Log, max_tokens: int, **options: object) -> str:
    """Return the text of a request."""
    settings = ContextSettings(**options)  # type: ignore[arg-type]
    view = log.view(max_tokens=max_tokens, settings=settings)
    return "\n".join(str(message["content"]) for message in view.messages)


@pytest.mark.parametrize("share", [10, 50, 90])
@pytest.mark.parametrize("asks", [True, False])
def test_planted_facts_stay(share: int, asks: bool) -> None:
    """In three languages, whether the latest message asks for them or not."""
    log = talk(400, {30 + 60 * place: each for place, (each, _) in enumerate(FACTS)})
    log.add(UserMessage.text(FACTS[0][1] if asks else "And what about rivers?"))
    whole = log.view(settings=ContextSettings(max_tokens=None)).tokens.tokens
    text = sent(log, whole * share // 100)
    assert [each for each, _ in FACTS if each not in text] == []


@pytest.mark.parametrize("budget", [1_500, 3_000])
@pytest.mark.parametrize("steps", [True, False])
def test_a_corrected_number_is_never_sent_alone(budget: int, steps: bool) -> None:
    """An invoice number, ten turns later another, and 300 turns: the older one used to stand."""
    log = talk(310, {0: "The invoice number is 4471.", 10: "No, not 4471 but 4717."})
    log.add(UserMessage.text("And what about rivers?"))
    text = sent(log, budget, steps=steps)
    assert "4717" in text
    assert "The invoice number is 4471." not in text


@pytest.mark.parametrize("budget", [1_500, 3_000])
def test_a_summary_with_a_corrected_number_is_corrected(budget: int) -> None:
    """The summary keeps its words, and the correction is sent with it."""
    log = talk(310, {0: "The invoice number is 4471.", 40: "No, not 4471 but 4717."})
    summary = "They talked of tides. The invoice number is 4471."
    log.add(Summary(text=summary, versions=(VersionRange(first=2, last=40),)))
    log.add(UserMessage.text("And what about rivers?"))
    text = sent(log, budget)
    assert summary in text
    assert "4717" in text


@pytest.mark.parametrize("budget", [1_500, 3_000])
def test_the_newer_line_about_one_thing_replaces_the_older(budget: int) -> None:
    """Even if both are in one block of the index."""
    statements = {0: "My budget is 500 dollars.", 10: "My budget is 650 dollars after all."}
    log = talk(310, statements)
    log.add(UserMessage.text("And what about rivers?"))
    text = sent(log, budget)
    assert "650 dollars" in text
    assert "500 dollars" not in text
