"""``docs/own-events.md`` is true: its programs run, and print what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.document import ROOT, blocks

PAGE = ROOT / "docs" / "own-events.md"
TICKETS, CLOSED = blocks(PAGE, "python")


def run(program: str, directory: Path) -> list[str]:
    """Run a program by itself; return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, check=True
    )
    assert "" == done.stderr
    return done.stdout.splitlines()


def test_a_ticket_is_recorded_and_listed(tmp_path: Path) -> None:
    """By the product's projection, and in the timeline by the default rule."""
    assert ["[(7, 'tap')]", "[('own', 'acme.ticket_opened')]"] == run(TICKETS, tmp_path)


def test_an_older_version_is_upcast(tmp_path: Path) -> None:
    """As the page says."""
    more = """
from eventstore.events.codec import decode

print(decode("acme.ticket_closed", 1, '{"number": 7}').by)
"""
    assert ["unknown"] == run(CLOSED + more, tmp_path)
