"""Events of OpenAI's Responses beyond those in the recorded streams."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import OtherPart, ReasoningPart, TextPart
from projections.providers import Delta, read_response
from tests.unit.streams.recorded import fed, fed_deltas, text_of

CREATED = {"type": "response.created", "response": {"id": "r", "model": "gpt-5"}}
MESSAGE = {"type": "message", "id": "msg", "role": "assistant", "content": []}
CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": ""}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    """Return an event."""
    return {"type": f"response.{kind}", **fields}


def added(index: int, item: Any) -> dict[str, Any]:
    """Return the event that begins an output item."""
    return event("output_item.added", output_index=index, item=item)


def completed(*output: Any, **fields: Any) -> dict[str, Any]:
    """Return the last event."""
    body = {"id": "r", "status": "completed", "output": list(output), **fields}
    return event("completed", response=body)


def spoken(text: str) -> dict[str, Any]:
    """Return a message that is done."""
    return {**MESSAGE, "content": [{"type": "output_text", "text": text}]}


def said(piece: str, index: int = 0) -> dict[str, Any]:
    """Return a piece of text."""
    return event("output_text.delta", output_index=index, content_index=0, delta=piece)


def test_parallel_calls_are_told_apart() -> None:
    """Arguments arrive in pieces and interleaved by the place of the item."""
    other = {**CALL, "id": "fd", "call_id": "d", "name": "g"}
    pieces = [(0, '{"a"'), (1, '{"b"'), (0, ":1}"), (1, ":2}")]
    chunks = [CREATED, added(0, CALL), added(1, other)]
    chunks += [
        event("function_call_arguments.delta", output_index=index, delta=piece)
        for index, piece in pieces
    ]
    assert [("c", "f", {"a": 1}), ("d", "g", {"b": 2})] == [
        (call.provider_id, call.name, call.arguments) for call in fed(chunks).message().tool_calls
    ]


@pytest.mark.parametrize(
    "ending",
    [
        event("output_text.done", output_index=0, content_index=0, text="hello"),
        event("content_part.done", output_index=0, part={"type": "output_text", "text": "hello"}),
        event("output_item.done", output_index=0, item=spoken("hello")),
        completed(spoken("hello")),
        completed({**spoken("hello"), "id": "another"}),
    ],
)
def test_what_the_deltas_left_out_is_added(ending: dict[str, Any]) -> None:
    """A stream that skips deltas still gives the whole text, once."""
    parser, deltas = fed_deltas([CREATED, added(0, MESSAGE), said("hel"), ending, ending])
    assert ("hello", Delta(text="lo"), "") == (text_of(parser), deltas[3], deltas[4].text)


def test_the_final_text_wins_over_what_was_streamed() -> None:
    """The provider bills and remembers the final object; what was shown before stays told."""
    parser, deltas = fed_deltas(
        [CREATED, added(0, MESSAGE), said("hello"), completed(spoken("good bye"))]
    )
    message = parser.message()
    assert ("good bye", [spoken("good bye")]) == (text_of(parser), message.raw["output"])
    assert message.raw["replaced"] == [{"kind": "text", "streamed": "hello"}]
    told = {"type": "replaced", "kind": "text", "streamed": "hello", "text": "good bye"}
    assert deltas[-1].raw == (told,)


def test_a_lost_piece_in_the_middle_is_made_good() -> None:
    """The pieces are not a prefix of the whole then."""
    chunks = [CREATED, added(0, MESSAGE), said("hel"), said("world")]
    assert text_of(fed([*chunks, completed(spoken("hello world"))])) == "hello world"


@pytest.mark.parametrize("whole", ["", "hel"])
def test_a_shorter_repetition_says_nothing_when_it_is_empty(whole: str) -> None:
    """Some servers repeat an empty text; any other is what the server takes for said."""
    parser = fed([CREATED, added(0, MESSAGE), said("hello"), completed(spoken(whole))])
    assert text_of(parser) == (whole or "hello")


def test_the_final_arguments_win_over_what_was_streamed() -> None:
    """What a tool was run with and what the provider remembers must be one thing."""
    piece = event("function_call_arguments.delta", output_index=0, delta='{"a":')
    parser = fed([CREATED, added(0, CALL), piece, completed({**CALL, "arguments": '{"b":1}'})])
    assert parser.message().tool_calls[0].arguments == {"b": 1}
    assert parser.partial().tool_calls[0].arguments_text == '{"b":1}'


SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "call_1",
    "action": {"commands": ["ls"]},
    "status": "completed",
}


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        ({**SHELL, "environment": {"type": "local"}}, "shell", {"commands": ["ls"]}),
        (
            {**SHELL, "type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}},
            "local_shell",
            {"type": "exec", "command": ["ls"]},
        ),
        (
            {**SHELL, "type": "apply_patch_call", "operation": {"type": "delete_file"}},
            "apply_patch",
            {"type": "delete_file"},
        ),
        (
            {"type": "computer_call", "call_id": "call_1", "action": {"type": "screenshot"}},
            "computer",
            {"type": "screenshot"},
        ),
        (
            {"type": "computer_call", "call_id": "call_1", "actions": [{"type": "wait"}]},
            "computer",
            {"actions": [{"type": "wait"}]},
        ),
        (
            {
                "type": "tool_search_call",
                "call_id": "call_1",
                "execution": "client",
                "arguments": {"goal": "mail"},
            },
            "tool_search",
            {"goal": "mail"},
        ),
    ],
)
def test_what_the_product_must_do_is_a_call(
    item: dict[str, Any], name: str, arguments: dict[str, Any]
) -> None:
    """The endpoint waits for its output as it does for that of a function."""
    done = event("output_item.done", output_index=0, item=item)
    message = fed([CREATED, added(0, item), done, completed(item)]).message()
    (call,) = message.tool_calls
    assert (call.name, call.provider_id, call.arguments) == (name, "call_1", arguments)
    assert (call.raw, message.parts) == ({"type": item["type"]}, ())


@pytest.mark.parametrize(
    "item",
    [
        {**SHELL, "environment": {"type": "container_reference", "container_id": "cntr_1"}},
        {"type": "tool_search_call", "id": "tsc_1", "execution": "server", "arguments": {}},
    ],
)
def test_what_the_provider_did_itself_is_no_call(item: dict[str, Any]) -> None:
    """Its output stands in the same response."""
    done = event("output_item.done", output_index=0, item=item)
    message = fed([CREATED, added(0, item), done, completed(item)]).message()
    assert (message.tool_calls, message.parts) == ((), (OtherPart(raw=item),))


def test_ids_that_change_on_the_way_do_not_matter() -> None:
    """Some servers encrypt the id of an item anew in each event."""
    chunks = [CREATED, added(0, MESSAGE), {**said("a"), "item_id": "x"}]
    assert "ab" == text_of(fed([*chunks, {**said("b"), "item_id": "y"}]))


def test_an_item_that_was_not_added_is_begun() -> None:
    """A stream that was joined late still gives its text and calls."""
    piece = event("function_call_arguments.delta", output_index=1, delta="{}")
    done = event("output_item.done", output_index=1, item={**CALL, "arguments": "{}"})
    parser = fed([said("a"), piece, done])
    call = parser.message().tool_calls[0]
    assert ("a", "f", "c", "{}") == (
        text_of(parser),
        call.name,
        call.provider_id,
        call.arguments_text,
    )


def test_reasoning_is_kept_to_be_sent_back() -> None:
    """Summaries are text; what is encrypted goes back with the id of the item."""
    item = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "so"}]}
    item |= {"encrypted_content": "xyz"}
    chunks = [CREATED, added(0, {"type": "reasoning", "id": "rs", "summary": []})]
    chunks += [event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="so")]
    chunks += [event("output_item.done", output_index=0, item=item), completed(item, spoken("yes"))]
    message = fed(chunks).message()
    reasoning = ReasoningPart(text="so", signature="xyz", raw={"type": "reasoning", "id": "rs"})
    assert (reasoning, TextPart(text="yes")) == message.parts


def test_reasoning_without_a_summary_is_kept() -> None:
    """Most reasoning is encrypted and has no text at all."""
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xyz"}
    done = event("output_item.done", output_index=0, item=item)
    (part,) = fed([CREATED, done, completed(item)]).message().parts
    assert ("", "xyz") == (getattr(part, "text", None), getattr(part, "signature", None))


def test_reasoning_that_is_told_of_again_is_one_part() -> None:
    """The last event repeats all items, when other reasoning has followed the first."""
    items = [
        {"type": "reasoning", "id": name, "summary": [], "encrypted_content": name} for name in "ab"
    ]
    done = [event("output_item.done", output_index=at, item=item) for at, item in enumerate(items)]
    parts = fed([CREATED, *done, completed(*items)]).message().parts
    assert ["a", "b"] == [getattr(part, "signature", None) for part in parts]


def test_a_refusal_is_no_text() -> None:
    """The model's words for refusing stand in a part of their own."""
    parser = fed([CREATED, added(0, MESSAGE), event("refusal.delta", output_index=0, delta="no")])
    assert ("no", "") == (text_of(parser, "refusal"), text_of(parser))


