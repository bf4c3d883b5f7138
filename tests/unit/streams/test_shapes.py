"""Whatever shape an answer has: it is recorded whole, or it is refused; it is never empty."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.errors import UnknownResponse
from agent_eventstore.machines.call_script import CallScript, UnknownChunk
from agent_eventstore.requests import digest_of
from eventstore.events import AssistantMessage, LlmError, Meta, TextPart

CALL = {"name": "weather", "arguments": {"city": "Rome"}}


def openai_chat(said: str) -> dict[str, Any]:
    """Return a chat completion with a text and a call."""
    function = {"name": CALL["name"], "arguments": json.dumps(CALL["arguments"])}
    message = {
        "role": "assistant",
        "content": said,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"id": "c", "model": "m", "choices": [choice], "usage": usage}


def openai_responses(said: str) -> dict[str, Any]:
    """Return a response with a text and a call."""
    content = [{"type": "output_text", "text": said, "annotations": []}]
    call = {"type": "function_call", "call_id": "call_1", "name": CALL["name"]}
    output = [
        {"id": "m", "type": "message", "role": "assistant", "content": content},
        {**call, "arguments": json.dumps(CALL["arguments"])},
    ]
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
    common = {"id": "r", "object": "response", "model": "m", "status": "completed"}
    return {**common, "output": output, "usage": usage}


def anthropic(said: str) -> dict[str, Any]:
    """Return a message with a text and a call."""
    use = {"type": "tool_use", "id": "c", "name": CALL["name"], "input": CALL["arguments"]}
    common = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    usage = {"input_tokens": 9, "output_tokens": 3}
    content = [{"type": "text", "text": said}, use]
    return {**common, "content": content, "stop_reason": "tool_use", "usage": usage}


def gemini(said: str) -> dict[str, Any]:
    """Return an answer of Gemini's as its REST interface sends it."""
    call = {"functionCall": {"name": CALL["name"], "args": CALL["arguments"]}}
    content = {"role": "model", "parts": [{"text": said}, call]}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    candidates = [{"content": content, "finishReason": "STOP", "index": 0}]
    return {"candidates": candidates, "usageMetadata": usage, "modelVersion": "gemini-2.5-pro"}


def gemini_of_an_sdk(said: str) -> dict[str, Any]:
    """Return the same as the older SDKs' ``to_dict`` gives it."""
    call = {"function_call": {"name": CALL["name"], "args": CALL["arguments"]}}
    content = {"role": "model", "parts": [{"text": said}, call]}
    usage = {"prompt_token_count": 9, "candidates_token_count": 3, "total_token_count": 12}
    return {"candidates": [{"content": content, "finish_reason": 1}], "usage_metadata": usage}


def ollama(said: str) -> dict[str, Any]:
    """Return an answer of Ollama's."""
    message = {"role": "assistant", "content": said, "tool_calls": [{"function": CALL}]}
    counts = {"prompt_eval_count": 9, "eval_count": 3}
    return {"model": "m", "message": message, "done": True, "done_reason": "stop", **counts}


def bedrock(said: str) -> dict[str, Any]:
    """Return an answer of Bedrock's Converse."""
    use = {"toolUseId": "c", "name": CALL["name"], "input": CALL["arguments"]}
    message = {"role": "assistant", "content": [{"text": said}, {"toolUse": use}]}
    usage = {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}
    return {"output": {"message": message}, "stopReason": "tool_use", "usage": usage}


WHOLE = (openai_chat, openai_responses, anthropic, gemini, gemini_of_an_sdk, ollama, bedrock)
ANSWER = st.sampled_from(WHOLE)
MARK = "the mark"

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@dataclass(frozen=True)
class Recorded:
    """What came of a response."""

    message: AssistantMessage | None
    error: LlmError | None
    refused: UnknownResponse | None


def responded(response: Any) -> Recorded:
    """Hand a response to a model call."""
    script = CallScript(Meta(), 0.0)
    try:
        script.respond(response, 0.0)
    except UnknownResponse as refused:
        script.end(0.0)
        return Recorded(script.message, script.error, refused)
    return Recorded(script.message, script.error, None)


def text_of(message: AssistantMessage) -> str:
    """Return a message's text."""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


@pytest.mark.parametrize("answer", WHOLE)
def test_known_shapes(answer: Any) -> None:
    """Text, call, tokens and reason of every provider's answer are recorded."""
    message = responded(answer("Hello.")).message
    assert message is not None
    assert message.usage is not None

    assert "Hello." == text_of(message)
    assert [("weather", {"city": "Rome"})] == [(c.name, c.arguments) for c in message.tool_calls]
    assert (9, 3) == (message.usage.prompt_tokens, message.usage.completion_tokens)
    assert message.finish_reason


