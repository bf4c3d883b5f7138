"""``docs/own-events.md`` is true: its programs run, and print what they should."""

from __future__ import annotations

from pathlib import Path

from tests.docs.document import ROOT, blocks
from tests.warm import Programs

PAGE = ROOT / "docs" / "own-events.md"
TICKETS, CLOSED = blocks(PAGE, "python")


def run(programs: Programs, program: str, directory: Path) -> list[str]:
    """Run a program by itself; return the lines that it printed."""
    done = programs.run("-c", program, directory=directory)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.splitlines()


def test_a_ticket_is_recorded_and_listed(programs: Programs, tmp_path: Path) -> None:
    """By the product's projection, and in the timeline by the default rule."""
    assert ["[(7, 'tap')]", "[('own', 'acme.ticket_opened')]"] == run(programs, TICKETS, tmp_path)


def test_an_older_version_is_upcast(programs: Programs, tmp_path: Path) -> None:
    """As the page says."""
    more = """
from eventstore.events.codec import decode

print(decode("acme.ticket_closed", 1, '{"number": 7}').by)
"""
    assert ["unknown"] == run(programs, CLOSED + more, tmp_path)
