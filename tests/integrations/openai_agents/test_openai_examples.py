"""Programs with the OpenAI Agents SDK: the example, and runs that are killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.document import ROOT
from tests.exhaustive import partly
from tests.warm import Programs

USED = ["agents", "agents.testing", "agent_eventstore.integrations.openai_agents.recording"]


@pytest.mark.parametrize("places", partly([("stream",), ()]))
def test_what_kills_leave(framework_programs: Programs, places: tuple[str, ...]) -> None:
    """The table of the page is what ``kill -9`` leaves, in a tool, a stream and an approval."""
    done = framework_programs.run(str(ROOT / "scripts" / "openai_agents_kills.py"), *places)
    done.check_returncode()
    page = (ROOT / "docs" / "integrations.md").read_text("utf-8")

    found = re.search(r"^\| killed \| SQLiteSession .*?(?=\n\n|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found
    rows, every = done.stdout.strip().splitlines(), found[0].strip().splitlines()
    assert len(rows) > 2
    assert {*rows} < {*every} if places else rows == every


def test_the_session_example(framework_programs: Programs, tmp_path: Path) -> None:
    """It fits on a page, and prints answers, timeline, and that the log is unchanged."""
    program = ROOT / "examples" / "openai_agents_session.py"
    done = framework_programs.run(str(program), f"sqlite:///{tmp_path / 'agent.db'}")
    done.check_returncode()

    assert 40 >= len(program.read_text("utf-8").splitlines())
    assert "tool success A-1: shipped yesterday" in done.stdout
    assert done.stdout.endswith("6 items; unchanged: True\n")


def test_no_framework_is_needed() -> None:
    """Nor imported by the package, also where entry points are asked whose an event is."""
    said = """
import sys, agent_eventstore
from eventstore.events.own import class_of
assert class_of("acme.unheard_of") is None
assert class_of("pydantic_ai.message") is not None
print({"agents", "google.adk", "langgraph", "pydantic_ai"} & {*sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)

    assert "set()\n" == done.stdout
