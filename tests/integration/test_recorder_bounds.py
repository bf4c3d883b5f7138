"""What has happened, and is larger than an event may be, is kept as far as it can be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent_eventstore.machines import RequestedCall, add_usage
from eventstore import EventStore
from eventstore.errors import InvalidEvent
from eventstore.events import ContentPart, OtherPart, TextPart
from projections import Views
from tests.checkers import check_openai_messages
from tests.integration.recording import Access, Recorder, ask_for_tool, data_of

LONG = "find_" + "x" * 5_000
DEEP = '{"a":' * 200 + "1" + "}" * 200


def _answered(turn: Any, function: dict[str, str], **usage: int) -> tuple[RequestedCall, ...]:
    calls = [{"id": "call_1", "type": "function", "function": function}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    response = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}
    with turn.llm_call(turn.context()) as call:
        call.response(response)
    return tuple(call.tool_calls)


def test_arguments_nested_deeply(recording: Recorder) -> None:
    """They are kept as the model's text; opening such a conversation raised a bare ValueError."""
    with recording.start() as conversation, conversation.turn("go") as turn:
        (wanted,) = _answered(turn, {"name": "search", "arguments": DEEP})
        with turn.tool(wanted) as tool:
            tool.result("found")
    assert (DEEP, None) == (wanted.arguments_text, wanted.arguments)
    assert "nested too deeply" in (wanted.parse_error or "")
    with recording.open(conversation.id) as again:
        messages = again.views.context(again.id).messages
    assert [] == check_openai_messages(messages)


def test_names_and_counts_of_a_model(recording: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    """A name keeps its start and a digest, a count comes to its bound; the rest is as it was."""
    usage = {"prompt_tokens": 2**40, "completion_tokens": 2, "total_tokens": 2**40 + 2}
    with recording.start() as conversation, conversation.turn("go") as turn:
        (wanted,) = _answered(turn, {"name": LONG, "arguments": "{}"}, **usage)
        with turn.tool(wanted) as tool:
            tool.result("found")
    (message,) = data_of(recording.store, conversation, "assistant_message")
    (call,) = data_of(recording.store, conversation, "tool_call")
    (request,) = message.tool_calls
    assert (512, LONG[:400]) == (len(request.name), request.name[:400])
    assert request.name == call.name
    assert (2**31 - 1, 2) == (message.usage.prompt_tokens, message.usage.completion_tokens)
    assert "cut to fit" in caplog.text
    found = Views(recording.store).tool_calls(tool=call.name, conversation_id=conversation.id)
    assert [call.name] == [row.name for row in found]


def test_a_part_nested_deeply(recording: Recorder) -> None:
    """What a tool returns as it came from elsewhere becomes text, and the result is there."""
    parts: list[ContentPart] = [TextPart(text="found"), OtherPart(raw=json.loads(DEEP))]
    with recording.start() as conversation, conversation.turn("go") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.result(parts)
    (result,) = data_of(recording.store, conversation, "tool_result")
    assert (TextPart(text="found"), OtherPart(raw={"$text": DEEP})) == result.content


def test_an_output_of_100_mb(
    recorded_sqlite_url: str, open_recorders: Callable[[str, Access], Recorder]
) -> None:
    """It goes to a blob, whole."""
    recording = open_recorders(recorded_sqlite_url, "sync")
    output = "0123456789" * 10_000_000
    with recording.start() as conversation, conversation.turn("go") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.result(output)
    (result,) = data_of(recording.store, conversation, "tool_result")
    assert (None, len(output)) == (result.content, result.blob.size_bytes)
    assert output.encode() == recording.store.blob(conversation.id, result.blob.digest)


def test_an_output_beyond_the_limit(recording: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start is kept, with a line that says how much is not."""
    monkeypatch.setattr(recording.store, "max_event_bytes", 10_000)
    output = "\U0001f600\x00" * 50_000
    with recording.start() as conversation, conversation.turn("go") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.fail(output)
    (result,) = data_of(recording.store, conversation, "tool_result")
    kept, _, note = result.content.partition("\n")
    assert output.startswith(kept)
    assert 500 < len(kept) < 10_000
    assert f"… {len(output) - len(kept):,} characters more, not kept" in note
    assert output.startswith(result.error)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_beyond_the_limit(
    recording: Recorder, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    """It was the call's answer although it is not in the log, where the call had no end."""
    monkeypatch.setattr(recording.store, "max_event_bytes", 10_000)
    with recording.start() as conversation:
        with conversation.turn("go") as turn:
            with turn.llm_call(turn.context()) as call:
                if streamed:
                    call.delta("too much " * 1_000)
                with pytest.raises(InvalidEvent, match="max_event_bytes"):
                    call.message("too much " * 5_000)
        (error,) = data_of(recording.store, conversation, "llm_error")
        shown = conversation.views.timeline(conversation.id)
    assert [] == data_of(recording.store, conversation, "assistant_message")
    assert call.answer is None
    assert call.error is not None
    assert call.error.message == error.message
    assert (
        "the answer is not in the log: event 0 of the append (assistant_message)" in error.message
    )
    assert ("invalid", "too much") == (error.kind, error.partial_text[:8])
    assert turn.usage == add_usage(None, error.usage)
    assert ["failed"] == [item.status for item in shown if item.kind == "assistant"]
    assert "streaming" not in {item.status for item in shown}


def test_what_a_product_says_is_refused(
    recording: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's words are cut in silence: the caller is told, and nothing of the turn is written."""
    monkeypatch.setattr(recording.store, "max_event_bytes", 10_000)
    with recording.start() as conversation:
        with pytest.raises(InvalidEvent, match="max_event_bytes"), conversation.turn("x" * 20_000):
            pass
        with conversation.turn("a shorter one") as turn:
            ask_for_tool(turn)
    assert 1 == len(data_of(recording.store, conversation, "user_message"))
    assert isinstance(recording.store, EventStore)
