"""The documents' transcripts: programs with what they print, and commands with what they show.

``python -m tests.docs.transcripts PAGE...`` writes the outputs anew, for whoever has changed them
on purpose. A command may end in ``| head -N`` or ``| tail -N``, which are carried out here.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from eventstore import EventStore
from tests.cli.program import run
from tests.docs.audit_store import fill

__all__ = ["Command", "Program", "commands", "output_of", "printed_by", "programs"]

_PROGRAM = re.compile(
    r"^```python\n((?:(?!^```).)*)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL
)
_COMMAND = re.compile(
    r"^```console\n\$ eventstore (context[^\n|]*)(?:\| (head|tail) -(\d+))?\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a page, and what the page says that it prints."""

    code: str
    shown: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, which of its lines are shown, and these."""

    line: str
    part: slice
    shown: str


def programs(page: Path) -> list[Program]:
    """Return the programs of a page."""
    return [Program(*found.groups()) for found in _PROGRAM.finditer(page.read_text("utf-8"))]


def commands(page: Path) -> list[Command]:
    """Return the commands of a page that show a context."""
    return [_command(found) for found in _COMMAND.finditer(page.read_text("utf-8"))]


def printed_by(program: Program, directory: Path) -> str:
    """Return what a program prints in a directory."""
    printed = StringIO()
    names: dict[str, Any] = {"__name__": "program"}
    with chdir(directory), redirect_stdout(printed):
        exec(compile(program.code, "program", "exec"), names)  # noqa: S102 - our own page
    if "store" in names:
        names["store"].close()
    return printed.getvalue()


def output_of(command: Command, url: str) -> str:
    """Return the lines that a command shows, or its error, without blanks at their ends."""
    done = run("--read-only", *shlex.split(command.line), url=url)
    lines = (done.out + done.err).splitlines()[command.part]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _command(found: re.Match[str]) -> Command:
    line, end, number, shown = found.groups()
    count = int(number or 0)
    part = {None: slice(None), "head": slice(count), "tail": slice(-count, None)}[end]
    return Command(line.strip(), part, shown)


def _rewritten(text: str, pattern: re.Pattern[str], output: Callable[[re.Match[str]], str]) -> str:
    def pieces() -> Iterator[str]:
        end = 0
        for found in pattern.finditer(text):
            start, stop = found.span(found.re.groups)
            yield text[end:start]
            yield output(found)
            end = stop
        yield text[end:]

    return "".join(pieces())


def main() -> None:
    """Write the outputs of the pages that are named anew."""
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/store.db"
        with EventStore.open(url) as store:
            fill(store)
        for page in map(Path, sys.argv[1:]):
            text = page.read_text("utf-8")

            def printed(found: re.Match[str]) -> str:
                directory = tempfile.mkdtemp(dir=name)
                return printed_by(Program(*found.groups()), Path(directory))

            text = _rewritten(text, _PROGRAM, printed)
            text = _rewritten(text, _COMMAND, lambda found: output_of(_command(found), url))
            page.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
