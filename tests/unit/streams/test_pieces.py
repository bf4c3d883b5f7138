"""Placeholders, ends, and pieces of calls, as routers and servers send them."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore.machines.call_script import CallScript, UnknownChunk
from eventstore.events import Meta
from projections.providers import StreamParser, read_response
from tests.unit.streams.recorded import fed, fed_deltas, text_of
from tests.unit.streams.test_chat_calls import chunk as calling
from tests.unit.streams.test_chat_calls import piece

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def chat(delta: dict[str, Any], finish: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **fields}


def calls_of(parser: StreamParser) -> list[tuple[str, Any]]:
    """Return the names and arguments of an answer's calls."""
    return [(call.name, call.arguments) for call in parser.message().tool_calls]


def ended(chunks: list[Any], *, closed: bool = False) -> StreamParser:
    """Return a parser that was fed these chunks, and the end of the stream."""
    parser = fed(chunks)
    parser.end(closed=closed)
    return parser


def recorded(chunks: list[Any]) -> CallScript:
    """Return a model call that was fed these chunks."""
    script = CallScript(Meta(), 0.0)
    for each in chunks:
        script.feed(each, 0.0)
    script.end(0.0)
    return script


_EMPTY: dict[str, Any] = {"function_call": {"name": "", "arguments": ""}, "tool_calls": None}
_GEMINI = {"functionCall": {"name": "", "args": {}}}
_ITEM = {"type": "function_call", "id": "", "call_id": "", "name": "", "arguments": ""}
PLACEHOLDERS: dict[str, dict[str, Any]] = {
    "chat": {"choices": [{"finish_reason": "", "message": {"content": "hi", **_EMPTY}}]},
    "chat, lists": {"choices": [{"message": {"content": "hi", "tool_calls": [{}, None]}}]},
    "chat, custom": {
        "choices": [
            {"message": {"content": "hi", "tool_calls": [{"id": "", "custom": {"name": ""}}]}}
        ]
    },
    "responses": {
        "object": "response",
        "output": [
            _ITEM,
            {},
            {"type": "message", "content": [None, {"type": "output_text", "text": "hi"}]},
        ],
    },
    "anthropic": {
        "type": "message",
        "content": [
            {},
            {"type": "tool_use", "id": "", "name": "", "input": {}},
            {"type": "text", "text": "hi", "citations": None},
        ],
    },
    "gemini": {"candidates": [{"content": {"parts": [_GEMINI, {}, {"text": "hi"}]}}]},
    "interactions": {
        "object": "interaction",
        "status": "completed",
        "steps": [
            {"type": "function_call", "id": "", "name": "", "arguments": {}},
            {"type": "model_output", "content": [{"type": "text", "text": "hi"}]},
            {},
        ],
    },
    "ollama": {
        "done": True,
        "message": {"content": "hi", "tool_calls": [{"function": {"name": "", "arguments": {}}}]},
    },
    "cohere": {
        "finish_reason": "COMPLETE",
        "message": {
            "content": [{"type": "text", "text": "hi"}],
            "tool_calls": [{"id": "", "function": {"name": "", "arguments": ""}}],
        },
    },
    "bedrock": {
        "output": {
            "message": {
                "content": [
                    {"toolUse": {"toolUseId": "", "name": "", "input": {}}},
                    {"text": "hi", "toolUse": None},
                    {},
                ]
            }
        }
    },
}


@pytest.mark.parametrize("shape", PLACEHOLDERS)
def test_placeholders_are_nothing(shape: str) -> None:
    """An empty call was a call of a tool without a name, which a loop runs."""
    parser = read_response(PLACEHOLDERS[shape])
    assert ([], "hi", ["text"]) == (
        calls_of(parser),
        text_of(parser),
        [part.kind for part in parser.message().parts],
    )


