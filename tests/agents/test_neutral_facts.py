"""What messages of no provider tell besides: time, metadata, who was asked, the answer's pieces."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agent_eventstore import Conversation, EventStore, Views
from eventstore.events import (
    AssistantMessage,
    Invocation,
    TextPart,
    TokenUsage,
    ToolCallRequest,
    ToolResult,
)


def neutral(store: EventStore, *payloads: Any) -> list[dict[str, Any]]:
    """Return the messages of a conversation with these events behind a user's message."""
    with Conversation.start(store, extra={"request": "r1"}) as conversation:
        with conversation.turn("Hello", extra={"page": 3}):
            pass
        conversation.append(*payloads)
    return list(Views(store).neutral(conversation.id, mode=None))


def test_messages_tell_when_and_with_what_they_were_written(store: EventStore) -> None:
    """In the time zone of the log, with what the product keeps of them."""
    [message] = neutral(store)
    assert datetime.fromisoformat(message["timestamp"]).tzinfo is not None
    assert {"request": "r1", "page": 3} == message["metadata"]
    assert (None, [], None) == tuple(
        message[name] for name in ("invocation", "contents", "execute_error")
    )


def test_answers_tell_who_was_asked_and_keep_their_pieces_apart(store: EventStore) -> None:
    """Though chat messages have one text."""
    asked = Invocation(provider="anthropic", specification="anthropic_messages", model="claude")
    parts = (TextPart(text="One."), TextPart(text="Two."))
    message = neutral(store, AssistantMessage(parts=parts, invocation=asked))[-1]
    assert ["One.", "Two."] == message["contents"]
    assert "anthropic" == message["invocation"]["provider"]


def test_a_batch_of_results_tells_why_all_of_it_failed(store: EventStore) -> None:
    """And nothing where one of them went well."""
    calls = tuple(ToolCallRequest(name="read", arguments_text="{}") for _ in "ab")

    def told(*statuses: Any) -> Any:
        with Conversation.start(store) as conversation:
            asked = conversation.append(AssistantMessage(tool_calls=calls))
            assert asked is not None
            conversation.append(
                *(
                    ToolResult(call_id=f"{asked.version}.{n}", status=status, error="no network")
                    for n, status in enumerate(statuses)
                )
            )
        return Views(store).neutral(conversation.id, mode=None)[-1]["execute_error"]

    assert "no network" == told("failed", "failed")
    assert told("failed", "success") is None


def test_calls_tell_what_was_wrong_or_odd_about_their_arguments(store: EventStore) -> None:
    """With the tokens of the answer; a missing result has nothing of the model's."""
    calls = (
        ToolCallRequest(name="read", arguments_text="{", parse_error="cut off"),
        ToolCallRequest(name="read", arguments_text="{}", arguments={}, parse_warning="twice"),
    )
    usage = TokenUsage(prompt_tokens=9, completion_tokens=3)
    invocation = Invocation(provider="p", model="m")
    said = AssistantMessage(tool_calls=calls, usage=usage, invocation=invocation)
    answer, results = neutral(store, said)[-2:]
    assert [("cut off", None), (None, "twice")] == [
        (call["parse_error"], call["parse_warning"]) for call in answer["calls"]
    ]
    assert (9, 3) == (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
    assert ("tool", None, [], None) == tuple(
        results[name] for name in ("role", "invocation", "contents", "usage")
    )


def test_results_tell_how_long_they_took(store: EventStore) -> None:
    """In milliseconds, each of a batch."""
    calls = (ToolCallRequest(name="read", arguments_text="{}"),)
    with Conversation.start(store) as conversation:
        asked = conversation.append(AssistantMessage(tool_calls=calls))
        assert asked is not None
        call = f"{asked.version}.0"
        conversation.append(ToolResult(call_id=call, content="text", duration_ms=70))
    [result] = Views(store).neutral(conversation.id, mode=None)[-1]["results"]
    assert 70 == result["elapsed_ms"]
