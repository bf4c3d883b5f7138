"""``docs/recovery.md`` and ``docs/runs.md`` can be believed: programs print what they show."""

from __future__ import annotations

from pathlib import Path

from tests.docs.document import ROOT
from tests.docs.transcripts import Program, printed_by, programs


def test_recovery(tmp_path: Path) -> None:
    """What a process has left open is ended, and what may run again is named."""
    (program,) = programs(ROOT / "docs" / "recovery.md")

    assert program.shown == printed_by(program, tmp_path)


def test_run_and_its_resumption(tmp_path: Path) -> None:
    """The model is told of the run; whoever comes after its process goes on with the next node."""
    first, second = programs(ROOT / "docs" / "runs.md")
    both = Program(first.code + second.code, first.shown + second.shown)

    assert both.shown == printed_by(both, tmp_path)
