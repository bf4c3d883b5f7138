"""``docs/operations.md`` is true: its programs run."""

from __future__ import annotations

from pathlib import Path

from tests.docs.document import ROOT, blocks
from tests.warm import Programs

OPENING, OBSERVING = blocks(ROOT / "docs" / "operations.md", "python")


def test_gauges_are_read_within_the_block(programs: Programs, tmp_path: Path) -> None:
    """The page named a module that does not have the function, and left out the projections."""
    told = "from eventstore.telemetry.gauges import observed; print(len(observed()) > 0)"
    program = OPENING + OBSERVING.replace("...", told)
    done = programs.run("-c", program, directory=tmp_path)

    assert (0, "", "True\n") == (done.returncode, done.stderr, done.stdout)
