"""Recorded streams give the text, the calls and the usage that the providers' SDKs accumulate."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState

from eventstore.events import AssistantMessage, TokenUsage
from projections.providers import StreamParser, read_response
from tests.unit.streams.recorded import NAMES, as_sdk_object, chunks_of, fed, text_of

CHAT = [name for name in NAMES if name.startswith("openai-chat")]
RESPONSES = ["openai-responses-custom-tool", "openai-responses-phase"]
ANTHROPIC = [name for name in NAMES if name.startswith("anthropic")]
FAILED = ["openai-responses-error"]


def _chat(name: str) -> Any:
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks_of(name):
        state.handle_chunk(as_sdk_object(name, chunk))
    return state.current_completion_snapshot


def _response(name: str) -> Any:
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    completed: Any = None
    for chunk in chunks_of(name):
        for event in state.handle_event(as_sdk_object(name, chunk)):
            completed = event.response if event.type == "response.completed" else completed
    return completed


def _anthropic(name: str) -> Any:
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for chunk in chunks_of(name):
        # The SDK's own stream drops pings before it accumulates.
        if chunk["type"] != "ping":
            snapshot = accumulate_event(
                event=as_sdk_object(name, chunk), current_snapshot=snapshot, json_bufs=buffers
            )
    return snapshot


def _calls(parser: StreamParser) -> list[tuple[str | None, str, str]]:
    calls = parser.message().tool_calls
    return [(call.provider_id, call.name, call.arguments_text) for call in calls]


def _usage(parser: StreamParser) -> TokenUsage:
    usage = parser.message().usage
    assert usage is not None
    return usage


def test_every_recorded_stream_is_compared() -> None:
    """No stream in the folder is left out of the comparisons below."""
    assert NAMES == sorted(CHAT + RESPONSES + ANTHROPIC + FAILED)


@pytest.mark.parametrize("name", CHAT)
def test_chat_equals_the_sdk(name: str) -> None:
    """Text, reasoning, calls and finish of a chat completion are those of the SDK."""
    expected, parser = _chat(name), fed(chunks_of(name))
    message = expected.choices[0].message
    assert (message.content or "") == text_of(parser)
    assert getattr(message, "reasoning_content", "") == text_of(parser, "reasoning")
    assert [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []
    ] == _calls(parser)
    assert expected.choices[0].finish_reason == parser.message().finish_reason


@pytest.mark.parametrize("name", CHAT)
def test_chat_usage_equals_the_sdk(name: str) -> None:
    """The counts of a chat completion are those of the SDK, whole in ``raw``."""
    expected, found = _chat(name).usage, _usage(fed(chunks_of(name)))
    assert (expected.prompt_tokens, expected.completion_tokens, expected.total_tokens) == (
        found.prompt_tokens,
        found.completion_tokens,
        found.total_tokens,
    )
    assert expected.to_dict() == found.raw


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_equal_the_sdk(name: str) -> None:
    """Text, calls, usage and the output to send back are those of the SDK's completed response."""
    expected, parser = _response(name), fed(chunks_of(name))
    assert expected.output_text == text_of(parser)
    assert [
        (item.call_id, item.name, item.input)
        for item in expected.output
        if item.type == "custom_tool_call"
    ] == _calls(parser)
    usage = _usage(parser)
    assert (expected.usage.input_tokens, expected.usage.output_tokens) == (
        usage.prompt_tokens,
        usage.completion_tokens,
    )
    assert chunks_of(name)[-1]["response"]["output"] == parser.message().raw["output"]


@pytest.mark.parametrize("name", ANTHROPIC)
def test_anthropic_equals_the_sdk(name: str) -> None:
    """Text, thinking with its signature, calls and finish are those of the SDK."""
    expected, message = _anthropic(name), fed(chunks_of(name)).message()
    said = [
        (block.text, None) if block.type == "text" else (block.thinking, block.signature)
        for block in expected.content
        if block.type in ("text", "thinking")
    ]
    assert said == [
        (getattr(part, "text", ""), getattr(part, "signature", None)) for part in message.parts
    ]
    assert [
        (block.id, block.name, block.input)
        for block in expected.content
        if block.type == "tool_use"
    ] == [(call.provider_id, call.name, call.arguments) for call in message.tool_calls]
    assert expected.stop_reason == message.finish_reason


@pytest.mark.parametrize("name", ANTHROPIC)
def test_anthropic_usage_equals_the_sdk(name: str) -> None:
    """The prompt is the SDK's input with what was read from and written to the cache."""
    expected, found = _anthropic(name).usage, _usage(fed(chunks_of(name)))
    cached = expected.cache_read_input_tokens + expected.cache_creation_input_tokens
    assert (expected.input_tokens + cached, expected.output_tokens) == (
        found.prompt_tokens,
        found.completion_tokens,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_finished_unless_it_failed(name: str) -> None:
    """A recorded stream is complete at its end, and one that failed says why."""
    parser = fed(chunks_of(name))
    assert (name not in FAILED, name in FAILED) == (parser.finished, parser.error is not None)


@pytest.mark.parametrize("name", NAMES)
def test_objects_and_dicts_give_the_same(name: str) -> None:
    """What the SDK yields and what it was made from are the same stream."""
    chunks = chunks_of(name)
    objects = [as_sdk_object(name, chunk) for chunk in chunks]
    assert fed(chunks).message() == fed(objects).message()


@pytest.mark.parametrize(
    ("name", "accumulated"),
    [(name, _chat) for name in CHAT]
    + [(name, _response) for name in RESPONSES]
    + [(name, _anthropic) for name in ANTHROPIC],
)
def test_the_accumulated_response_gives_the_same_message(name: str, accumulated: Any) -> None:
    """A response that was not streamed is read as the stream of the same answer is."""
    streamed = fed(chunks_of(name)).message()
    whole = read_response(accumulated(name)).message()
    for field in ("finish_reason", "tool_calls", "response_id"):
        if name != "openai-chat-azure-router" or field != "response_id":
            assert getattr(streamed, field) == getattr(whole, field)
    assert _said(streamed) == _said(whole)


def _said(message: AssistantMessage) -> list[tuple[str, str]]:
    # The SDK's snapshot does not say whether text or reasoning came first.
    return sorted((part.kind, getattr(part, "text", "")) for part in message.parts)
