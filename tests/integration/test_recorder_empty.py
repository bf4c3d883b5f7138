"""Empty inputs and answers: the recorder refuses what the store refuses, and loses no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_eventstore.errors import UnknownResponse
from eventstore.errors import InvalidEvent
from eventstore.events import AssistantMessage, Sections, UserMessage
from tests.integration.recording import Recorder, data_of

INPUTS: dict[str, Any] = {
    "text": "",
    "no parts": [],
    "an empty part": [{"type": "text", "text": ""}],
    "message": UserMessage(parts=()),
    "no section": UserMessage(parts=(), sections=Sections(live=())),
}


@pytest.mark.parametrize("said", INPUTS.values(), ids=INPUTS)
def test_an_empty_input_begins_no_turn(recording: Recorder, said: Any) -> None:
    """It raises at once, and uses up no turn number."""
    with recording.start() as conversation:
        with pytest.raises(InvalidEvent, match="is empty"):
            conversation.turn(said)
        with conversation.turn("hi") as turn:
            assert 1 == turn.number
    assert 1 == len(data_of(recording.store, conversation, "turn_start"))


def test_an_empty_message_cannot_be_appended(recording: Recorder) -> None:
    """`Conversation.append` has the same rule."""
    with recording.start() as conversation:
        for payload in (UserMessage.text(""), AssistantMessage()):
            with pytest.raises(InvalidEvent, match="is empty"):
                conversation.append(payload)


def test_an_answer_of_nothing_is_no_answer(recording: Recorder) -> None:
    """It is refused as `EventStore.append` refuses it; the call ends as an error."""
    with recording.start() as conversation, conversation.turn("q") as turn:
        with turn.llm_call(provider="x") as call:
            with pytest.raises(UnknownResponse):
                call.message("")
    [error] = data_of(recording.store, conversation, "llm_error")
    assert "invalid" == error.kind
    assert [] == data_of(recording.store, conversation, "assistant_message")


def test_an_empty_stream_that_ended_in_order_is_kept(recording: Recorder) -> None:
    """What the server sent is in the log, as an error: it was stored as an empty answer."""
    with recording.start() as conversation, conversation.turn("q") as turn:
        with turn.llm_call(provider="openai", model="m") as call:
            delta = {"role": "assistant", "content": ""}
            chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
            call.feed(f"data: {json.dumps(chunk)}")
            call.feed("data: [DONE]")
    [error] = data_of(recording.store, conversation, "llm_error")
    assert ("invalid", True) == (error.kind, "empty" in error.message)
    assert [] == data_of(recording.store, conversation, "assistant_message")


def test_an_empty_answer_with_a_finish_reason_is_an_answer(recording: Recorder) -> None:
    """A model may have nothing to say; its reason and its tokens are recorded."""
    response = {
        "id": "c1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": ""},
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3},
    }
    with recording.start() as conversation, conversation.turn("q") as turn:
        with turn.llm_call(provider="openai", model="m") as call:
            call.response(response)
    [answer] = data_of(recording.store, conversation, "assistant_message")
    assert ("stop", 3) == (answer.finish_reason, answer.usage.prompt_tokens)
