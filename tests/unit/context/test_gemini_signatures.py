"""Gemini's signatures go back to Google with the calls that they sign, and to nobody else.

Gemini 3 refuses a call that comes back without its signature (Google, "Thought signatures", 2025).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Conversation, Views
from agent_eventstore.transcripts import load, read_transcripts
from eventstore import EventStore
from eventstore.events import AssistantMessage, ToolResult, UserMessage
from projections.providers import parser_for, read_response
from tests.unit.context.log import Log
from tests.unit.context.wires import written
from tests.unit.streams.test_other_providers import GEMINI

Json = dict[str, Any]

HI = UserMessage.text("hi")
SIGNED = {"google": {"thought_signature": "c2ln/+=="}}
CALL: Json = {"id": "x1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SECOND = CALL | {"id": "x2"}
MESSAGE = {"role": "assistant", "content": None, "tool_calls": [CALL | {"extra_content": SIGNED}]}
HEAD = {"id": "r1", "model": "gemini-3-pro", "object": "chat.completion.chunk"}


def delta(said: Json, finish: str | None = None) -> Json:
    """Return a chunk of a chat completion as Gemini's endpoint sends it, without numbers."""
    return HEAD | {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


STREAM = [
    delta({"role": "assistant", "tool_calls": MESSAGE["tool_calls"]}),
    delta({"role": "assistant", "tool_calls": [SECOND]}),
    delta({"role": "assistant"}, "tool_calls"),
]


def streamed(*chunks: Json, provider: str | None = "google") -> AssistantMessage:
    """Return what was recorded of a stream."""
    parser = parser_for(chunks[0], provider=provider)
    for chunk in chunks:
        parser.feed(chunk)
    return parser.message()


def asked(answer: AssistantMessage, provider: str | None) -> Json:
    """Return an answer as it is sent to a provider in the chat format."""
    results = [ToolResult(call_id=f"2.{n}", content="y") for n in range(len(answer.tool_calls))]
    messages = Log([HI, answer, *results]).view(format="openai_chat", provider=provider).messages
    return dict(messages[1])


@pytest.mark.parametrize("provider", ["google", "gemini", "google-vertex"])
def test_a_signed_call_goes_back_to_google(provider: str) -> None:
    """Byte for byte as it came, streamed or whole; the second of parallel calls has none."""
    assert [CALL | {"extra_content": SIGNED}, SECOND] == asked(streamed(*STREAM), provider)[
        "tool_calls"
    ]
    body = {"object": "chat.completion", "choices": [{"message": MESSAGE}]}
    whole = read_response(body, provider="google").message()
    assert MESSAGE == asked(whole, provider)


def test_a_chunk_that_comes_twice_does_not_spoil_a_signature() -> None:
    """The pieces of a field are joined, but a signature is always whole."""
    answer = streamed(STREAM[0], delta({"extra_content": SIGNED}), delta({"extra_content": SIGNED}))
    assert SIGNED == asked(answer, "google")["extra_content"]
    numbered = [call | {"index": 0} for call in STREAM[0]["choices"][0]["delta"]["tool_calls"]]
    again = delta({"tool_calls": numbered})
    assert [CALL | {"extra_content": SIGNED}] == asked(streamed(again, again), "google")[
        "tool_calls"
    ]


def test_a_signed_text_goes_back_to_google() -> None:
    """An answer without calls is signed as a message."""
    answer = streamed(delta({"content": "Hello", "extra_content": SIGNED}), delta({}, "stop"))
    assert {"role": "assistant", "content": "Hello", "extra_content": SIGNED} == asked(
        answer, "google"
    )


@pytest.mark.parametrize("provider", [None, "openai", "anthropic", "openrouter"])
@pytest.mark.parametrize("maker", [None, "google"])
def test_nobody_else_gets_a_signature(provider: str | None, maker: str | None) -> None:
    """Other endpoints refuse a field that they do not know."""
    answer = streamed(*STREAM, delta({"extra_content": SIGNED}), provider=maker)
    assert [CALL, SECOND] == asked(answer, provider)["tool_calls"]
    results = [ToolResult(call_id=f"2.{n}", content="y") for n in range(2)]
    for name in ("openai_chat", "anthropic_messages", "openai_responses"):
        assert "c2ln" not in str(written(name, HI, answer, *results, provider=provider))


def test_a_gateway_gets_back_what_it_sent() -> None:
    """Some name the signature after Vertex."""
    signed = {"vertex": {"thought_signature": "c2ln"}}
    answer = streamed(delta({"tool_calls": [CALL | {"extra_content": signed}]}), provider="gate")
    assert [CALL | {"extra_content": signed}] == asked(answer, "gate")["tool_calls"]


@pytest.mark.parametrize("odd", [5, "x", [], {"google": 5}, {"google": {"thought_signature": 5}}])
def test_a_signature_that_is_none_is_not_sent(odd: Any) -> None:
    """A server can send anything, and the next request would be refused for it."""
    answer = streamed(delta({"tool_calls": [CALL | {"extra_content": odd}], "extra_content": odd}))
    assert {"role": "assistant", "content": None, "tool_calls": [CALL]} == asked(answer, "google")


def test_a_signature_of_geminis_own_api_goes_back() -> None:
    """The same conversation may go on at Gemini's OpenAI-compatible endpoint."""
    answer = streamed(*GEMINI, provider=None)
    (call,) = asked(answer, "gemini")["tool_calls"]
    assert {"google": {"thought_signature": "c2ln"}} == call["extra_content"]


def test_a_signature_survives_the_store(tmp_path: Path) -> None:
    """Recorded or imported, and read from the database."""
    parts = [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "aW1w"}]
    trace = [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": parts}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"contents": trace}), "utf-8")
    with EventStore.open("sqlite://") as store:
        recorded = Conversation.start(store)
        with recorded.turn("hi") as turn:
            with turn.llm_call(model="gemini-3-pro", provider="google") as call:
                for chunk in (STREAM[0], STREAM[2]):
                    call.feed(chunk)
            with turn.tool(call.tool_calls[0]) as tool:
                tool.result("y")
        (imported,) = load(store, read_transcripts(path)).ids
        views = Views(store)
        for conversation_id, signature in ((recorded.id, "c2ln/+=="), (imported, "aW1w")):
            view = views.context(conversation_id, provider="google")
            (message,) = [each for each in view.messages if "tool_calls" in each]
            signed = {"google": {"thought_signature": signature}}
            assert signed == message["tool_calls"][0]["extra_content"]
