"""What servers send again, whole or so far, and what they put where it does not belong."""

from __future__ import annotations

from typing import Any

import pytest

from projections.providers import read_response
from tests.unit.streams.recorded import fed, text_of
from tests.unit.streams.test_chat_calls import chunk, piece
from tests.unit.streams.test_pieces import calls_of, chat, ended

ROME, OSLO = '{"city":"Rome"}', '{"city":"Oslo"}'
TWICE_ENCODED = '"{\\"city\\":\\"Rome\\"}"'
END = chunk(finish="tool_calls")


def pieces(*texts: str, every: bool = False) -> list[dict[str, Any]]:
    """Return the chunks of one call; with ``every``, each piece has its id and name."""
    first = chunk(piece(texts[0], "look", id="c", index=0))
    if every:
        others = [chunk(piece(text, "look", id="c", index=0)) for text in texts[1:]]
    else:
        others = [chunk(piece(text, index=0)) for text in texts[1:]]
    return [first, *others, END]


CUMULATIVE = {
    "arguments so far": ('{"ci', '{"city":"Ro', ROME),
    "arguments so far, the last twice": ('{"ci', '{"city":"Ro', ROME, ROME),
    "the whole at the end": ('{"ci', 'ty":', ROME),
    "objects that grow": ("{}", '{"city":""}', '{"city":"Ro"}', ROME),
    "the whole, encoded once more": ('{"city":', '"Rome"}', TWICE_ENCODED),
}


@pytest.mark.parametrize("every", [True, False], ids=["named", "bare"])
@pytest.mark.parametrize("sent", CUMULATIVE)
def test_arguments_that_are_repeated_so_far(sent: str, every: bool) -> None:
    """They are one call's, and neither joined nor calls of their own."""
    parser = fed(pieces(*CUMULATIVE[sent], every=every))
    assert [("look", {"city": "Rome"})] == calls_of(parser)


@pytest.mark.parametrize("texts", [("{}", ROME), ("{}", '{"city":', '"Rome"}')])
def test_an_empty_object_before_the_arguments_is_a_placeholder(texts: tuple[str, ...]) -> None:
    """A call must not run without its arguments."""
    assert [("look", {"city": "Rome"})] == calls_of(fed(pieces(*texts)))


def test_nested_objects_that_begin_alike_are_no_repetition() -> None:
    """Pieces that form an object together are pieces of it."""
    parser = fed(pieces('{"a":', '{"a":1}', "}"))
    assert [("look", {"a": {"a": 1}})] == calls_of(parser)


def test_a_call_after_repeated_arguments_is_another() -> None:
    """Also if both have the same number, and no id."""
    texts = ('{"ci', ROME)
    first = [chunk(piece(text, "look", index=0)) for text in texts]
    parser = fed([*first, chunk(piece(OSLO, "look", index=0)), END])
    assert [("look", {"city": "Rome"}), ("look", {"city": "Oslo"})] == calls_of(parser)


def test_a_cut_stream_of_repeated_arguments_is_no_answer() -> None:
    """Arguments so far are not all of them."""
    sent = [chat({"content": "a"}), *pieces('{"ci', '{"city":"Ro')[:-1]]
    assert not ended(sent, closed=True).finished
    assert ended([*sent, chunk(piece(ROME, index=0))], closed=True).finished


