"""``docs/context.md`` can be believed: its programs and commands show what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Conversation, EventStore, Views
from projections.context import ContextSettings
from projections.context.compression import strategies
from projections.context.planning import HORIZON
from projections.providers.request_formats import FORMATS
from projections.tokens.ranks import encoding
from tests.docs.conftest import Ask
from tests.docs.document import ROOT
from tests.docs.transcripts import Command, Program, commands, output_of, printed_by, programs

PAGE = ROOT / "docs" / "context.md"
TEXT = PAGE.read_text("utf-8")
COMMANDS = [*commands(PAGE), *commands(ROOT / "docs" / "tour.md")]


def test_every_program_is_run() -> None:
    """No program and no command of the page is left out."""
    assert TEXT.count("```python") == len(programs(PAGE))
    assert TEXT.count("```console") == len(commands(PAGE))


@pytest.mark.parametrize("program", programs(PAGE), ids=range(len(programs(PAGE))))
def test_program(program: Program, tmp_path: Path) -> None:
    """A program prints what the page shows."""
    assert program.shown == printed_by(program, tmp_path)


@pytest.mark.parametrize("command", COMMANDS, ids=[each.line for each in COMMANDS])
def test_command(command: Command, sqlite_ask: Ask) -> None:
    """A command shows, on the conversations of the README, what the page and the tour show."""
    [(_, _, file)] = sqlite_ask("PRAGMA database_list")[1]

    assert command.shown == output_of(command, f"sqlite:///{file}")


def test_horizon_is_documented() -> None:
    """The number of groups within which detail is lowered is the one of the code."""
    assert f"newest {HORIZON} groups" in TEXT


@pytest.mark.parametrize("name", ContextSettings.model_fields)
def test_setting_is_documented(name: str) -> None:
    """The table names every setting."""
    assert f"`{name}`" in TEXT


@pytest.mark.parametrize("name", [*strategies(), *FORMATS])
def test_choice_is_documented(name: str) -> None:
    """The tables name every strategy and every format."""
    assert f"\n| `{name}` |" in TEXT


def test_tokens_of_modes(tmp_path: Path) -> None:
    """The table of modes has the numbers of tokens that each adds to a request."""
    tools = ({"type": "function", "function": {"name": "x", "parameters": {"type": "object"}}},)

    def added(mode: str | None, declared: Sequence[dict[str, Any]] = ()) -> int:
        view = Views(store).context(cid, model="gpt-4o", mode=mode, tools=declared)
        texts = [each["content"] for each in view.messages if each["role"] == "system"]
        return sum(len(encoding("o200k_base").encode(text)) for text in texts)

    with EventStore.open(f"sqlite:///{tmp_path}/modes.db") as store:
        with Conversation.start(store) as conversation, conversation.turn("q"):
            cid = conversation.id
        assert added("chat") == added("agent")
        assert f"| base rules, banner | {added('chat')} |" in TEXT
        assert f"the purpose of the run | {added('run')} and" in TEXT
        assert f"standard tool policy | {added('chat', tools) - added('chat')} more |" in TEXT
        assert 0 == added(None)