def test_an_empty_variant_of_a_call_is_nothing() -> None:
    """Some servers send all variants of a call, one of them filled."""
    call = {"id": "t", "custom": {"name": "", "input": ""}}
    call |= {"function": {"name": "f", "arguments": '{"a":1}'}}
    message = {"content": "", **_EMPTY, "tool_calls": [call]}
    parser = read_response({"choices": [{"message": message, "finish_reason": ""}]})
    assert [("f", {"a": 1})] == calls_of(parser)


def test_a_call_that_comes_under_both_names_is_one() -> None:
    """Servers that support old clients send ``function_call`` with ``tool_calls``."""
    function = {"name": "f", "arguments": '{"a":1}'}
    message = {"function_call": function, "tool_calls": [{"id": "t", "function": function}]}
    assert [("f", {"a": 1})] == calls_of(read_response({"choices": [{"message": message}]}))


def test_a_call_without_a_name_is_kept_but_no_call() -> None:
    """It cannot run; what was received of it is in ``raw``."""
    message = fed([calling(piece('{"a":1}', index=0, id="x"), finish="tool_calls")]).message()
    assert ((), {"unnamed_calls": [{"id": "x", "arguments": '{"a":1}'}]}) == (
        message.tool_calls,
        message.raw,
    )


@pytest.mark.parametrize("reason", [None, "", "null", "None"])
@pytest.mark.parametrize(
    "end",
    [
        [{"choices": [], "usage": USAGE}],
        [chat({"content": ""}, usage=USAGE)],
        ["data: [DONE]"],
    ],
)
def test_a_stream_that_ends_in_order_is_an_answer(reason: Any, end: list[Any]) -> None:
    """Some routers send no finish reason: the usage, or the mark of the end, completes it."""
    script = recorded([chat({"content": "4"}, reason), calling(piece("{}", "f", index=0)), *end])
    assert script.message is not None
    assert ["f"] == [call.name for call in script.message.tool_calls]


@pytest.mark.parametrize(
    "chunks",
    [
        [chat({"content": "4"})],
        [chat({"content": "4"}, usage=USAGE), chat({"content": "2"}, usage=USAGE)],
        [calling(piece('{"a"', "f", index=0)), {"choices": [], "usage": USAGE}],
    ],
    ids=["no mark", "running total", "half a call"],
)
def test_a_stream_that_breaks_is_an_error(chunks: list[Any]) -> None:
    """A running total and half a call say that more was to come; what came is kept."""
    script = recorded(chunks)
    assert script.error is not None
    assert "network" == script.error.kind
    assert script.error.partial_text or script.error.partial_tool_calls


def test_an_end_mark_that_an_sdk_hides_completes_an_answer() -> None:
    """The client sees the mark, and says so."""
    assert ended([chat({"content": "4"})], closed=True).finished
    assert not ended([chat({"role": "assistant"})], closed=True).finished


def test_counts_of_the_whole_answer_complete_one_of_anthropics() -> None:
    """They come after the last block; a stop reason may be missing."""
    start = {"type": "message_start", "message": {"id": "m"}}
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}}
    stop = {"type": "content_block_stop"}
    counts = {"type": "message_delta", "delta": {"stop_reason": None}}
    counts["usage"] = {"output_tokens": 3}
    assert ended([start, text, stop, counts]).finished
    assert not ended([start, text, counts]).finished


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_an_answer_in_the_background_is_none_yet(status: str) -> None:
    """It was stored as an empty final answer; the finished one takes its place."""
    queued = {"object": "response", "id": "r", "status": status, "output": []}
    text = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    whole = {**queued, "status": "completed", "output": [text]}
    script, left = CallScript(Meta(), 0.0), CallScript(Meta(), 0.0)
    assert [] == script.respond(queued, 0.0) == left.respond(queued, 0.0)
    script.respond(whole, 0.0)
    left.end(0.0)

    assert script.message is not None
    assert "completed" == script.message.finish_reason
    assert left.error is not None
    assert ("interrupted", False, {"response_id": "r", "status": status}) == (
        left.error.kind,
        left.error.retryable,
        left.error.raw,
    )


