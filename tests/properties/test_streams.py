"""Whatever a provider sends: the deltas are the message, nothing raises, all of it can be kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore.events import AssistantChunk, AssistantMessage
from eventstore.events.codec import decode, encode
from projections.providers import Delta, StreamParser, parser_for, read_response
from tests.properties.hostile import places_in
from tests.unit.streams.recorded import NAMES, as_sdk_object, chunks_of, fed, fed_deltas
from tests.unit.streams.test_other_providers import STREAMS

_words = st.sampled_from(
    [
        *("choices", "delta", "content", "tool_calls", "function", "arguments", "name", "id"),
        *("index", "type", "usage", "error", "message", "item", "output_index", "part", "text"),
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block", "tool_use", "input_json_delta", "partial_json", "text_delta"),
        *("response.completed", "response.output_item.added", "response.output_text.delta"),
        *("response", "output", "function_call", "reasoning", "summary", "thinking", "{}", "["),
        *(
            "response.output_item.done",
            "response.function_call_arguments.delta",
            "\ud800",
            "[DONE]",
        ),
    ]
)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | _words
_garbage: st.SearchStrategy[Any] = st.recursive(
    _scalars | st.binary(max_size=3) | st.builds(object),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)
_RECORDED = {name: chunks_of(name) for name in NAMES}
_SHORT = [name for name in NAMES if len(_RECORDED[name]) < 60]
_BY_NAME = _RECORDED | STREAMS


def _agree(parser: StreamParser, deltas: list[Delta]) -> None:
    """Fail unless the deltas, put together, are what the parser holds, but for what it replaced."""
    message, partial = parser.message(), parser.partial()
    held_raw = message.raw if isinstance(message.raw, dict) else {}
    replaced = {entry["kind"] for entry in held_raw.get("replaced", ())}
    told = [raw for delta in deltas for raw in delta.raw if isinstance(raw, dict)]
    assert replaced <= {raw["kind"] for raw in told if raw.get("type") == "replaced"}
    for field, kind in (("text", "text"), ("reasoning", "reasoning"), ("refusal", "refusal")):
        streamed = "".join(getattr(delta, field) for delta in deltas)
        held = "".join(getattr(part, "text", "") for part in message.parts if part.kind == kind)
        assert held == getattr(partial, field)
        assert streamed == held or kind in replaced
    pieces = [piece for delta in deltas for piece in delta.tool_calls]
    # A call without a name is none of the message's.
    named = sorted({piece.index for piece in pieces if piece.name})
    assert len(named) == len(message.tool_calls)
    left = {call.index: call.arguments_text for call in partial.tool_calls}
    for index, call in zip(named, message.tool_calls, strict=True):
        own = [piece for piece in pieces if piece.index == index]
        streamed = "".join(piece.arguments for piece in own)
        assert call.arguments_text == streamed or "arguments" in replaced
        assert call.name == "".join(piece.name or "" for piece in own)
        assert [call.provider_id] == [p.provider_id for p in own if p.provider_id] or [None]
        # Arguments that came as a value are no text before the call is complete.
        assert left[index] == call.arguments_text or not call.arguments_text


def _keeps(payload: AssistantMessage | AssistantChunk) -> None:
    """Fail unless a payload is stored and read back as it was."""
    assert payload == decode(payload.type, payload.schema_version, encode(payload))


def _holds(chunks: list[Any]) -> None:
    parser, deltas = parser_for(chunks[0]), []
    for chunk in chunks:
        deltas.append(parser.feed(chunk))
        _agree(parser, deltas)
    _keeps(parser.message())
    for delta in deltas:
        _keeps(AssistantChunk(llm_call_id="a", index=0, tool_calls=delta.tool_calls, raw=delta.raw))


@st.composite
def mutated_streams(draw: st.DrawFn) -> list[Any]:
    """Give a stream of which chunks are lost, repeated, moved or changed within."""
    chunks = copy.deepcopy(_BY_NAME[draw(st.sampled_from([*_SHORT, *STREAMS]))])
    start = draw(st.integers(0, max(0, len(chunks) - 12)))
    chunks = chunks[:1] + chunks[start : start + 12]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(chunks) - 1))
        match draw(st.sampled_from(["lose", "repeat", "move", "change", "change", "insert"])):
            case "lose" if len(chunks) > 1:
                del chunks[at]
            case "repeat":
                chunks.insert(draw(st.integers(0, len(chunks))), copy.deepcopy(chunks[at]))
            case "move":
                chunks.insert(draw(st.integers(0, len(chunks) - 1)), chunks.pop(at))
            case "insert":
                chunks.insert(at, draw(_garbage))
            case _ if isinstance(chunks[at], dict) and chunks[at]:
                holder, key = draw(st.sampled_from(places_in(chunks[at])))
                holder[key] = draw(_garbage)
    return chunks


@pytest.mark.parametrize("name", _BY_NAME)
def test_the_deltas_of_every_prefix_are_the_message(name: str) -> None:
    """A stream that is cut anywhere has streamed exactly what its message holds."""
    _holds(_BY_NAME[name])


@given(mutated_streams())
def test_a_damaged_stream_still_agrees(chunks: list[Any]) -> None:
    """Lost, repeated, moved and damaged chunks never raise nor part deltas and message."""
    _holds(chunks)


@given(st.sampled_from(_SHORT), st.data())
def test_any_mixture_of_objects_and_dicts_gives_the_same(name: str, data: st.DataObject) -> None:
    """It does not matter which chunks come as the SDK's objects and which as dicts."""
    chunks = _RECORDED[name]
    kinds = data.draw(st.lists(st.booleans(), min_size=len(chunks), max_size=len(chunks)))
    mixed = [
        as_sdk_object(name, chunk) if kind else chunk
        for chunk, kind in zip(chunks, kinds, strict=True)
    ]
    expected, found = fed_deltas(chunks), fed_deltas(mixed)
    assert (expected[0].message(), expected[1]) == (found[0].message(), found[1])


@given(st.lists(_garbage, min_size=1, max_size=6))
@example(chunks=[{"type": "message_start", "message": {"content": [{"type": "tool_use"}]}}])
@example(chunks=[{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": []}}]}}]}])
def test_garbage_never_raises(chunks: list[Any]) -> None:
    """What is not a stream at all is kept as it came."""
    _holds(chunks)


@given(st.sampled_from([*_SHORT, *STREAMS]), st.lists(_garbage, min_size=1, max_size=6))
def test_garbage_in_a_stream_never_raises(name: str, garbage: list[Any]) -> None:
    """A parser that knows what it reads survives what it does not know."""
    _holds([_BY_NAME[name][0], *garbage, *_BY_NAME[name][1:3]])


@given(_garbage | st.dictionaries(_words, _garbage, max_size=6))
@example({"choices": [{"message": 3}, 4]})
@example({"object": "response", "output": [None, {"type": "message", "content": 3}]})
@example({"type": "message", "content": [3, {"type": "text", "text": 4}]})
def test_a_response_of_garbage_never_raises(response: Any) -> None:
    """What is not a response at all is kept as it came."""
    _keeps(read_response(response).message())


@given(st.sampled_from(_SHORT), st.integers(0, 60))
def test_feeding_leaves_the_chunks_alone(name: str, upto: int) -> None:
    """A caller's chunks are copied, neither changed nor held on to."""
    chunks = copy.deepcopy(_RECORDED[name][: upto + 1])
    parser = fed(chunks)
    assert _RECORDED[name][: upto + 1] == chunks
    before = parser.message()
    for chunk in chunks:
        chunk.clear()
    assert before == parser.message()
