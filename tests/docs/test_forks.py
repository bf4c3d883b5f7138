"""``docs/forks.md`` can be believed: its program prints what it shows."""

from __future__ import annotations

from pathlib import Path

from tests.docs.document import ROOT
from tests.docs.transcripts import printed_by, programs

PAGE = ROOT / "docs" / "forks.md"


def test_program(tmp_path: Path) -> None:
    """The fork goes on in its own way, and counts its own calls."""
    (program,) = programs(PAGE)

    assert program.shown == printed_by(program, tmp_path)
