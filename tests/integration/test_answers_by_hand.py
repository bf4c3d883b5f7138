"""Answers of an SDK that nobody knows, told in words; and what is said of answers untold."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore.errors import BlockNotOpen, UnknownResponse
from eventstore import events as e
from eventstore.errors import InvalidEvent
from tests.integration.recording import Recorder


def recorded(recording: Recorder, conversation: Any, kind: type[e.Payload]) -> list[Any]:
    """Return the payloads of a type."""
    return [r.data for r in recording.store.read(conversation.id) if isinstance(r.data, kind)]


def test_text(recording: Recorder) -> None:
    """A text is an answer; and read, the answer is its text."""
    conversation = recording.start()
    with conversation.turn("hello") as turn, turn.llm_call(provider="cohere", model="m") as call:
        call.message("Hello.")
    [message] = recorded(recording, conversation, e.AssistantMessage)

    assert "Hello." == call.text
    assert (e.TextPart(text="Hello."),) == message.parts
    assert ("cohere", "m") == (message.invocation.provider, message.invocation.model)


def test_deltas(recording: Recorder) -> None:
    """Pieces are durable while they come, and the end of the block makes them whole."""
    conversation = recording.start()
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        for piece in ("Hel", "lo."):
            call.delta(piece, reasoning="hm ")
    [message] = recorded(recording, conversation, e.AssistantMessage)

    chunks = recorded(recording, conversation, e.AssistantChunk)
    assert "Hello." == call.text == "".join(chunk.text for chunk in chunks)
    assert "hm hm " == message.parts[0].text
    assert message.first_token_ms is not None


def test_deltas_and_the_rest(recording: Recorder) -> None:
    """What was streamed is not said again; calls, tokens and reason come at the end."""
    conversation = recording.start()
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        call.delta("Hel")
        call.message(
            text="Hello.",
            tool_calls=[{"name": "weather", "arguments": {"city": "Rome"}, "id": "c1"}],
            usage={"input_tokens": 9, "output_tokens": 3},
            finish_reason="tool_calls",
        )
    [message] = recorded(recording, conversation, e.AssistantMessage)

    assert "Hello." == call.text
    assert ("weather", {"city": "Rome"}, "c1") == (
        call.tool_calls[0].name,
        call.tool_calls[0].arguments,
        call.tool_calls[0].provider_id,
    )
    assert (9, 3, True) == (
        message.usage.prompt_tokens,
        message.usage.completion_tokens,
        message.usage.reported,
    )
    assert "tool_calls" == message.finish_reason


def test_deltas_that_break_off(recording: Recorder) -> None:
    """An exception in the block keeps what had been told."""
    conversation = recording.start()

    def work() -> None:
        with conversation.turn("hello") as turn, turn.llm_call() as call:
            call.delta("Hel")
            raise TimeoutError

    with pytest.raises(TimeoutError):
        work()
    [error] = recorded(recording, conversation, e.LlmError)

    assert ("timeout", "Hel") == (error.kind, error.partial_text)


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {}},
        {"name": "weather", "args": {}, "id": "c1", "type": "tool_call"},
        {"functionCall": {"id": "c1", "name": "weather", "args": {}}},
        {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {}}},
        e.ToolCallRequest(name="weather", arguments_text="{}", provider_id="c1"),
    ],
)
def test_calls_in_any_shape(recording: Recorder, call: Any) -> None:
    """A tool call may be handed on as whichever SDK gave it."""
    conversation = recording.start()
    with conversation.turn("hello") as turn, turn.llm_call() as asked:
        asked.message(tool_calls=[call])
    [made] = asked.tool_calls

    assert ("weather", {}, "c1") == (made.name, made.arguments, made.provider_id)


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"text": 5}, "text"),
        ({"text": "a", "tool_calls": ["weather"]}, "tool call"),
        ({"text": "a", "tool_calls": [{"arguments": {}}]}, "tool call"),
        ({"text": "a", "usage": {"tokens": 5}}, "usage"),
        ({}, "response"),
    ],
)
def test_what_is_no_answer(recording: Recorder, told: dict[str, Any], what: str) -> None:
    """It is refused by name, and nothing empty is recorded."""
    conversation = recording.start()
    with pytest.raises(UnknownResponse) as refused, conversation.turn("hello") as turn:
        with turn.llm_call() as call:
            call.message(**told)

    assert what == refused.value.what
    assert [] == recorded(recording, conversation, e.AssistantMessage)
    assert ["invalid"] == [each.kind for each in recorded(recording, conversation, e.LlmError)]


def test_unknown_response(recording: Recorder) -> None:
    """The product hears of it where it handed it in, and may tell the answer after all."""
    conversation = recording.start()
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        with pytest.raises(UnknownResponse, match="a dict with 'generations'"):
            call.response({"generations": [{"text": "Hello."}]})
        call.message("Hello.")

    assert ["Hello."] == [
        message.parts[0].text for message in recorded(recording, conversation, e.AssistantMessage)
    ]


def test_one_answer_for_a_call(recording: Recorder) -> None:
    """A second answer, and words in the midst of a provider's stream or before it, are refused."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        with turn.llm_call() as call:
            call.message("Hello.")
            with pytest.raises(BlockNotOpen, match="already has an answer"):
                call.message("Hello again.")
        with turn.llm_call() as call:
            call.feed({"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]})
            with pytest.raises(InvalidEvent, match="use either feed"):
                call.delta("Hello.")
        with turn.llm_call() as call:
            call.delta("Hello.")
            with pytest.raises(InvalidEvent, match="was fed pieces of text"):
                call.feed({"choices": [{"delta": {"content": "Hello."}}]})

    assert 3 == len(recorded(recording, conversation, e.AssistantMessage))


@pytest.mark.parametrize("name", ["", None, 7])
def test_call_without_a_name_is_told(recording: Recorder, name: object) -> None:
    """It was told to say 'name' and 'arguments', which it does."""
    conversation = recording.start()
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        with pytest.raises(UnknownResponse, match=f"since its name is {name!r}: pass"):
            call.message(tool_calls=[{"name": name, "arguments": {}}])
        call.message("Hello.")
