"""``docs/recording.md`` can be believed: its programs run, and print what it says."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.docs.document import ROOT
from tests.integration.chatting import answer
from tests.integration.replay_server import Answer, Refused, ReplayServer, Spoken, Streamed, Whole

PAGE = ROOT / "docs" / "recording.md"
_PROGRAM = re.compile(
    r"^## (?P<title>[^\n]+)\n(?:(?!^## ).)*?"
    r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<output>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = {found["title"]: found for found in _PROGRAM.finditer(PAGE.read_text("utf-8"))}

SUNNY = Spoken("It is 18 degrees and sunny.")
TOOL = Streamed("openai-chat-deepseek-tool-call")
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
CALLED = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "tool_calls": [CALL]},
        }
    ],
}
SUNNY_WHOLE = answer("It is 18 degrees and sunny.")
ANSWERS: dict[str, list[Answer]] = {
    "Quick start": [SUNNY],
    "Sessions, turns and steps": [Streamed("openai-chat-text"), Streamed("openai-chat-text")],
    "In a web server": [SUNNY, SUNNY],
    "In an event loop": [SUNNY],
    "Record each call yourself": [TOOL, SUNNY],
    "Other SDKs": [],
    "Tool calls": [TOOL],
    "Tools that a framework runs": [Whole(CALLED), SUNNY_WHOLE],
    "Tool policy": [],
    "Errors and retries": [
        Refused(429, {"error": {"message": "slowly"}}),
        Streamed("openai-chat-text", "cut", after=3),
        SUNNY,
    ],
    "Large outputs": [Whole(CALLED)],
}
"""What the model answers to each program."""


def test_every_program_is_run() -> None:
    """No program of the page is left out."""
    assert list(ANSWERS) == list(PROGRAMS)
    assert PAGE.read_text("utf-8").count("```python") == len(PROGRAMS)


@pytest.mark.parametrize("title", ANSWERS)
def test_program(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program prints what the page shows."""
    program, printed = PROGRAMS[title], StringIO()
    names: dict[str, Any] = {"__name__": "program"}
    with ReplayServer() as server:
        server.will(*ANSWERS[title])
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        with redirect_stdout(printed):
            exec(compile(program["code"], str(PAGE), "exec"), names)  # noqa: S102 - our own page
        for name in names.keys() & {"client", "store"}:
            names[name].close()

    assert program["output"] == printed.getvalue()
    assert not server.answers
