"""For chat templates that take a system message only as the first, later ones are the user's."""

from __future__ import annotations

import pytest

from eventstore.events import (
    AssistantMessage,
    ImagePart,
    Payload,
    Summary,
    SystemInstruction,
    TextPart,
    UserMessage,
    VersionRange,
)
from projections.context.settings import ContextSettings
from tests.checkers import check_openai_messages
from tests.unit.context.log import Log

NOTES = ContextSettings(system_notes=True)
NOTE = "<system_note>\nCONVERSATION_SUMMARY\nThey met.\n</system_note>"


def summary(first: int, last: int) -> Summary:
    """Return a summary of these versions."""
    return Summary(text="They met.", versions=(VersionRange(first=first, last=last),))


def talk(*latest: Payload) -> list[Payload]:
    """Return a conversation of which the first answer is summarised."""
    said = [SystemInstruction(text="Be kind."), UserMessage.text("one"), AssistantMessage.of("two")]
    return [*said, *latest, summary(3, 3)]


def test_a_summary_stands_in_the_users_message() -> None:
    """Beside what the user said, and told apart from it."""
    view = Log(talk(UserMessage.text("three"))).view(settings=NOTES)
    assert list(view.messages) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": f"one\n\n{NOTE}"},
        {"role": "user", "content": "three"},
    ]


def test_a_note_before_the_users_message_is_part_of_it() -> None:
    """A template that wants turns to alternate gets them."""
    log = Log([AssistantMessage.of("two"), summary(1, 1), UserMessage.text("three")])
    sent = log.view(settings=NOTES).messages
    assert [message["content"] for message in sent] == [f"{NOTE}\n\nthree"]


def test_a_message_with_an_image_keeps_it() -> None:
    """Parts stay parts."""
    seen = UserMessage(parts=(TextPart(text="see"), ImagePart(url="https://x/y.png")))
    sent = Log([AssistantMessage.of("two"), summary(1, 1), seen]).view(settings=NOTES).messages
    assert [part["type"] for part in sent[0]["content"]] == ["text", "text", "image_url"]


@pytest.mark.parametrize(
    ("provider", "roles"), [("vllm", {"user"}), ("openai", {"system", "user"})]
)
def test_a_server_that_fills_in_templates_gets_notes(provider: str, roles: set[str]) -> None:
    """Nobody has to set it there; OpenAI takes system messages anywhere."""
    log = Log([*talk(UserMessage.text("three"))[1:-1], summary(2, 2)])
    assert {message["role"] for message in log.view(provider=provider).messages} == roles


@pytest.mark.parametrize("budget", range(60, 400, 20))
def test_a_digest_within_a_budget_is_a_note(budget: int) -> None:
    """What it adds is counted, and only the first message is the system's."""
    told = [
        message
        for n in range(30)
        for message in (
            UserMessage.text(f"Book flight HAT{n:03} on 2024-05-{n % 28 + 1:02}."),
            AssistantMessage.of(f"Booked as R{n:04}. " + "It is all done. " * 10),
        )
    ]
    log = Log([SystemInstruction(text="Be kind."), *told, UserMessage.text("And now?")])
    view = log.view(settings=NOTES, max_tokens=budget)
    assert view.tokens.tokens <= budget
    assert [m["role"] for m in view.messages].count("system") == 1
    assert check_openai_messages(view.messages) == []
