"""Every command has help, and the reference page shows it as it is."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from agent_eventstore.cli import cli
from agent_eventstore.cli.program_commands import COMMANDS as LISTED
from tests.cli.program import ROOT, run

PAGE = ROOT / "docs" / "cli.md"
GENERATOR = runpy.run_path(str(ROOT / "scripts" / "cli_page.py"))


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command below a group, and of the groups."""
    yield path
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from walk(member(command, name), (*path, name))


def member(group: click.Group, name: str) -> click.Command:
    """Return a command of a group, with its module imported."""
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


def find(path: tuple[str, ...]) -> click.Command:
    """Return the command at a path."""
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = member(command, name)
    return command


COMMANDS = list(walk(cli))
LISTING = ("list", "events", "timeline", "context", "usage", "tools", "verify")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_is_documented(path: tuple[str, ...]) -> None:
    """A command's heading stands in the reference page."""
    assert f"## `{' '.join(('eventstore', *path))}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_and_its_options_have_help(path: tuple[str, ...]) -> None:
    """A command says what it does, and so does each of its options."""
    command = find(path)
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert command.help
    assert [] == [each.name for each in options if not each.help]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_command_is_shown(path: tuple[str, ...]) -> None:
    """``--help`` ends well and names the command."""
    done = run(*path, "--help")
    assert 0 == done.status
    assert done.out.startswith(f"Usage: {' '.join(('eventstore', *path))} ")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_list_of_commands_is_not_cut(path: tuple[str, ...]) -> None:
    """What a group says of its commands fits on their lines."""
    lines = run(*path, "--help").out.splitlines()
    assert [] == [line for line in lines if line.startswith("  ") and line.endswith("...")]


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, _, line in LISTED])
def test_the_list_says_what_the_command_says(name: str, line: str) -> None:
    """The top level lists a command without its module, in the words of its help."""
    assert line == find((name,)).get_short_help_str(100)


@pytest.mark.parametrize("name", LISTING)
def test_listing_command_takes_json(name: str) -> None:
    """Every command that lists has the option ``--json``."""
    assert "as_json" in [each.name for each in find((name,)).params]


def test_page_is_current() -> None:
    """The page in docs is what the generator writes; run it when a command has changed."""
    assert GENERATOR["reference"]() == PAGE.read_text(encoding="utf-8")


def test_generator_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator writes to the file that it is given."""
    page = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["reference", str(page)])
    GENERATOR["main"]()
    assert PAGE.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
