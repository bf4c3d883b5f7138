"""What the tests of the command line import: a conversation with tools, and one that is hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.program import run

HOSTILE = "[bold]not markup[/bold] \x1b[31mnot red\x1b[0m \x00 \u202eright to left"
CHINESE = "把会议改到明天下午三点，并通知所有参加的人。" * 4

WEATHER: list[dict[str, Any]] = [
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "How is the weather in Oslo and in Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": "weather", "arguments": json.dumps({"place": place})},
            }
            for place in ("Oslo", "Rome")
        ],
    },
    {"role": "tool", "tool_call_id": "call_Oslo", "content": "snow"},
    {"role": "tool", "tool_call_id": "call_Rome", "content": "sun"},
    {"role": "assistant", "content": "Snow in Oslo, and sun in Rome."},
    {"role": "user", "content": "Thank you."},
    {"role": "assistant", "content": "You are welcome."},
]
MEETING: list[dict[str, Any]] = [
    {"role": "user", "content": CHINESE},
    {"role": "assistant", "content": HOSTILE},
]


def write_transcripts(directory: Path, *conversations: list[dict[str, Any]]) -> Path:
    """Write a file of OpenAI messages arrays."""
    path = directory / "transcripts.json"
    path.write_text(json.dumps(conversations), encoding="utf-8")
    return path


def conversation_with(url: str, title: str) -> str:
    """Return the id of the conversation with this beginning of a title."""
    listed = run("list", "--json", url=url).document
    [found] = [each["conversation_id"] for each in listed if each["title"].startswith(title)]
    return str(found)
