"""What reaches a terminal: nothing that could steer it or hide, and no other value for that."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.cli.harmless import escaped, shown
from tests.cli.program import ENVIRONMENT, run
from tests.warm import Programs

HARMFUL = {
    "C0": "\x1b]0;title\x07 \x1b[31m \x08 \x00",
    "DEL": "\x7f",
    "C1": "\x9b2J \x85 \x90",
    "bidi": "\u202egnp.exe\u202c \u2066x\u2069 \u200f \u061c",
    "tags": "\U000e0041\U000e007f \U000e0100",
    "invisible": "a\u200bb \u2060 \ufeff",
    "lines": "\u2028 \u2029",
}
TEXT = " ".join((*HARMFUL.values(), "中文 👍🏽 👩‍👩‍👧 çé"))


@pytest.mark.parametrize("kind", HARMFUL)
def test_json_keeps_its_value_when_it_is_escaped(kind: str) -> None:
    """Every character that could do harm is an escape, and the value is the same."""
    given = {HARMFUL[kind]: [HARMFUL[kind]]}
    text = escaped(json.dumps(given, ensure_ascii=False, indent=2))
    assert given == json.loads(text)
    assert shown(text) == text


def test_what_does_no_harm_is_not_escaped() -> None:
    """Scripts, accents and joined emoji stay readable."""
    text = json.dumps({"text": "中文 👍🏽 👩‍👩‍👧 çé"}, ensure_ascii=False, indent=2)
    assert text == escaped(text)


@pytest.fixture
def hostile_url(sqlite_url: str, tmp_path: Path) -> str:
    """URL of a store with a conversation that says every harmful character."""
    path = tmp_path / "hostile.json"
    call = {"id": TEXT, "type": "function", "function": {"name": TEXT, "arguments": TEXT}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": TEXT, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": TEXT, "content": TEXT},
    ]
    path.write_text(json.dumps({"title": TEXT, "messages": messages}), encoding="utf-8")
    assert 0 == run("import", str(path), "--user-id", "ada", url=sqlite_url).status
    return sqlite_url


def _on_terminal(programs: Programs, url: str, *arguments: str) -> str:
    """Run a command whose stdout is a terminal, and return what that got."""
    ours, theirs = pty.openpty()
    given = ("-m", "agent_eventstore.cli", "--db", url, *arguments)
    environment = {**os.environ, **ENVIRONMENT}
    with programs.start(*given, stdout=theirs, environment=environment) as process:
        os.close(theirs)
        got = b""
        try:
            while piece := os.read(ours, 65_536):
                got += piece
        except OSError:  # Linux ends a terminal so
            pass
        os.close(ours)
    assert 0 == process.returncode
    return got.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "command",
    [
        ("events", "CID", "--json"),
        ("export", "CID", "--format", "openai"),
        ("export", "CID", "--format", "messages-jsonl"),
    ],
    ids=" ".join,
)
def test_json_on_a_terminal(hostile_url: str, command: tuple[str, ...], programs: Programs) -> None:
    """A terminal gets escapes, a pipe the characters themselves, and both the same values."""
    [conversation] = run("list", "--json", url=hostile_url).document
    arguments = [conversation["conversation_id"] if each == "CID" else each for each in command]
    on_terminal = _on_terminal(programs, hostile_url, *arguments)
    piped = run(*arguments, url=hostile_url).out
    assert shown(on_terminal) == on_terminal
    assert HARMFUL["bidi"] in piped
    values = [
        [json.loads(line) for line in each.split("\n") if line]
        if "messages-jsonl" in command
        else json.loads(each)
        for each in (on_terminal, piped)
    ]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    "command",
    [("list",), ("events", "CID"), ("timeline", "CID", "--full"), ("tools",), ("context", "CID")],
    ids=" ".join,
)
def test_tables_show_escapes(hostile_url: str, command: tuple[str, ...]) -> None:
    """Tables show what could do harm as escapes, wherever they go to."""
    [conversation] = run("list", "--json", url=hostile_url).document
    arguments = [conversation["conversation_id"] if each == "CID" else each for each in command]
    if command[0] == "context":
        arguments += ["--max-tokens", "8000", "--model", "gpt-4o"]
    done = run(*arguments, url=hostile_url, environment={"COLUMNS": "400"})
    assert (0, shown(done.out)) == (done.status, done.out)
    assert r"\x1b" in done.out
