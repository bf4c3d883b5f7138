"""``docs/web-backend.md`` can be believed: its program runs, and prints what it should."""

from __future__ import annotations

from pathlib import Path

from tests.docs.document import ROOT, blocks
from tests.warm import Programs

PAGE = ROOT / "docs" / "web-backend.md"


def test_its_program_follows(programs: Programs, tmp_path: Path) -> None:
    """A screen that is made of updates shows what was said."""
    program = blocks(PAGE, "python")[0]
    done = programs.run("-c", program, directory=tmp_path)
    done.check_returncode()
    assert "['hello']" == done.stdout.splitlines()[-1].partition(" ")[2]


def test_its_approval_follows(programs: Programs, tmp_path: Path) -> None:
    """A call waits for somebody's yes, and runs after it."""
    program = blocks(PAGE, "python")[1]
    done = programs.run("-c", program, directory=tmp_path)
    done.check_returncode()
    assert blocks(PAGE, "text") == [done.stdout]
