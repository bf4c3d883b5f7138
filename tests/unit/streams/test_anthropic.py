"""Events of Anthropic's Messages beyond those in the recorded streams."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import OtherPart, ReasoningPart, TextPart
from projections.providers import Delta, read_response
from tests.unit.streams.recorded import fed, fed_deltas, text_of

START = {
    "type": "message_start",
    "message": {"id": "m", "model": "claude", "usage": {"input_tokens": 3, "output_tokens": 1}},
}
STOP = {"type": "message_stop"}


def start(index: int, **block: Any) -> dict[str, Any]:
    """Return the event that opens a block."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    """Return an event that adds to a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    """Return the event that closes a block."""
    return {"type": "content_block_stop", "index": index}


def test_a_tool_without_arguments_gets_an_empty_object() -> None:
    """The empty object is streamed when the block closes, so deltas and message agree."""
    deltas = fed_deltas([START, start(0, type="tool_use", id="t", name="f", input={}), stop(0)])[1]
    assert [["", ""], ["{}"]] == [
        [piece.arguments for piece in delta.tool_calls] + [""] * (not delta.tool_calls[0].arguments)
        for delta in deltas[1:]
    ]


def test_input_that_comes_whole_is_kept() -> None:
    """Compatible servers send the input with the block, and no pieces."""
    parser = fed(
        [START, start(0, type="tool_use", id="t", name="f", input={"a": 1}), stop(0), STOP]
    )
    assert {"a": 1} == parser.message().tool_calls[0].arguments


def test_calls_after_text_are_numbered_among_themselves() -> None:
    """A call's index is its place among the calls, whatever the number of its block."""
    chunks = [
        START,
        start(0, type="text", text="I look"),
        start(1, type="tool_use", id="t", name="f", input={}),
        grow(1, "input_json_delta", partial_json='{"a":'),
        start(2, type="tool_use", id="u", name="g", input={}),
        grow(2, "input_json_delta", partial_json='{"b":2}'),
        grow(1, "input_json_delta", partial_json="1}"),
    ]
    parser, deltas = fed_deltas(chunks)
    assert [0, 0, 1, 1, 0] == [piece.index for delta in deltas for piece in delta.tool_calls]
    assert [{"a": 1}, {"b": 2}] == [call.arguments for call in parser.message().tool_calls]


def test_redacted_thinking_is_kept_to_be_sent_back() -> None:
    """It has no text, but the next request must hold it unchanged."""
    block = {"type": "redacted_thinking", "data": "xyz"}
    message = fed([START, start(0, **block), stop(0), STOP]).message()
    assert (ReasoningPart(text="", raw=block),) == message.parts


def test_thinking_that_is_not_shown_keeps_its_signature() -> None:
    """A thinking block may have nothing but its signature."""
    chunks = [START, start(0, type="thinking", thinking="", signature="")]
    chunks += [grow(0, "signature_delta", signature="s"), stop(0), STOP]
    message = fed(chunks).message()
    assert (ReasoningPart(text="", signature="s"),) == message.parts
    assert message.raw is None


def test_server_tools_are_kept_as_they_came() -> None:
    """What Anthropic runs itself is not a call of ours, but goes back with the next request."""
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]}
    chunks = [
        START,
        start(0, type="server_tool_use", id="s", name="web_search", input={}),
        grow(0, "input_json_delta", partial_json='{"query": "x"}'),
        stop(0),
        start(1, **result),
        stop(1),
        start(2, type="text", text=""),
        grow(2, "citations_delta", citation={"url": "u"}),
        grow(2, "text_delta", text="found"),
        stop(2),
        STOP,
    ]
    message = fed(chunks).message()
    used = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    text = {"type": "text", "text": "found", "citations": [{"url": "u"}]}
    assert (OtherPart(raw=used), OtherPart(raw=result), TextPart(text="found")) == message.parts
    assert ((), {"content": [used, result, text]}) == (message.tool_calls, message.raw)


def test_what_parts_can_say_is_not_kept_twice() -> None:
    """Thinking, text and a call in their usual order need no copy of the blocks."""
    chunks = [START, start(0, type="thinking", thinking="so", signature="s")]
    chunks += [start(1, type="text", text="yes"), start(2, type="tool_use", id="t", name="f")]
    assert fed([*chunks, STOP]).message().raw is None


def test_counts_that_a_later_event_leaves_out_still_hold() -> None:
    """The counts are totals: the last one is right, and one left out stands."""
    first = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}
    opening = {"type": "message_start", "message": {"usage": first | {"output_tokens": 1}}}
    ending = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}}
    usage = fed([opening, {**ending, "usage": {"output_tokens": 4}}, ending]).message().usage
    assert usage is not None
    assert (48, 9) == (usage.prompt_tokens, usage.completion_tokens)
    assert (40, 5) == (usage.cached_prompt_tokens, usage.cache_write_tokens)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", ("provider", True)),
        ("api_error", ("provider", True)),
        ("rate_limit_error", ("rate_limit", True)),
        ("timeout_error", ("timeout", True)),
        ("invalid_request_error", ("invalid", False)),
        ("authentication_error", ("invalid", False)),
        ("billing_error", ("invalid", False)),
        ("something_new", ("provider", True)),
    ],
)
def test_an_error_in_the_stream_is_told(kind: str, expected: tuple[Any, ...]) -> None:
    """An error ends the answer without completing it."""
    error = {"type": "error", "error": {"type": kind, "message": "no"}}
    parser = fed([START, start(0, type="text", text="half"), error])
    assert parser.error is not None
    assert (*expected, "no") == (parser.error.kind, parser.error.retryable, parser.error.message)
    assert (False, "half") == (parser.finished, parser.partial().text)


def test_an_unknown_event_is_kept() -> None:
    """What is yet to come is no reason to fail."""
    event = {"type": "content_block_surprise", "index": 0}
    assert [Delta(), Delta(raw=(event,))] == fed_deltas([START, event])[1]


def test_events_that_the_sdk_derives_are_not_counted_twice() -> None:
    """The SDK's ``stream()`` yields a text event beside the provider's own."""
    chunks = [START, start(0, type="text", text=""), grow(0, "text_delta", text="hi")]
    assert "hi" == text_of(fed([*chunks, {"type": "text", "text": "hi", "snapshot": "hi"}]))


def test_a_stop_reason_completes_the_message() -> None:
    """A proxy may leave out the last event."""
    ending = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}
    parser = fed([START, start(0, type="text", text="yes"), ending])
    assert (True, "end_turn") == (parser.finished, parser.message().finish_reason)


def test_a_whole_message_is_read() -> None:
    """A message that was not streamed is the stream of the same blocks."""
    content = [{"type": "text", "text": "I look"}, {"type": "tool_use", "id": "t", "name": "f"}]
    body = {"type": "message", "id": "m", "model": "claude", "content": content}
    message = read_response(
        body | {"stop_reason": "tool_use", "usage": {"output_tokens": 4}}
    ).message()
    assert (("I look",), "{}") == (
        tuple(part.text for part in message.parts if isinstance(part, TextPart)),
        message.tool_calls[0].arguments_text,
    )
    assert ("tool_use", "m") == (message.finish_reason, message.response_id)
