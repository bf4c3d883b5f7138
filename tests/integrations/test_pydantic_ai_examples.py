"""Programs with Pydantic AI: the example, those of the page, and runs that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.document import ROOT, blocks
from tests.exhaustive import partly
from tests.warm import Programs

USED = ["pydantic_ai", "agent_eventstore.integrations.pydantic_ai.saving"]


@pytest.mark.parametrize("places", partly([("stream",), ()]))
def test_kills(framework_programs: Programs, places: tuple[str, ...]) -> None:
    """What a killed run had is loaded by the next process, which goes on to the answer."""
    done = framework_programs.run(str(ROOT / "scripts" / "pydantic_ai_losses.py"), *places)
    done.check_returncode()

    page = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    rows = done.stdout.splitlines()
    assert len(rows) > 3
    assert all(row in page for row in rows) if places else done.stdout in page


def test_the_example(framework_programs: Programs, tmp_path: Path) -> None:
    """It fits on a page, and its second turn has what the first has left."""
    program = ROOT / "examples" / "pydantic_ai_history.py"
    done = framework_programs.run(str(program), f"sqlite:///{tmp_path / 'agent.db'}")
    done.check_returncode()

    assert 40 >= len(program.read_text("utf-8").splitlines())
    assert "2 new messages, 6 in total" in done.stdout
    assert "tool: 18 degrees" in done.stdout


def test_the_page(framework_programs: Programs, tmp_path: Path) -> None:
    """By itself, in a directory of its own."""
    page = ROOT / "docs" / "integrations.md"
    programs = [each for each in blocks(page, "python") if "EventStoreConversations" in each]
    shown = [framework_programs.run("-c", each, directory=tmp_path) for each in programs]
    for each in shown:
        each.check_returncode()

    assert len(shown) == 2
    assert "('user', 'How warm is it?')" in shown[0].stdout
