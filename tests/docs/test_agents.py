"""``docs/agents.md`` and ``docs/design/documents.md`` can be believed."""

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
    text = (ROOT / "docs" / "design" / "documents.md").read_text("utf-8")
    named = re.findall(r"`((?:tests|agent_eventstore)/[\w/.]+)(?:::(\w+))?`", text)

    assert named
    for path, test in named:
        assert (ROOT / path).exists(), path
        text = (ROOT / path).read_text("utf-8") if test else ""
        assert not test or f"def {test}(" in text or f"class {test}:" in text, test


def test_each_claim_of_document_000_names_its_tests() -> None:
    """Each row names a test that exists, and all tests of the document's claims are named."""
    text = (ROOT / "docs" / "design" / "documents.md").read_text("utf-8")
    section = text.partition("\n## 000:")[2].partition("\n## ")[0]
    rows = [
        re.split(r" *\| *", line)[1:] for line in section.splitlines() if re.match(r"\| \d", line)
    ]
    claims = ROOT / "tests" / "unit" / "context" / "test_document_000.py"
    tests = re.findall(r"^def (test_\w+)\(", claims.read_text("utf-8"), re.MULTILINE)
    named = re.findall(r"test_document_000\.py::(\w+)", section)

    assert len(rows) > 20
    for row in rows:
        paths = re.findall(r"`(tests/[\w/.]+)", row[2])
        assert paths, row[0]
        assert all((ROOT / path).exists() for path in paths), row[0]
    assert set(tests) == set(named)
