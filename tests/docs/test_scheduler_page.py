"""``docs/scheduler.md`` can be believed."""

from __future__ import annotations

from pathlib import Path

from tests.docs.document import ROOT
from tests.docs.transcripts import printed_by, programs

PROGRAMS = programs(ROOT / "docs" / "scheduler.md")


def test_programs_print_what_the_page_shows(tmp_path: Path) -> None:
    """Each in a folder of its own."""
    assert PROGRAMS
    for number, program in enumerate(PROGRAMS):
        (folder := tmp_path / str(number)).mkdir()
        assert program.shown == printed_by(program, folder)
