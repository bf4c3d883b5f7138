"""The checkers must find what the endpoints refuse, or they prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checkers import anthropic_messages, check_openai_messages, openai_responses

USER = {"role": "user", "content": "hi"}


def asked(*ids: str, name: str = "f") -> dict[str, Any]:
    """Return an assistant message with calls."""
    function = {"name": name, "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answer(wire_id: str) -> dict[str, Any]:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": wire_id, "content": "x"}


def test_a_valid_request_has_no_problems() -> None:
    """Calls with their results at once and in order are fine."""
    assert check_openai_messages([USER, asked("a", "b"), answer("a"), answer("b"), USER]) == []


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "robot", "content": "hi"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": "hi", "name": "two words"}],
        [{"role": "user", "content": "\ud800"}],
        [{"role": "user", "content": "hi", "hidden": True}],
        [{"role": "assistant", "content": None}],
        [
            {
                "role": "tool",
                "content": [{"type": "image_url", "image_url": {}}],
                "tool_call_id": "a",
            }
        ],
        [answer("a")],
        [asked("a")],
        [asked("a"), USER, answer("a")],
        [asked("a", "b"), answer("b"), answer("a")],
        [asked("a"), answer("b")],
        [asked("a"), answer("a"), answer("a")],
        [asked("a"), answer("a"), asked("a"), answer("a")],
        [asked("a" * 41), answer("a" * 41)],
        [asked(""), answer("")],
        [asked("a", name="bad name"), answer("a")],
    ],
)
def test_what_the_endpoint_refuses_is_found(messages: list[dict[str, Any]]) -> None:
    """Every kind of invalid request has at least one problem."""
    assert check_openai_messages(messages) != []


def item(kind: str, **fields: Any) -> dict[str, Any]:
    """Return an input item; ids that it needs are those of the valid request."""
    given: dict[str, dict[str, Any]] = {
        "function_call": {"call_id": "a", "name": "f", "arguments": "{}"},
        "function_call_output": {"call_id": "a", "output": "x"},
        "reasoning": {"id": "rs", "summary": [], "encrypted_content": "e"},
        "message": {"role": "user", "content": "hi"},
    }
    return {"type": kind, **given.get(kind, {}), **fields}


CALL, OUTPUT, REASONING = item("function_call"), item("function_call_output"), item("reasoning")


def test_valid_input_items_have_no_problems() -> None:
    """Reasoning before what it led to, and calls with their outputs."""
    assert openai_responses({"input": [item("message"), REASONING, CALL, OUTPUT]}) == []


@pytest.mark.parametrize(
    "items",
    [
        [],
        [item("mystery")],
        [item("message", role="robot")],
        [item("message", role="tool")],
        [item("message", content=None)],
        [item("message", content=[])],
        [item("message", content=[{"type": "text", "text": "hi"}])],
        [item("message", content=[{"type": "input_image"}])],
        [item("message", content=[{"type": "input_file", "filename": "x"}])],
        [item("message", name="Ann")],
        [item("message", content="\ud800")],
        [item("message", id="msg")],
        [item("message", role="assistant", phase="other")],
        [CALL],
        [OUTPUT],
        [CALL, OUTPUT, OUTPUT],
        [CALL, OUTPUT, CALL, OUTPUT],
        [OUTPUT, CALL],
        [CALL, {**OUTPUT, "type": "custom_tool_call_output"}],
        [{**CALL, "call_id": "a" * 65}, {**OUTPUT, "call_id": "a" * 65}],
        [{**CALL, "name": "two words"}, OUTPUT],
        [{**CALL, "arguments": {}}, OUTPUT],
        [CALL, item("function_call_output", output=None)],
        [REASONING],
        [REASONING, item("message"), REASONING, item("message")],
        [item("reasoning", encrypted_content=None), item("message")],
        [item("reasoning", id=None), item("message")],
    ],
)
def test_what_responses_refuses_is_found(items: list[dict[str, Any]]) -> None:
    """Every kind of invalid request has at least one problem."""
    assert openai_responses({"input": items}) != []


def turn(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """Return a message of Anthropic's."""
    return {"role": role, "content": list(blocks)}


TEXT = {"type": "text", "text": "hi"}
USE: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
ASK = turn("user", TEXT)
IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "https://x"}}


def test_valid_turns_have_no_problems() -> None:
    """Thinking, calls, and results before text."""
    body = {
        "system": "s",
        "messages": [ASK, turn("assistant", THOUGHT, USE), turn("user", RESULT, TEXT, IMAGE)],
    }
    assert anthropic_messages(body) == []


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [turn("assistant", TEXT), ASK],
        [ASK, ASK],
        [ASK, turn("assistant", TEXT)],
        [turn("system", TEXT)],
        [turn("user")],
        [{"role": "user", "content": [TEXT], "name": "Ann"}],
        [turn("user", {"type": "text", "text": " "})],
        [turn("user", {"type": "text", "text": "\ud800"})],
        [turn("user", THOUGHT)],
        [ASK, turn("assistant", IMAGE), ASK],
        [ASK, turn("assistant", {**THOUGHT, "signature": ""}), ASK],
        [ASK, turn("assistant", USE), ASK],
        [ASK, turn("assistant", USE), turn("user", TEXT, RESULT)],
        [ASK, turn("assistant", USE), turn("user", RESULT, RESULT)],
        [ASK, turn("assistant", USE, USE), turn("user", RESULT, RESULT)],
        [turn("user", RESULT)],
        [
            ASK,
            turn("assistant", USE),
            turn("user", RESULT),
            turn("assistant", USE),
            turn("user", RESULT),
        ],
        [ASK, turn("assistant", {**USE, "input": "x"}), turn("user", RESULT)],
        [ASK, turn("assistant", {**USE, "name": "two words"}), turn("user", RESULT)],
        [
            ASK,
            turn("assistant", {**USE, "id": "a b"}),
            turn("user", {**RESULT, "tool_use_id": "a b"}),
        ],
        [ASK, turn("assistant", USE), turn("user", {**RESULT, "content": ""})],
        [ASK, turn("assistant", USE), turn("user", {**RESULT, "content": [USE]})],
        [turn("user", {**IMAGE, "source": {"type": "url", "url": "http://x"}})],
        [
            turn(
                "user",
                {**IMAGE, "source": {"type": "base64", "media_type": "image/tiff", "data": "A"}},
            )
        ],
        [
            ASK,
            turn("assistant", {"type": "server_tool_use", "id": "s", "name": "f", "input": {}}),
            ASK,
        ],
    ],
)
def test_what_anthropic_refuses_is_found(messages: list[dict[str, Any]]) -> None:
    """Every kind of invalid request has at least one problem."""
    assert anthropic_messages({"messages": messages}) != []


def test_an_empty_system_part_is_found() -> None:
    """Anthropic refuses empty text there too."""
    assert anthropic_messages({"system": " ", "messages": [ASK]}) != []
