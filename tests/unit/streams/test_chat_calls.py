"""Tool calls in chunks of chat completions, as OpenAI and compatible servers send them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.streams.recorded import fed

Piece = dict[str, Any]


def piece(arguments: Any = None, name: str | None = None, **fields: Any) -> Piece:
    """Return a piece of a tool call."""
    return {**fields, "function": {"name": name, "arguments": arguments}}


def chunk(*pieces: Any, finish: str | None = None) -> dict[str, Any]:
    """Return a chunk with these pieces."""
    return {"choices": [{"delta": {"tool_calls": list(pieces)}, "finish_reason": finish}]}


A, B = '{"a":1}', '{"b":2}'

SERVERS = {
    "interleaved by number": [
        chunk(piece("", "f", index=0, id="x"), piece("", "g", index=1, id="y")),
        chunk(piece('{"a"', index=0)),
        chunk(piece('{"b"', index=1)),
        chunk(piece(":1}", index=0), piece(":2}", index=1)),
    ],
    "numbered from one": [
        chunk(piece(A, "f", index=1, id="x")),
        chunk(piece(B, "g", index=2, id="y")),
    ],
    "numbers as texts": [
        chunk(piece('{"a"', "f", index="0", id="x"), piece(B, "g", index="1", id="y")),
        chunk(piece(":1}", index="0")),
    ],
    "no numbers, whole calls": [
        chunk(piece(A, "f", id="x")),
        chunk(piece(B, "g", id="y")),
    ],
    "no numbers, pieces by id": [
        chunk(piece("", "f", id="x"), piece("", "g", id="y")),
        chunk(piece(A, id="x")),
        chunk(piece(B, id="y")),
    ],
    "no numbers, pieces by place": [
        chunk(piece('{"a"', "f", id="x"), piece('{"b"', "g", id="y")),
        chunk(piece(":1}"), piece(":2}")),
    ],
    "no numbers, the rest without an id": [
        chunk(piece("", "f", id="x")),
        chunk(piece(A)),
        chunk(piece("", "g", id="y")),
        chunk(piece(B)),
    ],
    "every call has the number 0": [
        chunk(piece(A, "f", index=0, id="x")),
        chunk(piece(B, "g", index=0, id="y")),
    ],
    "id and name with each piece": [
        chunk(piece('{"a"', "f", index=0, id="x"), piece('{"b"', "g", index=1, id="y")),
        chunk(piece(":1}", "f", index=0, id="x"), piece(":2}", "g", index=1, id="y")),
    ],
    "a new id with each piece": [
        chunk(piece('{"a"', "f", index=0, id="x"), piece('{"b"', "g", index=1, id="y")),
        chunk(piece(":1}", index=0, id="p"), piece(":2}", index=1, id="q")),
    ],
    "the whole calls again at the end": [
        chunk(piece(A, "f", index=0, id="x"), piece(B, "g", index=1, id="y")),
        chunk(piece(A, "f", index=0, id="x"), piece(B, "g", index=1, id="y"), finish="tool_calls"),
    ],
    "arguments as objects": [
        chunk(piece({"a": 1}, "f", index=0, id="x"), piece({"b": 2}, "g", index=1, id="y")),
    ],
    "empty ids and null names afterwards": [
        chunk(piece(None, "f", index=0, id="x"), piece("", "g", index=1, id="y")),
        chunk(piece(A, None, index=0, id=""), piece(B, "", index=1, id=None)),
    ],
    "a name in pieces": [
        chunk(piece("", "", index=0, id="x"), piece("", "g", index=1, id="y")),
        chunk(piece("", "f", index=0)),
        chunk(piece(A, index=0), piece(B, index=1)),
    ],
}


@pytest.mark.parametrize("server", SERVERS)
def test_parallel_calls_are_told_apart(server: str) -> None:
    """However a server marks the pieces, two calls come out with their own ids and arguments."""
    calls = fed(SERVERS[server]).message().tool_calls
    assert [("x", "f", {"a": 1}), ("y", "g", {"b": 2})] == [
        (call.provider_id, call.name, call.arguments) for call in calls
    ]


def test_calls_without_ids_are_told_apart_by_their_arguments() -> None:
    """Two calls of one tool under the number 0, without ids, are two once the first is whole."""
    chunks = [chunk(piece(A, "f", index=0)), chunk(piece(B, "f", index=0))]
    assert [A, B] == [call.arguments_text for call in fed(chunks).message().tool_calls]


def test_calls_of_one_tool_under_the_number_0_are_told_apart_by_id() -> None:
    """A new id with a name is a new call, though number and name are the same."""
    pieces = [piece(text, "f", index=0, id=name) for name, text in (("x", A), ("y", B))]
    calls = fed([chunk(piece) for piece in pieces]).message().tool_calls
    assert [("x", A), ("y", B)] == [(call.provider_id, call.arguments_text) for call in calls]


def test_a_legacy_function_call_is_a_tool_call() -> None:
    """``function_call`` has neither id nor number, and there is one of it."""
    deltas: list[Piece] = [{"name": "f", "arguments": ""}, {"arguments": '{"a"'}]
    deltas.append({"arguments": ":1}"})
    chunks = [{"choices": [{"delta": {"function_call": delta}}]} for delta in deltas]
    (call,) = fed(chunks).message().tool_calls
    assert ("f", {"a": 1}, None) == (call.name, call.arguments, call.provider_id)


@pytest.mark.parametrize("text", ['{"a": NaN}', "[1]", "3", '{"a": 1', "null", '{"a": 1e999}'])
def test_arguments_that_are_no_object_are_kept_with_the_error(text: str) -> None:
    """The raw text stays, and the error stands in place of the parsed form."""
    (call,) = fed([chunk(piece(text, "f", index=0), finish="tool_calls")]).message().tool_calls
    assert (text, None, True) == (call.arguments_text, call.arguments, bool(call.parse_error))


def test_no_text_means_no_arguments_once_the_answer_is_complete() -> None:
    """Servers send an empty text for a tool without parameters."""
    (call,) = fed([chunk(piece("", "f", index=0), finish="tool_calls")]).message().tool_calls
    assert ("", {}, None) == (call.arguments_text, call.arguments, call.parse_error)


def test_no_text_means_nothing_while_the_answer_goes_on() -> None:
    """A call that was cut off before its arguments began is not one without arguments."""
    (call,) = fed([chunk(piece("", "f", index=0))]).message().tool_calls
    assert (None, True) == (call.arguments, bool(call.parse_error))


def test_what_a_server_adds_to_a_call_is_kept() -> None:
    """Gemini demands the signature of its thought back with the call."""
    extra = {"google": {"thought_signature": "c2ln"}}
    chunks = [chunk(piece("{}", "f", index=0, id="x", extra_content=extra))]
    assert {"extra_content": extra} == fed(chunks).message().tool_calls[0].raw


def test_a_custom_tool_takes_text() -> None:
    """The input of a custom tool is not JSON, and is not parsed even where it looks like it."""
    custom = {"index": 0, "id": "x", "type": "custom", "custom": {"name": "sql", "input": "{}"}}
    (call,) = fed([chunk(custom)]).message().tool_calls
    assert ("sql", "{}", None) == (call.name, call.arguments_text, call.arguments)
