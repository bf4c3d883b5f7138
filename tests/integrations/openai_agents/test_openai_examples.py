"""The example of the OpenAI Agents SDK runs, and shows what its views say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_session_example(tmp_path: Path) -> None:
    """It fits on a page, and prints answers, timeline, and that the log is unchanged."""
    program = ROOT / "examples" / "openai_agents_session.py"
    done = subprocess.run(
        [sys.executable, str(program), f"sqlite:///{tmp_path / 'agent.db'}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert 40 >= len(program.read_text("utf-8").splitlines())
    assert "tool success A-1: shipped yesterday" in done.stdout
    assert done.stdout.endswith("6 items; unchanged: True\n")


def test_the_framework_is_not_needed() -> None:
    """``import agent_eventstore`` imports no framework."""
    said = "import sys, agent_eventstore; print('agents' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)

    assert "False\n" == done.stdout
