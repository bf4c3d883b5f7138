"""``docs/tutorial.md`` can be followed: files are saved, commands typed, their output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.document import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
SKIPPED = "[…]"
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


def environment(directory: Path) -> dict[str, str]:
    """Return an environment whose commands are those of this checkout."""
    shims = directory / "bin"
    shims.mkdir()
    for name, arguments in (("python", ""), ("eventstore", " -m agent_eventstore.cli")):
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n', "utf-8")
        shim.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTSTORE")}
    path = f"{shims}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}


def test_it_can_be_followed(tmp_path: Path) -> None:
    """From the first file to the last command, everything comes out as shown."""
    here, variables = tmp_path / "shop", environment(tmp_path)
    here.mkdir()
    for step in STEPS:
        if step["file"]:
            (here / step["file"]).write_text(step["code"], "utf-8")
            continue
        for command, shown in commands(step["console"]):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                variables[name] = value
                continue
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=here,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
            )
            said = done.stdout + done.stderr
            assert is_shown(said, shown), f"$ {command}\n{said}"


def test_nothing_is_left_out() -> None:
    """Every program of the page is saved, and every command typed."""
    text = PAGE.read_text("utf-8")
    typed = [each for step in STEPS if step["console"] for each in commands(step["console"])]

    assert text.count("```python") == sum(step["file"] is not None for step in STEPS)
    assert len(re.findall(r"^\$ ", text, re.MULTILINE)) == len(typed)
