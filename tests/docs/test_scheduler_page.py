"""``docs/scheduler.md`` can be believed."""

from __future__ import annotations

from pathlib import Path

from tests.docs.document import ROOT
from tests.docs.transcripts import printed_by
from tests.docs.transcripts import programs as programs_of
from tests.warm import Programs

PROGRAMS = programs_of(ROOT / "docs" / "scheduler.md")


def test_programs_print_what_the_page_shows(tmp_path: Path) -> None:
    """Each in a folder of its own."""
    assert PROGRAMS
    for number, program in enumerate(PROGRAMS):
        (folder := tmp_path / str(number)).mkdir()
        assert program.shown == printed_by(program, folder)


def test_the_example_runs(programs: Programs, tmp_path: Path) -> None:
    """Three conversations, asked and answered in their order."""
    done = programs.run("examples/author_and_reviewer.py", f"sqlite:///{tmp_path}/a.db")
    done.check_returncode()

    first, *tasks = done.stdout.splitlines()
    assert "Done. The review: Good: The sky is blue, too." == first
    assert 7 == len(tasks)
