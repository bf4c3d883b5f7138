"""``docs/tutorial.md`` can be followed: files are saved, commands typed, their output compared."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.docs.document import ROOT
from tests.warm import Programs

PAGE = ROOT / "docs" / "tutorial.md"
SKIPPED = "[…]"
PROGRAMS = {"python": (), "eventstore": ("-m", "agent_eventstore.cli")}
_STEP = re.compile(
    r"`(?P<file>\w+\.py)`:\n\n```python\n(?P<code>.*?)^```|^```console\n(?P<console>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
STEPS = list(_STEP.finditer(PAGE.read_text("utf-8")))
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def commands(console: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block, and what is shown of each one's output."""
    yield from _COMMAND.findall(console)


def is_shown(said: str, shown: str) -> bool:
    """Whether an output is what the page shows, but for what it leaves out, blanks and times."""
    pieces = [re.escape(words(piece)) for piece in shown.split(SKIPPED)]
    return re.fullmatch(r".*".join(pieces), words(said)) is not None


def words(text: str) -> str:
    """Return a text without what differs each time; a terminal pads its lines with blanks."""
    return " ".join(re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", text).split())


def run(
    programs: Programs, command: str, directory: Path, variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command line of the page; its programs are those of this checkout."""
    words = shlex.split(command)
    given = dict(
        word.split("=", 1) for word in itertools.takewhile(lambda word: "=" in word, words)
    )
    name, *arguments = words[len(given) :]
    if name in PROGRAMS:
        arguments = [*PROGRAMS[name], *arguments]
        return programs.run(*arguments, directory=directory, environment={**variables, **given})
    return subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)


def test_it_can_be_followed(programs: Programs, tmp_path: Path) -> None:
    """From the first file to the last command, everything comes out as shown."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTSTORE")}
    variables = {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    for step in STEPS:
        if step["file"]:
            (tmp_path / step["file"]).write_text(step["code"], "utf-8")
            continue
        for command, shown in commands(step["console"]):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                variables[name] = value
                continue
            done = run(programs, command, tmp_path, variables)
            said = done.stdout + done.stderr
            assert is_shown(said, shown), f"$ {command}\n{said}"


def test_nothing_is_left_out() -> None:
    """Every program of the page is saved, and every command typed."""
    text = PAGE.read_text("utf-8")
    typed = [each for step in STEPS if step["console"] for each in commands(step["console"])]

    assert text.count("```python") == sum(step["file"] is not None for step in STEPS)
    assert len(re.findall(r"^\$ ", text, re.MULTILINE)) == len(typed)