def test_text_and_content_are_one_text() -> None:
    """A server that supports two APIs sends each word under both names."""
    first, last = chat({"content": "Okay"}), chat({"content": ", then"}, "stop")
    for each in (first, last):
        each["choices"][0]["text"] = each["choices"][0]["delta"]["content"]
    assert "Okay, then" == text_of(fed([first, last]))


def test_a_whole_message_at_the_end_is_no_second_one() -> None:
    """What the deltas lacked is added."""
    last = chat({}, "stop")
    last["choices"][0]["message"] = {"role": "assistant", "content": "hello"}
    assert "hello" == text_of(fed([chat({"content": "hel"}), chat({"content": "l"}), last]))


def test_a_message_of_anthropics_may_begin_twice() -> None:
    """A proxy sends a start of its own; nothing is lost before the first block."""
    start = {"type": "message_start", "message": {"id": "m"}}
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}}
    parser = fed([start, start, text, {"type": "message_stop"}])
    assert ("hi", None, True) == (text_of(parser), parser.error, parser.finished)
    assert fed([start, text, start]).error is not None


CHAT_PIECES: dict[str, list[Any]] = {
    "numbers that rise": [
        calling(piece("", "f", index=0, id="x")),
        calling(piece('{"a":', index=1)),
        calling(piece("1}", index=2)),
    ],
    "numbers that rise, empty names": [
        calling(piece("", "f", index=0, id="x")),
        calling(piece('{"a":', "", index=1, id="")),
        calling(piece("1}", "", index=2, id="")),
    ],
    "numbers that rise, new ids": [
        calling(piece("", "f", index=0, id="x")),
        calling(piece('{"a":', index=1, id="p")),
        calling(piece("1}", index=2, id="q")),
    ],
    "a name in each piece, no number": [
        calling(piece('{"a":', "f")),
        calling(piece("1}", "f")),
    ],
    "a name and a new id in each piece": [
        calling(piece('{"a":', "f", index=0, id="x")),
        calling(piece("1}", "f", index=0, id="y")),
    ],
    "a value, then text": [
        calling(piece({}, "f", index=0, id="x")),
        calling(piece('{"a":', index=0)),
        calling(piece("1}", index=0)),
    ],
    "a value, then the same as text": [
        calling(piece({"a": 1}, "f", index=0, id="x")),
        calling(piece('{"a": 1}', index=0)),
    ],
    "text, then the same as a value": [
        calling(piece('{"a":1}', "f", index=0, id="x")),
        calling(piece({"a": 1}, "f", index=0, id="x")),
    ],
    "the whole again without a name": [
        calling(piece('{"a":', "f", index=0, id="x")),
        calling(piece("1}", index=0)),
        calling(piece('{"a": 1}', index=0)),
    ],
    "an empty list for no arguments yet": [
        calling(piece([], "f", index=0, id="x")),
        calling(piece('{"a":1}', index=0)),
    ],
}


@pytest.mark.parametrize("sent", CHAT_PIECES)
def test_pieces_of_one_call(sent: str) -> None:
    """However a server marks them, they are one call with its arguments."""
    parser = fed([*CHAT_PIECES[sent], chat({}, "tool_calls")])
    assert [("f", {"a": 1})] == calls_of(parser)


def test_calls_whose_numbers_rise_are_told_apart() -> None:
    """A number may have been one of a piece of an earlier call."""
    chunks = [
        calling(piece("", "f", index=0, id="x")),
        calling(piece('{"a":', index=1)),
        calling(piece("1}", index=2)),
        calling(piece("", "g", index=1, id="y")),
        calling(piece('{"b":', index=2)),
        calling(piece("2}", index=3)),
    ]
    assert [("f", {"a": 1}), ("g", {"b": 2})] == calls_of(fed([*chunks, chat({}, "tool_calls")]))


