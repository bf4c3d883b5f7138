"""What ``docs/integrations.md`` shows of LangGraph and LangChain runs, and does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.document import ROOT, blocks
from tests.warm import Programs

PAGE = ROOT / "docs" / "integrations.md"


@pytest.mark.parametrize(
    ("module", "shown"),
    [("integrations.langgraph", "('assistant', "), ("integrations.langchain", "HumanMessage(")],
)
def test_program(programs: Programs, tmp_path: Path, module: str, shown: str) -> None:
    """By itself, in a directory of its own."""
    [program] = [
        each for each in blocks(PAGE, "python") if f"agent_eventstore.{module} import" in each
    ][:1]
    done = programs.run("-c", program, directory=tmp_path)
    done.check_returncode()

    assert shown in done.stdout
