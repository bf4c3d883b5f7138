"""Whatever a stream brings, and in however small pieces, taking it costs what it is long.

Steps are counted, not timed: see `tests.growth.steps`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_eventstore.batching import Batcher
from projections.providers import ByHand, parser_for
from projections.providers.anthropic.stream import AnthropicParser
from projections.providers.bedrock.stream import BedrockParser
from projections.providers.gemini.stream import GeminiParser
from projections.providers.ollama import OllamaParser
from projections.providers.openai_chat.stream import OpenAIChatParser
from projections.providers.openai_responses.stream import OpenAIResponsesParser
from projections.providers.stream_base import Growing
from tests.growth.steps import assert_linear, steps_of

Frames = Callable[[int], Iterator[Any]]
_SIZE = 30


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"in": [value]}
    return value


def _each(frame: Callable[[int], Any]) -> Frames:
    return lambda count: (frame(number) for number in range(count))


def _chat(delta: Callable[[int], Any], **choice: Any) -> Frames:
    return _each(lambda number: {"choices": [{"index": 0, "delta": delta(number), **choice}]})


def _chat_call(function: Any, **fields: Any) -> Frames:
    return _chat(lambda number: {"tool_calls": [{**fields, "function": function}]})


CHAT: dict[str, Frames] = {
    "text": _chat(lambda number: {"content": "a"}),
    "parts": _chat(lambda number: {"content": [{"type": "odd", "number": number}]}),
    "arguments": _chat_call({"arguments": "{"}, index=0),
    "arguments and name": _chat_call({"name": "f", "arguments": '{"'}, index=0),
    "arguments, name, id": _chat_call({"name": "f", "arguments": "{} "}, id="a"),
    "closed arguments": _chat_call({"name": "f", "arguments": "{a}"}, index=0),
    "nothing but a name": _chat_call({"name": "f", "arguments": ""}, index=0),
    "pieces of a name": _chat(
        lambda number: {"tool_calls": [{"index": 0, "function": {"name": f"a{number}"}}]}
    ),
    "calls": _chat(
        lambda number: {"tool_calls": [{"index": number, "id": f"c{number}", "function": {}}]}
    ),
    "calls without a number": _chat(
        lambda number: {"tool_calls": [{"id": f"c{number}", "function": {"name": "f"}}]}
    ),
    "odd fields of a call": _chat_call({"arguments": ""}, index=0, odd=["a"], more={"b": "c"}),
    "legacy call": _chat(lambda number: {"function_call": {"name": "f", "arguments": "{"}}),
    "odd fields": _chat(lambda number: {"odd": "a", f"odd{number}": [1]}),
    "odd items": _chat(lambda number: {"odd": [{"index": number, "text": "a"}]}),
    "odd items of one index": _chat(lambda number: {"odd": [{"index": 0, "text": "a"}]}),
    "log probabilities": _chat(
        lambda number: {"content": "a"}, logprobs={"content": [{"token": "a", "logprob": -1}]}
    ),
    "other choices": _each(lambda number: {"choices": [{"index": number + 1}]}),
    "errors": _each(lambda number: {"error": {"message": "no"}}),
    "usage": _each(lambda number: {"choices": [], "usage": {"prompt_tokens": number}}),
    "deep": _chat(lambda number: {"odd": _deep(3)}),
    "lines": _each(lambda number: 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'),
}


def _response(kind: str, **fields: Any) -> Frames:
    return _each(
        lambda number: {
            "type": f"response.{kind}",
            **{key: value(number) if callable(value) else value for key, value in fields.items()},
        }
    )


def _item(number: int) -> dict[str, Any]:
    return {"type": "function_call", "id": f"i{number}", "name": "f", "arguments": "{}"}


def _many_items(count: int) -> Iterator[Any]:
    yield from _response("output_item.added", item=_item)(count)
    whole = {"output": [_item(number) for number in range(count)], "status": "completed"}
    yield {"type": "response.completed", "response": whole}


RESPONSES: dict[str, Frames] = {
    "text": _response("output_text.delta", output_index=0, delta="a"),
    "text without a place": _response("output_text.delta", delta="a"),
    "texts of items": _response("output_text.delta", item_id=str, delta="a"),
    "texts of parts": _response("output_text.delta", output_index=0, content_index=int, delta="a"),
    "arguments": _response("function_call_arguments.delta", output_index=0, delta="{"),
    "arguments by id": _response("function_call_arguments.delta", item_id=str, delta="{"),
    "whole arguments": _response("function_call_arguments.done", output_index=0, arguments="{}"),
    "items": _response("output_item.added", item=_item),
    "items at places": _response("output_item.added", output_index=int, item=_item),
    "items that are done": _response("output_item.done", item=_item),
    "other items": _response("output_item.done", output_index=int, item={"type": "odd"}),
    "thoughts": _response("reasoning_summary_text.delta", summary_index=int, delta="a"),
    "unknown": _response("odd", value=str),
    "items, and all of them again": _many_items,
    "ends": _response("completed", response={"output": [{"type": "message", "content": []}]}),
}


def _block(delta: Callable[[int], Any], start: Any, index: Callable[[int], int]) -> Frames:
    def frames(count: int) -> Iterator[Any]:
        for place in sorted({index(number) for number in range(count)}):
            yield {"type": "content_block_start", "index": place, "content_block": dict(start)}
        for number in range(count):
            place = index(number)
            yield {"type": "content_block_delta", "index": place, "delta": delta(number)}

    return frames


def _first(number: int) -> int:
    return 0


def _ends(count: int) -> Iterator[Any]:
    """Yield blocks that stay open, and then many ends."""
    for place in range(count):
        yield {"type": "content_block_start", "index": place, "content_block": {"type": "text"}}
    for _ in range(count):
        yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}


def _piece(kind: str, **fields: Any) -> Callable[[int], Any]:
    return lambda number: {"type": kind, **fields}


ANTHROPIC: dict[str, Frames] = {
    "text": _block(_piece("text_delta", text="a"), {"type": "text"}, _first),
    "two texts by turns": _block(_piece("text_delta", text="a"), {"type": "text"}, lambda n: n % 2),
    "arguments": _block(_piece("input_json_delta", partial_json="{"), {"type": "tool_use"}, _first),
    "calls": _block(_piece("input_json_delta", partial_json="{"), {"type": "tool_use"}, int),
    "citations": _block(_piece("citations_delta", citation={"a": 1}), {"type": "text"}, _first),
    "thoughts": _block(_piece("thinking_delta", thinking="a"), {"type": "thinking"}, _first),
    "signatures": _block(_piece("signature_delta", signature="a"), {"type": "thinking"}, _first),
    "odd block": _block(_piece("odd_delta", odd="a", items=[1]), {"type": "odd"}, _first),
    "odd block's input": _block(
        _piece("input_json_delta", partial_json="{"), {"type": "server_tool_use"}, _first
    ),
    "hidden thoughts": _block(_piece("odd", data="a"), {"type": "redacted_thinking"}, _first),
    "blocks and ends": _ends,
    "unknown": _each(lambda number: {"type": f"odd{number}"}),
}


def _candidate(part: Any, **fields: Any) -> Frames:
    return _each(lambda number: {"candidates": [{"content": {"parts": [part]}, **fields}]})


GEMINI: dict[str, Frames] = {
    "text": _candidate({"text": "a"}),
    "thoughts": _candidate({"text": "a", "thought": True, "thoughtSignature": "s"}),
    "calls": _candidate({"functionCall": {"name": "f", "args": {"a": 1}}}),
    "odd parts": _candidate({"odd": "a"}),
    "odd fields": _candidate({"text": "a"}, citations={"sources": [{"uri": "a"}]}, note="a"),
}


def _message(**fields: Any) -> Frames:
    return _each(lambda number: {"model": "m", "done": False, "message": fields})


OLLAMA: dict[str, Frames] = {
    "text": _message(content="a"),
    "thoughts": _message(thinking="a"),
    "calls": _message(tool_calls=[{"function": {"name": "f", "arguments": {"a": 1}}}]),
    "odd fields": _message(odd="a"),
    "odd content": _message(content=[1]),
}


def _bedrock(delta: Any, place: Callable[[int], int]) -> Frames:
    def frames(count: int) -> Iterator[Any]:
        for number in range(count):
            use = {"toolUse": {"toolUseId": f"t{number}", "name": "f"}}
            start = {"start": use, "contentBlockIndex": place(number)}
            if number == 0 or place(number):
                yield {"contentBlockStart": start}
            yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": place(number)}}

    return frames


BEDROCK: dict[str, Frames] = {
    "text": _bedrock({"text": "a"}, _first),
    "arguments": _bedrock({"toolUse": {"input": "{"}}, _first),
    "calls": _bedrock({"toolUse": {"input": "{"}}, int),
    "thoughts": _bedrock({"reasoningContent": {"text": "a"}}, _first),
    "odd": _bedrock({"odd": "a"}, int),
}

_PARSERS: tuple[tuple[type[Any], dict[str, Frames]], ...] = (
    (OpenAIChatParser, CHAT),
    (OpenAIResponsesParser, RESPONSES),
    (AnthropicParser, ANTHROPIC),
    (GeminiParser, GEMINI),
    (OllamaParser, OLLAMA),
    (BedrockParser, BEDROCK),
)
_CASES = [
    pytest.param(parser, frames, id=f"{parser.__name__}: {name}")
    for parser, several in _PARSERS
    for name, frames in several.items()
]


def _take(parser: Any, frames: list[Any]) -> None:
    """Feed all frames, put their deltas into events, and the answer together."""
    batcher = Batcher("a")
    for number, frame in enumerate(frames):
        batcher.add(parser.feed(frame), number / 1_000)
    batcher.take(len(frames))
    parser.partial()
    parser.message()


@pytest.mark.parametrize(("parser", "frames"), _CASES)
def test_a_stream_costs_what_it_is_long(parser: type[Any], frames: Frames) -> None:
    """Items without a place were looked for among all; ends closed every block once more."""

    def work(count: int) -> Callable[[], None]:
        fed = list(frames(count))
        return lambda: _take(parser(), fed)

    assert_linear(work, _SIZE)


def test_frames_that_tell_nothing_are_looked_at_once() -> None:
    """A stream whose specification shows late, or never, is kept so far."""

    def work(count: int) -> Callable[[], None]:
        fed = [{"odd": number} for number in range(count)]
        return lambda: _take(parser_for(fed[0]), fed)

    assert_linear(work, _SIZE)


def test_an_answer_told_by_hand() -> None:
    """Piece by piece, and then as a whole."""

    def work(count: int) -> Callable[[], None]:
        def tell() -> None:
            parser = ByHand()
            for _ in range(count):
                parser.say("a", "b")
            calls = [{"name": "f", "arguments": "{}"}] * count
            parser.tell("a" * count, None, calls, None, None)
            parser.message()

        return tell

    assert_linear(work, _SIZE)


def test_depth_is_cut() -> None:
    """However deep a frame is, a hundred levels of it are looked at."""

    def taken(levels: int) -> int:
        frame = {"choices": [{"delta": {"odd": _deep(levels)}}]}
        return steps_of(lambda: _take(OpenAIChatParser(), [frame]))

    assert taken(400) <= taken(150) + 10
    line = "data: " + json.dumps({"a": "b"})[:-1] * 10_000
    assert steps_of(lambda: _take(OpenAIChatParser(), [line])) < 1_000


def test_pieces_are_not_copied_again() -> None:
    """Log probabilities of each token made a list anew, which held all of those before it."""
    whole = Growing()
    held = []
    for number in range(100):
        whole.add({"content": [{"token": "a"}], "text": "a", "of": {"one": [number]}})
        held.append((whole._fields["content"], whole._fields["text"]))
    assert all(each[0] is held[1][0] and each[1] is held[1][1] for each in held[1:])
    found = whole.value()
    assert (100, "a" * 100, 100) == (len(found["content"]), found["text"], len(found["of"]["one"]))