def test_whole_calls_with_one_id_are_told_apart() -> None:
    """In a whole answer each entry is a call, whatever its id."""
    calls = [{"id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}] * 2
    parser = read_response({"choices": [{"message": {"tool_calls": calls}}]})
    assert [("f", {"a": 1})] * 2 == calls_of(parser)


def test_calls_of_responses_with_one_number() -> None:
    """Two items with one output index are told apart by their ids."""

    def added(name: str, call: str) -> dict[str, Any]:
        item = {"type": "function_call", "id": f"i{call}", "call_id": call, "name": name}
        return {"type": "response.output_item.added", "output_index": 0, "item": item}

    def delta(call: str, text: str) -> dict[str, Any]:
        kind = "response.function_call_arguments.delta"
        return {"type": kind, "output_index": 0, "item_id": f"i{call}", "delta": text}

    chunks = [added("f", "x"), added("g", "y"), delta("x", '{"a":1}'), delta("y", '{"b":2}')]
    assert [("f", {"a": 1}), ("g", {"b": 2})] == calls_of(fed(chunks))


def test_messages_of_responses_with_one_number() -> None:
    """The second one took the place of the first."""

    def event(name: str, text: str) -> dict[str, Any]:
        kind = "response.output_text.delta"
        return {"type": kind, "output_index": 0, "item_id": name, "delta": text}

    items = [{"type": "message", "id": name, "content": []} for name in "ab"]
    starts = [
        {"type": "response.output_item.added", "output_index": 0, "item": item} for item in items
    ]
    chunks = [starts[0], event("a", "one "), starts[1], event("b", "two"), event("a", "more")]
    assert "one twomore" == text_of(fed(chunks))


def test_events_of_responses_that_come_again_are_nothing() -> None:
    """A stream that is resumed repeats events by their numbers."""
    text = {"type": "response.output_text.delta", "output_index": 0, "delta": "a"}
    events = [{**text, "sequence_number": number} for number in (1, 2, 2, 3)]
    assert "aaa" == text_of(fed(events))


def test_arguments_of_gemini_in_pieces() -> None:
    """Each piece names the place of the value that it adds to."""

    def part(**call: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"functionCall": call}]}}]}

    def partial(path: str, **value: Any) -> dict[str, Any]:
        return part(partialArgs=[{"jsonPath": path, **value}], willContinue=True)

    chunks = [
        part(name="f", id="c", willContinue=True),
        partial("$.loc", stringValue="Bos", willContinue=True),
        partial("$.loc", stringValue="ton"),
        partial("$.days[0].n", numberValue=1),
        partial("$.days[1]['a b']", boolValue=False),
        partial("$.none", nullValue="NULL_VALUE"),
        part(),
        part(name="g", args={}),
    ]
    arguments = {"loc": "Boston", "days": [{"n": 1}, {"a b": False}], "none": None}
    parser, deltas = fed_deltas(chunks)
    assert [("f", arguments), ("g", {})] == calls_of(parser)
    piece = {"jsonPath": "$.loc", "stringValue": "Bos", "willContinue": True}
    assert ({"functionCall": {"partialArgs": [piece]}},) == deltas[1].raw


def test_what_was_streamed_of_arguments_is_kept_when_a_stream_breaks() -> None:
    """Also of arguments that come as values."""
    call = {"name": "f", "willContinue": True}
    partial = {"partialArgs": [{"jsonPath": "$.a", "stringValue": "Bos"}], "willContinue": True}
    parts = [{"functionCall": call}, {"functionCall": partial}]
    parser = fed([{"candidates": [{"content": {"parts": parts}}]}])
    assert ['{"a": "Bos"}'] == [each.arguments_text for each in parser.partial().tool_calls]


@pytest.mark.parametrize("sent", ["Hello.", b"\xff\xfe", "<html>"])
def test_text_that_is_no_event_is_reported(sent: Any) -> None:
    """It is in the log, and not lost in silence."""
    script = CallScript(Meta(), 0.0)
    script.feed(chat({"content": "a"}), 0.0)
    with pytest.warns(UnknownChunk, match="text that is no event"):
        script.feed(sent, 0.0)
