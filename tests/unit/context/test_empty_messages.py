"""Empty messages are in the log, but no provider is sent one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views, events, new_id

FORMATS = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic_messages": "anthropic",
    "neutral": None,
}
EMPTY_ANSWERS = {
    "no parts": events.AssistantMessage(finish_reason="stop"),
    "an empty text": events.AssistantMessage.of("", finish_reason="stop"),
    "two empty texts": events.AssistantMessage(
        parts=(events.TextPart(text=""), events.TextPart(text="")), finish_reason="stop"
    ),
    "whitespace": events.AssistantMessage.of(" \n\t", finish_reason="stop"),
    "reasoning alone": events.AssistantMessage(
        parts=(events.ReasoningPart(text="hm"),), finish_reason="length"
    ),
}


def sent(folder: Path, format: str, provider: str | None, *facts: Any) -> list[dict[str, Any]]:
    """Return the messages of a conversation of these events."""
    with EventStore.open(f"sqlite:///{folder}/empty.db") as store:
        done = store.append(new_id(), list(facts), allow_empty=True)
        view = Views(store).context(
            done.conversation_id, format=format, provider=provider, mode=None
        )
        return list(view.messages)


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic_messages"])
@pytest.mark.parametrize("answer", EMPTY_ANSWERS)
def test_an_empty_answer_is_not_sent(tmp_path: Path, answer: str, format: str) -> None:
    """Neither as an empty text nor as null."""
    user = events.UserMessage.text
    found = sent(tmp_path, format, FORMATS[format], user("q"), EMPTY_ANSWERS[answer], user("r"))
    assert all(message["role"] == "user" for message in found)
    assert all(message["content"] for message in found)


@pytest.mark.parametrize("provider", ["vllm", "deepseek"])
def test_an_empty_answer_is_not_sent_to_an_open_model(tmp_path: Path, provider: str) -> None:
    """Templates of open models raise an error for some empty messages."""
    user = events.UserMessage.text
    found = sent(tmp_path, "openai_chat", provider, user("q"), EMPTY_ANSWERS["no parts"], user("r"))
    assert ["user", "user"] == [message["role"] for message in found]


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic_messages"])
@pytest.mark.parametrize("parts", [(), (events.TextPart(text=""),), (events.TextPart(text=" \n"),)])
def test_an_empty_message_of_a_user_is_marked(
    tmp_path: Path, parts: tuple[events.TextPart, ...], format: str
) -> None:
    """What an import brings keeps its place between two answers."""
    empty = events.UserMessage(parts=parts)
    found = sent(tmp_path, format, FORMATS[format], empty, events.AssistantMessage.of("a"))
    assert "[empty message]" in str(found[0]["content"])


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic_messages"])
@pytest.mark.parametrize("output", ["", " \n"])
def test_a_result_without_output_is_told_in_words(tmp_path: Path, output: str, format: str) -> None:
    """No server gets an empty output, which some refuse."""
    call = events.ToolCallRequest(name="run", arguments_text="{}", provider_id="c1")
    answer = events.AssistantMessage(tool_calls=(call,))
    result = events.ToolResult(call_id="2.0", content=output)
    user = events.UserMessage.text
    found = sent(tmp_path, format, FORMATS[format], user("q"), answer, result, user("r"))
    assert 1 == str(found).count("returned no output")


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_a_blank_text_beside_calls_or_parts_is_left_out(tmp_path: Path, format: str) -> None:
    """Anthropic refuses blank text blocks; the other formats follow the same rule."""
    call = events.ToolCallRequest(name="run", arguments_text="{}", provider_id="c1")
    answer = events.AssistantMessage.of(" ", tool_calls=(call,))
    image = events.ImagePart(url="https://example.org/a.png")
    asked = events.UserMessage(parts=(events.TextPart(text=" "), image))
    result = events.ToolResult(call_id="2.0", content="done")
    found = sent(tmp_path, format, FORMATS[format], asked, answer, result)
    assert "' '" not in str(found)