@pytest.mark.parametrize("answer", WHOLE)
def test_json_text_and_objects(answer: Any) -> None:
    """The body as it came, and an object of a look-alike SDK, are read as the dict."""

    class Lookalike:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return dict(answer("Hello."))

    found = [answer("Hello."), json.dumps(answer("Hello.")), Lookalike()]
    messages = [responded(each).message for each in found]
    assert 1 == len(
        {m and m.model_copy(update={"llm_call_id": None}).model_dump_json() for m in messages}
    )


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"choices": [{"finish_reason": "content_filter"}]}, "content_filter"),
        ({"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}, "stop"),
        ({"object": "response", "status": "completed", "output": []}, "completed"),
        ({"type": "message", "content": [], "stop_reason": "refusal"}, "refusal"),
        ({"candidates": [{"finishReason": "SAFETY"}]}, "SAFETY"),
        ({"promptFeedback": {"blockReason": "OTHER"}}, "OTHER"),
        ({"message": {"role": "assistant", "content": ""}, "done": True}, "stop"),
        (
            {"output": {"message": {"content": []}}, "stopReason": "guardrail_intervened"},
            "guardrail_intervened",
        ),
    ],
)
def test_answers_that_are_empty_by_right(response: Any, reason: str) -> None:
    """A filter, a refusal or nothing to add: the provider says why there is no text."""
    message = responded(response).message

    assert message is not None
    assert (reason, ()) == (message.finish_reason, message.parts)


@pytest.mark.parametrize(
    "response",
    [
        None,
        "Hello.",
        b"Hello.",
        5,
        [],
        {},
        object(),
        {"text": "Hello."},
        {"role": "assistant", "content": "Hello."},
        {"generations": [{"text": "Hello."}]},
        {"message": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}},
        {"choices": []},
        {"output": []},
        {"candidates": []},
        {"output": {"message": {}}},
        [openai_chat("Hello.")],
        iter([openai_chat("Hello.")]),
    ],
)
def test_unknown_shapes(response: Any) -> None:
    """What nobody knows is refused, and the log says so; before, it was an empty answer."""
    found = responded(response)

    assert found.message is None
    assert found.refused is not None
    assert found.error is not None
    assert "invalid" == found.error.kind
    assert "call.message(text=" in str(found.refused)


def test_refusal_names_what_was_seen() -> None:
    """The type, or the fields, and what to call instead."""
    expected = r"^a dict with 'generations' is not a known response"
    with pytest.raises(UnknownResponse, match=expected) as seen:
        CallScript(Meta(), 0.0).respond({"generations": []}, 0.0)
    assert ("a dict with 'generations'", "response") == (seen.value.seen, seen.value.what)


def test_unknown_chunks() -> None:
    """They are warned about once, and make an error; before, it was one of the network's."""
    script = CallScript(Meta(), 0.0)
    with pytest.warns(UnknownChunk, match=r"^str is not a known chunk.* call\.delta\('") as warned:
        script.feed("Hello.", 0.0)
    script.feed("Hello again.", 0.0)
    script.end(0.0)

    assert 1 == len(warned)
    assert script.error is not None
    assert ("invalid", False) == (script.error.kind, script.error.retryable)
    assert ["Hello.", "Hello again."] == script.error.raw


@given(_json | st.dictionaries(st.sampled_from(["choices", "output", "content", "message"]), _json))
def test_no_answer_is_empty(response: Any) -> None:
    """Any JSON is an answer, an error, or refused; and an empty answer says why it is empty."""
    found = responded(response)

    assert 1 == sum(each is not None for each in (found.message, found.error))
    if found.message is not None:
        assert found.message.parts or found.message.tool_calls or found.message.finish_reason


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    below = [place for key, item in items for place in _places(item, (*path, key))]
    return [*([path] if path else []), *below]


@given(st.data(), ANSWER, st.sampled_from(["drop", "rename", "wrap", "none", "text"]))
def test_text_is_not_lost_with_a_changed_shape(data: st.DataObject, answer: Any, how: str) -> None:
    """A shape that is nearly known keeps its text, somewhere, or is refused."""
    response = copy.deepcopy(answer(MARK))
    *path, last = data.draw(st.sampled_from(_places(response)))
    inner: Any = response
    for key in path:
        inner = inner[key]
    if how == "drop" or (how == "rename" and isinstance(last, int)):
        del inner[last]
    elif how == "rename":
        inner[f"{last}_"] = inner.pop(last)
    else:
        inner[last] = {"wrap": [inner[last]], "none": None, "text": "x"}[how]
    found = responded(response)

    kept = found.message.model_dump_json() if found.message else ""
    if MARK in json.dumps(response) and found.refused is None and found.error is None:
        assert MARK in kept, digest_of(response)
