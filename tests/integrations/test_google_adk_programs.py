"""Programs with ADK: the example, that of the page, and runs that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.document import ROOT, blocks
from tests.exhaustive import partly
from tests.warm import Programs

USED = ["google.adk.runners", "agent_eventstore.integrations.google_adk"]


@pytest.mark.parametrize("places", partly([("stream",), ()]))
def test_kills(framework_programs: Programs, places: tuple[str, ...]) -> None:
    """Nothing is lost that ADK's own service keeps, and more of it is known."""
    done = framework_programs.run(str(ROOT / "scripts" / "google_adk_losses.py"), *places)
    done.check_returncode()

    page = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    rows = done.stdout.splitlines()
    assert len(rows) > 3
    assert all(row in page for row in rows) if places else done.stdout in page


def test_the_example(framework_programs: Programs, tmp_path: Path) -> None:
    """It fits on a page; the runner's session reads as a conversation."""
    program = ROOT / "examples" / "google_adk_sessions.py"
    done = framework_programs.run(str(program), f"sqlite:///{tmp_path / 'agent.db'}")
    done.check_returncode()

    assert 40 >= len(program.read_text("utf-8").splitlines())
    assert "tool success A-1: shipped yesterday" in done.stdout
    assert done.stdout.endswith("unchanged: True\n")


def test_the_page(framework_programs: Programs, tmp_path: Path) -> None:
    """By itself, in a directory of its own."""
    page = ROOT / "docs" / "integrations.md"
    [program] = [each for each in blocks(page, "python") if "EventStoreSessionService" in each]
    done = framework_programs.run("-c", program, directory=tmp_path)
    done.check_returncode()

    assert "('user', 'How warm is it?')" in done.stdout
