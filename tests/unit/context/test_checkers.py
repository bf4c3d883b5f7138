"""The checker of OpenAI's chat format must find what the endpoint refuses, or it proves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checkers import check_openai_messages

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
