"""Chunks of chat completions beyond those in the recorded streams."""

from __future__ import annotations

from typing import Any

import pytest

from projections.providers import Delta, read_response
from tests.unit.streams.recorded import fed, fed_deltas, text_of


def chunk(delta: Any = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk of the first choice."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_goes_by_several_names(field: str) -> None:
    """Servers do not agree on what reasoning is called."""
    parser = fed([chunk({field: "so"}), chunk({field: None, "content": "yes"})])
    assert ("so", "yes") == (text_of(parser, "reasoning"), text_of(parser))


def test_reasoning_under_two_names_is_said_once() -> None:
    """A server in transition sends the same piece twice in a chunk."""
    assert (
        Delta(reasoning="so")
        == fed_deltas([chunk({"reasoning": "so", "reasoning_content": "so"})])[1][0]
    )


def test_content_may_be_a_list() -> None:
    """Mistral sends its thoughts and its text as parts of the content."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}
    parser = fed(
        [chunk({"content": [thinking]}), chunk({"content": [{"type": "text", "text": "yes"}]})]
    )
    assert ("so", "yes") == (text_of(parser, "reasoning"), text_of(parser))


def test_several_texts_in_one_chunk_are_one_piece() -> None:
    """A list of parts adds all of its texts, in their order."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert Delta(text="ab") == fed_deltas([chunk({"content": parts})])[1][0]


@pytest.mark.parametrize(
    "delta", [None, {}, {"content": None, "tool_calls": None}, {"tool_calls": []}]
)
def test_an_empty_delta_adds_nothing(delta: Any) -> None:
    """Chunks that say nothing are false."""
    assert not fed_deltas([chunk(delta)])[1][0]


def test_a_refusal_is_no_text() -> None:
    """The model's words for refusing stand in a part of their own."""
    parser = fed([chunk({"refusal": "I "}), chunk({"refusal": "won't"}, "stop")])
    assert ("I won't", "") == (text_of(parser, "refusal"), text_of(parser))


def test_only_the_first_choice_is_the_answer() -> None:
    """Another choice of the same request is kept beside it."""
    other = {"index": 1, "delta": {"content": "no"}}
    parser, deltas = fed_deltas([{"choices": [{"index": 0, "delta": {"content": "yes"}}, other]}])
    assert ("yes", ({"choices": [other]},)) == (text_of(parser), deltas[0].raw)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk({}, "stop"), {"choices": [], "usage": USAGE}],
        [chunk({}, "stop", usage=USAGE)],
        [chunk({}, usage={**USAGE, "completion_tokens": 1}), chunk({}, "stop", usage=USAGE)],
        [chunk({}, usage=USAGE), chunk({}, "stop", usage=None), {"choices": [], "usage": {}}],
        [chunk({}, "stop", x_groq={"id": "r", "usage": USAGE})],
        [{"choices": [{"delta": {}, "usage": USAGE}]}],
    ],
)
def test_the_last_usage_counts(chunks: list[Any]) -> None:
    """Usage comes last, with every chunk, or somewhere else; it is never added up."""
    usage = fed(chunks).message().usage
    assert usage is not None
    assert (7, 2, 9) == (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)


def test_reasoning_counted_apart_is_part_of_the_completion() -> None:
    """XAI's total shows that its completion leaves out the reasoning."""
    counts = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 349}
    details = {"completion_tokens_details": {"reasoning_tokens": 340}}
    usage = fed([chunk({}, "stop", usage=counts | details)]).message().usage
    assert usage is not None
    assert (342, 340, 349) == (usage.completion_tokens, usage.reasoning_tokens, usage.total_tokens)


def test_a_second_finish_replaces_the_first() -> None:
    """A finish that is repeated ends the answer once; the last reason is the provider's."""
    parser = fed([chunk({}, "stop"), chunk({}, "tool_calls")])
    assert (True, "tool_calls") == (parser.finished, parser.message().finish_reason)


@pytest.mark.parametrize("line", ["[DONE]", "data: [DONE]", "data: [DONE]\n\n", b"data: [DONE]"])
def test_done_ends_the_answer(line: Any) -> None:
    """The end marker of the event stream says that the answer is complete."""
    parser, deltas = fed_deltas([chunk({"content": "a"}), line])
    assert (True, Delta()) == (parser.finished, deltas[1])


