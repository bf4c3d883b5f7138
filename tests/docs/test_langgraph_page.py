"""What ``docs/integrations.md`` shows of LangGraph and LangChain runs, and does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.document import ROOT, blocks

PAGE = ROOT / "docs" / "integrations.md"


@pytest.mark.parametrize(
    ("module", "shown"),
    [("integrations.langgraph", "('assistant', "), ("integrations.langchain", "HumanMessage(")],
)
def test_program(tmp_path: Path, module: str, shown: str) -> None:
    """By itself, in a directory of its own."""
    [program] = [each for each in blocks(PAGE, "python") if f"agent_eventstore.{module} " in each]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert shown in done.stdout
