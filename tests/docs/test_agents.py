"""``docs/agents.md`` and ``docs/documents.md`` can be believed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.document import ROOT
from tests.docs.transcripts import printed_by, programs

PAGE = ROOT / "docs" / "agents.md"
PROGRAMS = programs(PAGE)


@pytest.mark.parametrize("number", range(6))
def test_program(number: int, tmp_path: Path) -> None:
    """A program prints what the page shows."""
    assert 6 == len(PROGRAMS)
    assert PROGRAMS[number].shown == printed_by(PROGRAMS[number], tmp_path)


def test_the_places_that_are_named_are_there() -> None:
    """Each file and each test that the table names exists."""
    text = (ROOT / "docs" / "documents.md").read_text("utf-8")
    named = re.findall(r"`((?:tests|agent_eventstore)/[\w/.]+)(?:::(\w+))?`", text)

    assert named
    for path, test in named:
        assert (ROOT / path).exists(), path
        text = (ROOT / path).read_text("utf-8") if test else ""
        assert not test or f"def {test}(" in text or f"class {test}:" in text, test
