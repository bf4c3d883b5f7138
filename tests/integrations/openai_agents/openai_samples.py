"""Items of the OpenAI Agents SDK that tests put into sessions, and a name for each session."""

from __future__ import annotations

from itertools import count
from typing import Any

__all__ = ["TURN", "fresh_id", "said", "turns"]

_numbers = count(1)

Item = dict[str, Any]


def fresh_id() -> str:
    """Return a session id that no other test uses."""
    return f"session-{next(_numbers)}"


def said(text: str, role: str = "user") -> Item:
    """Return a message in short form."""
    return {"role": role, "content": text}


TURN: list[Item] = [
    said("How is the weather in Rome and in Oslo?"),
    {
        "id": "rs_1",
        "summary": [{"text": "Ask twice.", "type": "summary_text"}],
        "type": "reasoning",
    },
    {
        "id": "__fake_id__",
        "call_id": "call_1",
        "name": "weather",
        "arguments": '{"city": "Rome"}',
        "type": "function_call",
    },
    {
        "id": "__fake_id__",
        "call_id": "call_2",
        "name": "weather",
        "arguments": '{"city": "Oslo"}',
        "type": "function_call",
    },
    {"call_id": "call_1", "output": "sunny", "type": "function_call_output"},
    {
        "call_id": "call_2",
        "output": [{"type": "input_text", "text": "rain"}],
        "type": "function_call_output",
    },
    {
        "id": "msg_1",
        "content": [{"annotations": [], "text": "Sun and rain.", "type": "output_text"}],
        "role": "assistant",
        "status": "completed",
        "type": "message",
    },
]
"""A turn: two calls of a tool within one answer, their results, and the last answer."""


def turns(number: int) -> list[Item]:
    """Return so many short turns of a user's message and an answer."""
    return [
        said(f"{role} {place}", role) for place in range(number) for role in ("user", "assistant")
    ]
