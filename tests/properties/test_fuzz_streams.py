"""Streams that no provider sends, but one that is broken or hostile could.

The right keys with values of the wrong types, objects that raise when they are looked at, and
things too large. What damaged streams of real providers do is in ``test_streams.py``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_eventstore import Conversation
from eventstore import EventStore
from eventstore.events import AssistantChunk, AssistantMessage, LlmError
from eventstore.events.bounds import fitted
from eventstore.events.codec import decode, encode
from projections.providers import classify, parser_for, read_response
from projections.providers.stream_base import plain
from tests.properties.hostile import jsons
from tests.scaled_settings import scaled_settings
from tests.unit.streams.recorded import NAMES, chunks_of

_TEXTS = ["a", "", "{", "}", '{"a": 1}', "\ud800", "\x00", "f", "\ufdd0"]
_INDEXES: list[Any] = [0, 0, 1, 1.0, -1, True, None, "0", "x", 2**70, [], 1e308]


def _odd(*usual: Any) -> st.SearchStrategy[Any]:
    """Give what usually stands in a field or, one time in four, anything else."""
    return st.sampled_from(usual * 3) | jsons(3)


def _object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Give an object with any of these fields, or seldom something else."""
    return st.fixed_dictionaries({}, optional=fields) | st.fixed_dictionaries(fields) | jsons(2)


_text, _index = _odd(*_TEXTS), _odd(*_INDEXES)
_usage = _object(
    prompt_tokens=_odd(3, -1, 2**60, 1.5, float("nan")),
    completion_tokens=_odd(2),
    total_tokens=_odd(5),
    input_tokens=_odd(3),
    output_tokens=_odd(2, 1e400),
    prompt_tokens_details=_object(cached_tokens=_odd(1)),
    output_tokens_details=_object(reasoning_tokens=_odd(1)),
)
_error = _object(message=_text, code=_odd("rate_limit", 429, "500"), type=_text)
_tool_call = _object(
    index=_index,
    id=_odd("a", "b", ""),
    function=_object(name=_text, arguments=_text),
    custom=_object(name=_text, input=_text),
    extra=_text,
)
_delta = _object(
    content=_text | st.lists(_object(type=_text, text=_text, thinking=_text), max_size=2),
    reasoning_content=_text,
    refusal=_text,
    tool_calls=st.lists(_tool_call, max_size=3) | jsons(2),
    function_call=_object(name=_text, arguments=_text),
    annotations=st.lists(_object(index=_index, text=_text), max_size=2),
)
_choice = _object(
    index=_index,
    delta=_delta,
    message=_delta,
    finish_reason=_odd("stop", "error", None),
    logprobs=_object(content=st.lists(jsons(2), max_size=2)),
    error=_error,
)
_chat = _object(
    id=_odd("x"),
    object=_odd("chat.completion.chunk", "error"),
    model=_odd("gpt-4o", "grok-1"),
    choices=st.lists(_choice, max_size=2) | jsons(2),
    usage=_usage,
    x_groq=_object(usage=_usage, error=_error),
    error=_error,
)
_item = _object(
    type=_odd("message", "function_call", "custom_tool_call", "reasoning", "web_search_call"),
    id=_odd("i", "j"),
    call_id=_odd("c"),
    name=_text,
    arguments=_text,
    input=_text,
    content=st.lists(_object(type=_odd("output_text", "refusal"), text=_text), max_size=2),
    summary=st.lists(_object(type=_odd("summary_text"), text=_text), max_size=2),
    encrypted_content=_text,
)
_responses = _object(
    type=st.sampled_from(
        [
            f"response.{name}"
            for name in (
                "created output_item.added output_item.done output_text.delta output_text.done "
                "refusal.delta reasoning_text.delta reasoning_summary_text.done content_part.added "
                "function_call_arguments.delta function_call_arguments.done completed failed "
                "custom_tool_call_input.delta custom_tool_call_input.done incomplete"
            ).split()
        ]
    )
    | _odd("error"),
    item=_item,
    item_id=_odd("i", "j"),
    output_index=_index,
    content_index=_index,
    summary_index=_index,
    delta=_text,
    text=_text,
    arguments=_text,
    input=_text,
    part=_object(type=_odd("output_text", "summary_text"), text=_text),
    response=_object(
        output=st.lists(_item, max_size=3) | jsons(2),
        status=_odd("completed", "failed"),
        usage=_usage,
        error=_error,
        incomplete_details=_object(reason=_text),
    ),
    error=_error,
)
_block = _object(
    type=_odd("text", "thinking", "tool_use", "redacted_thinking", "server_tool_use"),
    id=_odd("t"),
    name=_text,
    input=_odd({}, {"a": 1}),
    text=_text,
    thinking=_text,
    signature=_text,
    citations=jsons(2),
)
_anthropic = _object(
    type=_odd(
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop", "error", "ping"),
    ),
    index=_index,
    message=_object(id=_odd("m"), content=st.lists(_block, max_size=2) | jsons(2), usage=_usage),
    content_block=_block,
    delta=_object(
        type=_odd(
            *("text_delta", "thinking_delta", "signature_delta", "input_json_delta"),
            "citations_delta",
        ),
        text=_text,
        thinking=_text,
        signature=_text,
        partial_json=_text,
        citation=jsons(2),
        stop_reason=_odd("end_turn"),
    ),
    usage=_usage,
    error=_error,
)
_streams = st.one_of(
    *(st.lists(chunk, min_size=1, max_size=8) for chunk in (_chat, _responses, _anthropic)),
    st.lists(_chat | _responses | _anthropic, min_size=1, max_size=8),
)


