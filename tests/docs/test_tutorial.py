"""``docs/tutorial.md`` can be followed: files are saved, commands typed, their output compared."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.docs.document import ROOT
from tests.docs.following import COMMAND, STEP, follow
from tests.warm import Programs

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
PROGRAMS = {"python": (), "eventstore": ("-m", "agent_eventstore.cli")}


def test_it_can_be_followed(programs: Programs, tmp_path: Path) -> None:
    """From the first file to the last command, everything comes out as shown."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTSTORE")}
    surroundings = {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}

    def run(command: str, variables: Mapping[str, str]) -> str:
        words = shlex.split(command)
        given = dict(
            word.split("=", 1) for word in itertools.takewhile(lambda word: "=" in word, words)
        )
        name, *arguments = words[len(given) :]
        if name in PROGRAMS:
            environment = {**surroundings, **variables, **given}
            arguments = [*PROGRAMS[name], *arguments]
            done = programs.run(*arguments, directory=tmp_path, environment=environment)
        else:
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert [] == [*follow(PAGE, tmp_path, run)]


def test_nothing_is_left_out() -> None:
    """Every program of the page is saved, and every command typed."""
    steps = [*STEP.finditer(PAGE)]
    typed = [each for step in steps if step["console"] for each in COMMAND.findall(step["console"])]

    assert PAGE.count("```python") == sum(step["file"] is not None for step in steps)
    assert len(re.findall(r"^\$ ", PAGE, re.MULTILINE)) == len(typed)
