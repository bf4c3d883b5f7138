"""``docs/context.md`` can be believed: its programs and commands show what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections.context import ContextSettings
from projections.context.compression import strategies
from projections.context.planning import HORIZON
from projections.providers.request_formats import FORMATS
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