def test_lines_of_the_event_stream_are_read() -> None:
    """A caller without an SDK may feed the lines as they come."""
    line = 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    assert "aa" == text_of(fed([line, ": OPENROUTER PROCESSING", line]))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "slow down", "code": 429}, ("rate_limit", True, "slow down")),
        ({"message": "down", "code": 502, "metadata": {}}, ("provider", True, "down")),
        ({"message": "no", "type": "invalid_request_error"}, ("invalid", False, "no")),
        ({"message": "no", "type": "BadRequestError", "code": 400}, ("invalid", False, "no")),
        ({"message": "oops", "type": "server_error", "code": None}, ("provider", True, "oops")),
        ({"message": "pay", "code": "insufficient_quota"}, ("rate_limit", False, "pay")),
        ("it broke", ("provider", True, "it broke")),
        ({"message": "filtered", "code": "content_filter"}, ("invalid", False, "filtered")),
    ],
)
def test_an_error_in_the_stream_is_told(error: Any, expected: tuple[Any, ...]) -> None:
    """An error object ends the answer without completing it, and what was said stays."""
    parser = fed([chunk({"content": "half"}), {"error": error}])
    assert parser.error is not None
    assert expected == (parser.error.kind, parser.error.retryable, parser.error.message)
    assert (False, "half") == (parser.finished, parser.partial().text)


def test_an_error_beside_choices_is_told() -> None:
    """OpenRouter ends a broken stream with an error and a choice that finished with it."""
    broken = chunk({"content": ""}, "error", error={"code": 504, "message": "upstream"})
    parser = fed([chunk({"content": "half"}), broken])
    assert parser.error is not None
    assert ("provider", "upstream", False) == (
        parser.error.kind,
        parser.error.message,
        parser.finished,
    )


def test_what_a_server_adds_to_a_message_is_kept() -> None:
    """Pieces that must go back to the provider are put together by their numbers."""
    pieces = [
        {"type": "reasoning.text", "text": "so", "index": 0},
        {"type": "reasoning.text", "text": " what", "signature": "s", "index": 0},
    ]
    parser, deltas = fed_deltas([chunk({"reasoning_details": [piece]}) for piece in pieces])
    whole = {"type": "reasoning.text", "text": "so what", "signature": "s", "index": 0}
    assert {"message": {"reasoning_details": [whole]}} == parser.message().raw
    assert ({"delta": {"reasoning_details": [pieces[1]]}},) == deltas[1].raw


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "gpt-4o"}, "openai"),
        ({"model": "o3"}, "openai"),
        ({"model": "grok-4"}, "x-ai"),
        ({"model": "llama-3.3-70b", "x_groq": {"id": "r"}}, "groq"),
        ({"model": "gpt-4o", "prompt_filter_results": []}, "azure"),
        ({"model": "deepseek-ai/DeepSeek-V3"}, None),
        ({"model": "gpt-oss-120b"}, None),
        ({"model": "gpt-4o", "provider": "Azure"}, None),
    ],
)
def test_the_seller_is_named_only_where_it_is_known(fields: Any, expected: str | None) -> None:
    """Prices depend on the seller, so a wrong name is worse than none."""
    invocation = fed([chunk({"content": "a"}, **fields)]).message().invocation
    assert invocation is not None
    assert (expected, fields["model"]) == (invocation.provider, invocation.model)


def test_a_whole_response_is_read() -> None:
    """A response that was not streamed has its calls without numbers."""
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in "fg"]
    message = {"role": "assistant", "content": "yes", "tool_calls": calls}
    first = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    other = {"index": 1, "message": {"content": "no"}}
    found = read_response({"id": "r", "choices": [first, other], "usage": USAGE}).message()
    assert ["f", "g"] == [call.name for call in found.tool_calls]
    assert ("r", {"response": {"choices": [other]}}) == (found.response_id, found.raw)


def test_the_caller_may_say_more() -> None:
    """What the recorder knows comes before what the chunks told."""
    message = fed([chunk({"content": "a"})]).message(llm_call_id="call", final=True)
    assert ("call", True) == (message.llm_call_id, message.final)


def test_an_answer_by_a_schema_may_be_an_object() -> None:
    """Some servers send a structured answer as an object: it is the text that others send."""
    said = {"role": "assistant", "content": {"title": "Más", "pages": 3}}
    message = read_response(
        {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}
    ).message()
    assert ["text"] == [part.kind for part in message.parts]
    assert '{"title": "Más", "pages": 3}' == message.parts[0].text  # type: ignore[union-attr]


def test_what_the_server_says_of_itself_is_kept() -> None:
    """The fingerprint of the system, and what Groq adds beside the counts, are in the message."""
    groq = {"id": "req_1", "usage": USAGE}
    parser = fed(
        [chunk({"content": "a"}, system_fingerprint="fp_1"), chunk({}, "stop", x_groq=groq)]
    )
    kept = {"system_fingerprint": "fp_1", "x_groq": {"id": "req_1"}}
    assert {"response": kept} == parser.message().raw