def test_arguments_of_anthropic_and_responses_that_are_repeated_so_far() -> None:
    """The rule is that of all specifications."""
    block = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "look", "arguments": ""}
    anthropic: list[Any] = [{"type": "content_block_start", "index": 0, "content_block": block}]
    responses: list[Any] = [{"type": "response.output_item.added", "output_index": 0, "item": item}]
    for text in ('{"ci', '{"city":"Ro', ROME):
        delta = {"type": "input_json_delta", "partial_json": text}
        anthropic.append({"type": "content_block_delta", "index": 0, "delta": delta})
        kind = "response.function_call_arguments.delta"
        responses.append({"type": kind, "output_index": 0, "item_id": "i", "delta": text})
    anthropic += [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
    responses.append({"type": "response.completed", "response": {"status": "completed"}})

    for sent in (anthropic, responses):
        assert [("look", {"city": "Rome"})] == calls_of(fed(sent))


def test_arguments_of_anthropic_and_gemini_of_the_other_kind() -> None:
    """A value in the place of text, and text in the place of a value, are the arguments."""
    block = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": {"city": "Rome"}}
    anthropic: list[Any] = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "message_stop"},
    ]
    part = {"functionCall": {"name": "look", "args": ROME}}
    gemini = [{"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}]

    for sent in (anthropic, gemini):
        assert [("look", {"city": "Rome"})] == calls_of(fed(sent))


def test_a_whole_message_after_its_deltas() -> None:
    """Reasoning, text and calls that the deltas had are not there twice."""
    calls = [piece(ROME, "look"), piece(OSLO, "look")]
    message = {"role": "assistant", "reasoning": "hm", "content": "Hello", "tool_calls": calls}
    last = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    sent = [
        chat({"reasoning": "hm"}),
        chat({"content": "Hel"}),
        chat({"content": "lo\n"}),
        *(chunk({**call, "index": number}) for number, call in enumerate(calls)),
        last,
    ]
    parser = fed(sent)

    assert [("look", {"city": "Rome"}), ("look", {"city": "Oslo"})] == calls_of(parser)
    assert ("Hello\n", "hm") == (text_of(parser), parser.partial().reasoning)


def test_a_last_delta_that_has_the_whole_text_again() -> None:
    """It has the role too; without one, a repeated word is a word."""
    sent = [chat({"role": "assistant", "content": "ha"}), chat({"content": "ha"})]
    whole = chat({"role": "assistant", "content": "haha"}, "stop")

    assert "haha" == text_of(fed([*sent, whole]))
    assert "hahahaha" == text_of(fed([*sent, chat({"content": "haha"}, "stop")]))


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]}],
        [{"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]}],
        [{"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}],
        [{"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}],
        [{"reasoning": "hm"}, {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}],
        [{"reasoning": "hm", "reasoning_content": "hm"}],
    ],
)
def test_reasoning_under_several_names_is_there_once(deltas: list[dict[str, Any]]) -> None:
    """Nor is it lost if only its details have it."""
    parser = fed([*map(chat, deltas), chat({"content": "yes"}, "stop")])
    assert ("hm", "yes") == (parser.partial().reasoning, text_of(parser))


def test_ids_that_are_numbers() -> None:
    """They say to which call a piece belongs."""
    sent = [
        chunk(piece('{"city":', "look", id=0), piece('{"city":', "look", id=1)),
        chunk(piece('"Rome"}', id=0)),
        chunk(piece('"Oslo"}', id=1)),
        END,
    ]
    assert [("look", {"city": "Rome"}), ("look", {"city": "Oslo"})] == calls_of(fed(sent))


def test_shapes_of_chat_that_lost_content() -> None:
    """A choice numbered by text, a delta that is text, and calls as an object by number."""
    call = {"id": "c", **piece(ROME, "look")}
    sent = [
        {"choices": [{"index": "0", "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "delta": "b"}]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": None},
        {"choices": [{"index": 0, "delta": {"tool_calls": {"0": call}}}]},
        END,
    ]
    parser = fed(sent)
    assert ("ab", [("look", {"city": "Rome"})]) == (text_of(parser), calls_of(parser))


def test_text_of_anthropic_under_the_number_of_a_tool_call() -> None:
    """It was lost, as was text after the end of its block."""
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "c", "name": "look", "input": {}},
    ]
    text = {"type": "text_delta", "text": "b"}
    halves = [{"type": "input_json_delta", "partial_json": half} for half in (ROME[:5], ROME[5:])]
    events: list[Any] = [
        {"type": "content_block_start", "index": 0, "content_block": blocks[0]},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_delta", "index": 0, "delta": text},
        {"type": "content_block_start", "index": 1, "content_block": blocks[1]},
        *(
            {"type": "content_block_delta", "index": 1, "delta": delta}
            for delta in (halves[0], text, halves[1])
        ),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]
    parser = fed(events)
    assert ("abb", [("look", {"city": "Rome"})]) == (text_of(parser), calls_of(parser))


@pytest.mark.parametrize(
    "fields",
    [
        {"output": [{"type": "message", "content": "hi"}]},
        {"output": [{"type": "message", "content": ["hi"]}]},
        {"output": [], "output_text": "hi"},
        {"output": [{"type": "message", "content": "hi"}], "output_text": "hi"},
    ],
)
def test_text_of_responses_without_its_part(fields: dict[str, Any]) -> None:
    """It was in the message's raw output alone, or lost."""
    body = {"object": "response", "status": "completed", **fields}
    streamed = fed([{"type": "response.completed", "response": body}])
    assert ["hi", "hi"] == [text_of(read_response(body)), text_of(streamed)]
