"""``docs/web-backend.md`` can be believed: its program runs, and prints what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.document import ROOT, blocks

PAGE = ROOT / "docs" / "web-backend.md"


def test_its_program_follows(tmp_path: Path) -> None:
    """A screen that is made of updates shows what was said."""
    [program] = blocks(PAGE, "python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "['hello']" == done.stdout.splitlines()[-1].partition(" ")[2]
