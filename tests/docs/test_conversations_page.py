"""``docs/conversations.md`` can be believed: its programs run, and print what it says."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.docs.document import ROOT

PAGE = ROOT / "docs" / "conversations.md"
_PROGRAM = re.compile(
    r"^## (?P<title>[^\n]+)\n(?:(?!^## ).)*?"
    r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<output>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = {found["title"]: found for found in _PROGRAM.finditer(PAGE.read_text("utf-8"))}


def test_every_program_is_run() -> None:
    """No program of the page is left out."""
    assert PAGE.read_text("utf-8").count("```python") == len(PROGRAMS)


@pytest.mark.parametrize("title", PROGRAMS)
def test_program(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program prints what the page shows."""
    program, printed = PROGRAMS[title], StringIO()
    names: dict[str, Any] = {"__name__": "program"}
    monkeypatch.chdir(tmp_path)
    with redirect_stdout(printed):
        exec(compile(program["code"], str(PAGE), "exec"), names)  # noqa: S102 - our own page
    names["store"].close()

    assert program["output"] == printed.getvalue()