def test_what_the_provider_runs_itself_is_kept_as_it_came() -> None:
    """A search is not a call of ours; it is one part, however often it is told of."""
    item = {"type": "web_search_call", "id": "ws", "status": "completed"}
    done = event("output_item.done", output_index=0, item=item)
    parser, deltas = fed_deltas([CREATED, added(0, item), done, completed(item)])
    assert (OtherPart(raw=item),) == parser.message().parts
    assert [(), (), (done | {},), ()] == [
        tuple({**raw, "output_index": 0} for raw in delta.raw) for delta in deltas
    ]


def test_output_that_the_last_event_leaves_empty_is_what_was_done() -> None:
    """Some servers do not repeat the output at the end."""
    done = event("output_item.done", output_index=0, item=spoken("a"))
    assert {"output": [spoken("a")]} == fed([CREATED, done, completed()]).message().raw


def test_an_incomplete_response_is_finished_and_says_why() -> None:
    """The limit of tokens ends an answer; it is not an error."""
    body = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    parser = fed([CREATED, said("a"), event("incomplete", response=body)])
    assert (True, "max_output_tokens") == (parser.finished, parser.message().finish_reason)
    assert parser.error is None


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ({"type": "error", "code": "server_error", "message": "no"}, ("provider", True)),
        ({"type": "error", "error": {"code": "rate_limit_exceeded"}}, ("rate_limit", True)),
        (event("failed", response={"error": {"code": "invalid_prompt"}}), ("invalid", False)),
        (event("failed", response={"status": "failed", "error": None}), ("provider", True)),
        (event("cancelled", response={"status": "cancelled"}), ("cancelled", False)),
    ],
)
def test_a_failure_in_the_stream_is_told(failure: Any, expected: tuple[Any, ...]) -> None:
    """A failed response is not complete, and what was said stays."""
    parser = fed([CREATED, said("half"), failure])
    assert parser.error is not None
    assert expected == (parser.error.kind, parser.error.retryable)
    assert (False, "half") == (parser.finished, parser.partial().text)


def test_a_whole_response_is_read() -> None:
    """A response that was not streamed gives its text, its calls and its output."""
    output = [spoken("yes"), {**CALL, "arguments": '{"a": 1}'}]
    message = read_response({"object": "response", "id": "r", "output": output}).message()
    assert ((TextPart(text="yes"),), {"a": 1}) == (message.parts, message.tool_calls[0].arguments)
    assert ("r", {"output": output}) == (message.response_id, message.raw)


@pytest.mark.parametrize("streamed", [True, False])
def test_what_a_response_says_beside_its_output_is_kept(streamed: bool) -> None:
    """The tier that is paid for and what a server adds are kept, but not what was asked."""
    beside = {"service_tier": "flex", "content_filters": [{"blocked": False}]}
    last = completed(spoken("a"), **beside, instructions="Be brief.", metadata={}, usage=None)
    message = (
        fed([CREATED, last]).message() if streamed else read_response(last["response"]).message()
    )
    assert {"output": [spoken("a")], "response": beside} == message.raw