class Grumpy:
    """An object of a caller's that raises whenever it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        raise RuntimeError("hash")


def _cyclic() -> Any:
    found: dict[str, Any] = {"choices": [{"delta": {"content": "a"}}]}
    found["choices"].append(found)
    return found


def _nested(depth: int) -> Any:
    found: Any = "x"
    for _ in range(depth):
        found = {"delta": [found]}
    return found


_LARGE: tuple[Any, ...] = (
    {"choices": [{"delta": {"content": "x" * 1_000_000}}]},
    {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "[" * 100_000}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": n} for n in range(1_000)]}}]},
    {"choices": [{"delta": {"odd": _nested(5_000)}}]},
    {"choices": [{"delta": {}}], "usage": {"prompt_tokens": 10**4_000, "completion_tokens": 1e308}},
    {"type": "response.completed", "response": {"output": [_nested(2_000)] * 3}},
    {"type": "response.output_text.delta", "output_index": 2**200, "delta": "\ud800" * 100_000},
    {"type": "message_start", "message": {"content": [{"type": "text", "text": "a"}] * 1_000}},
    {"type": "content_block_start", "index": 10**400, "content_block": {"type": "tool_use"}},
    "data: " + "[" * 100_000,
    'data: {"a":' * 10_000,
    b"\xff" * 1_000,
    Grumpy(),
    [Grumpy(), {"choices": Grumpy()}],
    {"choices": [{"delta": Grumpy(), "error": Grumpy()}], "error": Grumpy()},
    {Grumpy: 1, None: 2, 3: float("nan")},
    _cyclic(),
)


def _keeps(data: AssistantMessage | AssistantChunk | LlmError) -> None:
    """Fail unless a payload is stored and read back as it was, once it fits."""
    data = fitted(data, lambda _: None)
    assert data == decode(data.type, data.schema_version, encode(data))


def _survives(chunks: list[Any]) -> None:
    """Fail if a parser raises, or makes something that cannot be kept."""
    parser = parser_for(chunks[0])
    for chunk in chunks:
        delta = parser.feed(chunk)
        _keeps(AssistantChunk(llm_call_id="a", index=0, tool_calls=delta.tool_calls, raw=delta.raw))
    message, partial = parser.message(), parser.partial()
    _keeps(message)
    said = "".join(getattr(part, "text", "") for part in message.parts if part.kind == "text")
    assert said == partial.text
    error = parser.error
    _keeps(
        LlmError(
            kind=error.kind if error else "interrupted",
            message=error.message if error else "",
            partial_text=partial.text,
            partial_tool_calls=partial.tool_calls,
            usage=partial.usage,
            raw=error.raw if error else None,
        )
    )


@given(_streams)
@example([{"type": "content_block_start", "index": [], "content_block": {"type": []}}])
@example([{"type": "response.output_item.added", "output_index": True, "item": {"type": {}}}])
@example([{"choices": [{"delta": {}}], "usage": {"prompt_tokens": 2**33, "completion_tokens": 1}}])
def test_wrong_types_never_raise(chunks: list[Any]) -> None:
    """Fields that a parser looks at may hold anything."""
    _survives(chunks)


@given(_chat | _responses | _anthropic | _item | _block)
def test_wrong_types_in_a_response_never_raise(response: Any) -> None:
    """Nor in a response that was not streamed."""
    _keeps(read_response(response).message())


@pytest.mark.parametrize("number", range(len(_LARGE)))
def test_strange_objects_never_raise(number: int) -> None:
    """Too large, too deep, in a circle, or unwilling: by itself and within every real stream."""
    _survives([_LARGE[number]] * 3)
    _keeps(read_response(_LARGE[number]).message())
    for name in NAMES:
        _survives([*chunks_of(name)[:3], _LARGE[number], *chunks_of(name)[3:6]])


@given(st.lists(_error | jsons(3), max_size=3))
def test_an_exception_that_carries_anything_is_classified(carried: list[Any]) -> None:
    """What an exception holds is data of somebody else's."""
    error = RuntimeError(*carried)
    for name, value in zip(("body", "response", "status_code"), carried, strict=False):
        setattr(error, name, value)
    assert classify(error).kind


@given(st.lists(st.binary(max_size=60) | jsons(4).map(json.dumps), min_size=1, max_size=4))
def test_lines_of_a_server_never_raise(lines: list[Any]) -> None:
    """A client may hand over what came on the wire, line by line."""
    _survives([line if isinstance(line, bytes) else f"data: {line}\n\n" for line in lines])


@given(jsons())
def test_plain_json_is_what_the_store_takes(value: Any) -> None:
    """NaN, huge numbers and all else come out as JSON that stays as it is."""
    found = plain(value)
    assert found == plain(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.filterwarnings("ignore::agent_eventstore.machines.call_script.UnknownChunk")
@scaled_settings(15)
@given(streams=st.lists(_streams, min_size=1, max_size=3))
def test_recording_a_hostile_stream_never_breaks_the_product(streams: list[list[Any]]) -> None:
    """`feed` takes all of it, each call ends in a message or an error, and the chain holds."""
    _record(streams)


@pytest.mark.filterwarnings("ignore::agent_eventstore.machines.call_script.UnknownChunk")
def test_recording_strange_objects_never_breaks_the_product() -> None:
    """Also what is too large, too deep, in a circle, or unwilling to be looked at."""
    _record([[strange] for strange in _LARGE])


def _record(streams: list[list[Any]]) -> None:
    with EventStore.open("sqlite://") as store:
        conversation = Conversation.start(store)
        with conversation.turn("go") as turn:
            for chunks in streams:
                with turn.llm_call(model="gpt-4o") as call:
                    for chunk in chunks:
                        call.feed(chunk)
        types = [event.type for event in store.read(conversation.id)]
        ended = [kind for kind in types if kind in ("assistant_message", "llm_error")]
        assert len(streams) == len(ended)
        assert store.verify().ok
