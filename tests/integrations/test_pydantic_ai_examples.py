"""The example of Pydantic AI runs, and the page on frameworks shows what runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.document import ROOT, blocks


def test_the_example(tmp_path: Path) -> None:
    """It fits on a page, and its second turn has what the first has left."""
    program = ROOT / "examples" / "pydantic_ai_history.py"
    done = subprocess.run(
        [sys.executable, str(program), f"sqlite:///{tmp_path / 'agent.db'}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert 40 >= len(program.read_text("utf-8").splitlines())
    assert "2 messages more, 6 in all" in done.stdout
    assert "tool: 18 degrees" in done.stdout


def test_the_page(tmp_path: Path) -> None:
    """By itself, in a directory of its own."""
    page = ROOT / "docs" / "integrations.md"
    programs = [each for each in blocks(page, "python") if "EventStoreConversations" in each]
    shown = [
        subprocess.run(
            [sys.executable, "-c", each], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        for each in programs
    ]

    assert len(shown) == 2
    assert "('user', 'How warm is it?')" in shown[0]
