"""Pages that a reader follows: files to save, commands to type, and the output that they show.

Only the standard library is used: `scripts/smoke.py` follows the same pages where nothing but the
wheel is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["COMMAND", "STEP", "follow"]

_SKIPPED = "[…]"
STEP = re.compile(
    r"`(?P<file>\w+\.py)`:\n\n```python\n(?P<code>.*?)^```|^```console\n(?P<console>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
"""A file with its code, or the lines of a console."""

COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
"""A command in a console, and what is shown of its output."""

Run = Callable[[str, Mapping[str, str]], str]
"""Runs a command line with variables exported before, and returns what it printed."""


def follow(page: str, folder: Path, run: Run) -> Iterator[str]:
    """Save a page's files in a folder, and run its commands.

    Yields:
        The commands whose output is not what the page shows, with that output.
    """
    variables: dict[str, str] = {}
    for step in STEP.finditer(page):
        if step["file"]:
            (folder / step["file"]).write_text(step["code"], "utf-8")
            continue
        for command, shown in COMMAND.findall(step["console"]):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                variables[name] = value
                continue
            said = run(command, variables)
            if not _is_shown(said, shown):
                yield f"$ {command}\n{said}"


def _is_shown(said: str, shown: str) -> bool:
    """Whether an output is what the page shows, but for what it leaves out, blanks and times."""
    pieces = [re.escape(_words(piece)) for piece in shown.split(_SKIPPED)]
    return re.fullmatch(r".*".join(pieces), _words(said)) is not None


def _words(text: str) -> str:
    """Return a text without what differs each time; a terminal pads its lines with blanks."""
    return " ".join(re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", text).split())
