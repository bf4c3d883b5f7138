"""Streams of Gemini's APIs, Ollama, Bedrock and Cohere, in the forms that their documents show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventstore.events import ReasoningPart
from projections.providers import parser_for, read_response, says_nothing
from tests.unit.streams.recorded import fed_deltas, text_of

GEMINI: list[dict[str, Any]] = [
    {"candidates": [{"content": {"parts": [{"text": "Let me ", "thought": True}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "It is "}], "role": "model"}, "index": 0}]},
    {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "sunny."},
                        {
                            "functionCall": {"name": "weather", "args": {"city": "Rome"}},
                            "thoughtSignature": "c2ln",
                        },
                    ]
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 9,
            "candidatesTokenCount": 3,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 14,
        },
        "modelVersion": "gemini-2.5-pro",
        "responseId": "r1",
    },
]
OLLAMA: list[dict[str, Any]] = [
    {"model": "qwen3", "message": {"role": "assistant", "thinking": "Let me "}, "done": False},
    {"model": "qwen3", "message": {"role": "assistant", "content": "It is "}, "done": False},
    {
        "model": "qwen3",
        "message": {
            "role": "assistant",
            "content": "sunny.",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}],
        },
        "done": False,
    },
    {
        "model": "qwen3",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 9,
        "eval_count": 5,
    },
]
BEDROCK: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    {
        "contentBlockDelta": {
            "delta": {"reasoningContent": {"text": "Let me "}},
            "contentBlockIndex": 0,
        }
    },
    {"contentBlockDelta": {"delta": {"text": "It is "}, "contentBlockIndex": 1}},
    {"contentBlockDelta": {"delta": {"text": "sunny."}, "contentBlockIndex": 1}},
    {"contentBlockStop": {"contentBlockIndex": 1}},
    {
        "contentBlockStart": {
            "start": {"toolUse": {"toolUseId": "t1", "name": "weather"}},
            "contentBlockIndex": 2,
        }
    },
    {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"city"'}}, "contentBlockIndex": 2}},
    {"contentBlockDelta": {"delta": {"toolUse": {"input": ': "Rome"}'}}, "contentBlockIndex": 2}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": {"inputTokens": 9, "outputTokens": 5, "totalTokens": 14}}},
]


def _cohere(kind: str, index: int, **message: Any) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": message}}


_CITATION = {"start": 0, "end": 5, "text": "sunny", "sources": [{"type": "tool", "id": "t0"}]}
_TOKENS = {"billed_units": {"input_tokens": 4}, "tokens": {"input_tokens": 9, "output_tokens": 5}}
COHERE: list[dict[str, Any]] = [
    {"type": "message-start", "id": "c1", "delta": {"message": {"content": [], "tool_plan": ""}}},
    _cohere("content-delta", 0, content={"thinking": "Let me "}),
    _cohere("content-start", 1, content={"type": "text", "text": ""}),
    _cohere("content-delta", 1, content={"text": "It is "}),
    _cohere("content-delta", 1, content={"text": "sunny."}),
    _cohere("citation-start", 0, citations=_CITATION),
    {"type": "content-end", "index": 1},
    _cohere(
        "tool-call-start",
        0,
        tool_calls={"id": "t1", "type": "function", "function": {"name": "weather"}},
    ),
    _cohere("tool-call-delta", 0, tool_calls={"function": {"arguments": '{"city"'}}),
    _cohere("tool-call-delta", 0, tool_calls={"function": {"arguments": ': "Rome"}'}}),
    {"type": "tool-call-end", "index": 0},
    {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": _TOKENS}},
]


def _step(kind: str, index: int, **told: Any) -> dict[str, Any]:
    return {"event_type": f"step.{kind}", "index": index, **told}


_SPENT = {"total_input_tokens": 9, "total_output_tokens": 3, "total_thought_tokens": 2}
_CALLED = {"type": "function_call", "id": "t1", "name": "weather"}
INTERACTIONS: list[dict[str, Any]] = [
    {"event_type": "interaction.created", "interaction": {"id": "v1", "status": "in_progress"}},
    _step("start", 0, step={"type": "thought", "summary": [{"type": "text", "text": "Let me "}]}),
    _step("delta", 0, delta={"type": "thought_signature", "signature": ""}),
    _step("delta", 0, delta={"type": "thought_signature", "signature": "c2ln"}),
    _step("stop", 0),
    _step("start", 1, step={"type": "model_output"}),
    _step("delta", 1, delta={"type": "text", "text": "It is "}),
    _step("delta", 1, delta={"type": "text", "text": "sunny."}),
    _step("start", 2, step=_CALLED),
    _step("delta", 2, delta={"type": "arguments", "arguments": '{"city": "Rome"}'}),
    {
        "event_type": "interaction.completed",
        "interaction": {"id": "v1", "status": "requires_action", "usage": _SPENT},
    },
]
STREAMS: dict[str, list[dict[str, Any]]] = {
    "gemini_generate_content": GEMINI,
    "ollama_chat": OLLAMA,
    "bedrock_converse": BEDROCK,
    "cohere_chat": COHERE,
    "gemini_interactions": INTERACTIONS,
}


@pytest.mark.parametrize("name", STREAMS)
def test_stream(name: str) -> None:
    """Text, reasoning, call, tokens: and the deltas, put together, are the message."""
    parser, deltas = fed_deltas(STREAMS[name])
    message = parser.message()
    assert message.usage is not None
    assert message.invocation is not None

    assert name == message.invocation.specification
    assert parser.finished
    assert "It is sunny." == text_of(parser) == "".join(delta.text for delta in deltas)
    assert "Let me " == text_of(parser, "reasoning") == "".join(d.reasoning for d in deltas)
    assert [("weather", {"city": "Rome"})] == [(c.name, c.arguments) for c in message.tool_calls]
    assert (9, 5) == (message.usage.prompt_tokens, message.usage.completion_tokens)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("cut", [1, 2])
def test_cut_stream(name: str, cut: int) -> None:
    """A stream that ends too soon is not finished, and keeps what had arrived."""
    parser, _ = fed_deltas(STREAMS[name][:cut])

    assert not parser.finished
    assert "Let me " == parser.partial().reasoning or cut == 1


@pytest.mark.parametrize("name", STREAMS)
def test_any_chunk_tells(name: str) -> None:
    """Whichever chunk comes first, the specification is known."""
    for chunk in STREAMS[name]:
        assert not parser_for(chunk).unknown


def test_a_whole_answer_of_coheres() -> None:
    """Its plan is text, its calls are calls, and citations are kept as they came."""
    call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {
        "role": "assistant",
        "tool_plan": "I look.",
        "tool_calls": [call],
        "citations": [_CITATION],
    }
    body = {"id": "c1", "message": said, "finish_reason": "TOOL_CALL", "usage": _TOKENS}
    parser = read_response(body)
    message = parser.message()

    assert message.invocation is not None
    assert (True, "cohere_chat") == (parser.finished, message.invocation.specification)
    assert ("c1", "TOOL_CALL", "I look.") == (
        message.response_id,
        message.finish_reason,
        text_of(parser),
    )
    assert [("f", {}, "t1")] == [
        (each.name, each.arguments, each.provider_id) for each in message.tool_calls
    ]
    assert {"citations": [_CITATION]} == message.raw


def test_a_failure_that_ends_an_answer_of_coheres() -> None:
    """It is an error of the call, which keeps what had arrived."""
    failed = {"finish_reason": "ERROR", "error": "internal server error"}
    parser, _ = fed_deltas([*COHERE[:4], {"type": "message-end", "delta": failed}])

    assert parser.error is not None
    assert (False, "It is ") == (parser.finished, parser.partial().text)


def test_the_thoughts_of_an_interaction_keep_their_seal() -> None:
    """An empty one, as it is streamed between summaries, is no part of the answer."""
    parts = fed_deltas(INTERACTIONS)[0].message().parts
    assert [("reasoning", "c2ln")] == [
        (part.kind, part.signature) for part in parts if isinstance(part, ReasoningPart)
    ]
    assert ["reasoning", "text"] == [part.kind for part in parts]


def test_a_whole_interaction() -> None:
    """Its steps are what a stream's are; a provider's own tool is kept as it came."""
    search = {"type": "google_search_call", "id": "s1", "arguments": {"queries": ["Rome"]}}
    steps = [
        {"type": "user_input", "content": [{"type": "text", "text": "How warm?"}]},
        {"type": "thought", "signature": "c2ln"},
        search,
        {"type": "model_output", "content": [{"type": "text", "text": "18 degrees."}]},
        {**_CALLED, "arguments": {"city": "Rome"}},
    ]
    body = {"id": "v1", "object": "interaction", "model": "m", "status": "completed"}
    parser = read_response({**body, "steps": steps, "usage": _SPENT})
    message = parser.message()

    assert parser.finished
    assert ["reasoning", "other", "text"] == [part.kind for part in message.parts]
    assert "18 degrees." == text_of(parser)
    assert search == message.parts[1].raw  # type: ignore[union-attr]
    assert [("weather", {"city": "Rome"})] == [(c.name, c.arguments) for c in message.tool_calls]
    assert says_nothing(read_response({**body, "status": "in_progress"}))


def test_every_image_of_an_interaction_is_kept() -> None:
    """The second one of a step took the place of the first."""
    images = [{"type": "image", "data": data} for data in ("AAAA", "BBBB")]
    steps = [{"type": "model_output", "content": images}]
    whole = read_response({"object": "interaction", "status": "completed", "steps": steps})
    deltas = [_step("delta", 0, delta=image) for image in images]
    streamed, _ = fed_deltas([_step("start", 0, step={"type": "model_output"}), *deltas])

    for parser in (whole, streamed):
        assert images == [part.raw for part in parser.message().parts if part.kind == "other"]


@pytest.mark.parametrize("odd", ["Hm.", 7, ["a"]])
def test_a_step_of_an_interaction_that_is_no_object_is_kept(odd: Any) -> None:
    """It was shown as an empty object."""
    whole = read_response({"object": "interaction", "status": "completed", "steps": [odd, None]})
    started, _ = fed_deltas([_step("start", 0, step=odd), _step("start", 1)])
    grown, _ = fed_deltas([_step("delta", 0, delta=odd), _step("delta", 0)])

    for parser in (whole, started, grown):
        assert [odd] == [part.raw for part in parser.message().parts if part.kind == "other"]


def test_an_interaction_that_failed() -> None:
    """What ended it is an error of the call, within a stream and of a whole answer."""
    error = {"message": "try again", "code": "service_unavailable"}
    streamed, _ = fed_deltas([*INTERACTIONS[:2], {"event_type": "error", "error": error}])
    whole = read_response({"object": "interaction", "status": "failed", "steps": []})

    assert streamed.error is not None
    assert whole.error is not None
    assert ("try again", "Let me ") == (streamed.error.message, streamed.partial().reasoning)
    assert not whole.finished


@pytest.mark.parametrize("name", STREAMS)
def test_chunks_in_bytes_of_invoke_model(name: str) -> None:
    """Bedrock's InvokeModel has a model's own chunks as bytes, whoever made the model."""
    wrapped = [{"chunk": {"bytes": json.dumps(each).encode()}} for each in STREAMS[name]]
    parser, _ = fed_deltas(wrapped)

    assert fed_deltas(STREAMS[name])[0].message() == parser.message()
    assert not parser_for(wrapped[0]).unknown


def test_errors_in_the_stream() -> None:
    """An event of Bedrock's that is an exception is an error of the call."""
    parser, _ = fed_deltas([BEDROCK[2], {"throttlingException": {"message": "slowly"}}])
    assert parser.error is not None

    assert ("rate_limit", True, "slowly") == (
        parser.error.kind,
        parser.error.retryable,
        parser.error.message,
    )


def test_why_gemini_blocks_a_prompt_is_kept() -> None:
    """Its ratings and its words were kept of a whole answer, and lost of a streamed one."""
    feedback = {"blockReason": "SAFETY", "safetyRatings": [{"probability": "HIGH"}]}
    message = fed_deltas([{"promptFeedback": feedback}])[0].message()

    assert ("SAFETY", {"promptFeedback": feedback}) == (message.finish_reason, message.raw)


def test_what_gemini_wants_back_is_kept() -> None:
    """The signature of a thought goes back with the call that it led to."""
    [call] = fed_deltas(GEMINI)[0].message().tool_calls

    assert {"thoughtSignature": "c2ln"} == call.raw
