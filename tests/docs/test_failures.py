"""``docs/failures.md`` speaks of every error that there is, and of tests that there are."""

from __future__ import annotations

import re

import pytest

from agent_eventstore import errors
from tests.docs.document import ROOT

PAGE = (ROOT / "docs" / "failures.md").read_text("utf-8")
NAMED = sorted({*re.findall(r"`((?:tests/)?[\w/]*test_\w+(?:\.py)?|Test\w+)`", PAGE)})
TESTED = ("## Machine faults", "## After a kill")


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Give the names of all tests and of the files that they stand in."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    defined = (re.findall(r"(?:def|class) (\w+)", file.read_text("utf-8")) for file in files)
    paths = {str(file.relative_to(ROOT)) for file in files}
    return {name for names in defined for name in names} | {file.name for file in files} | paths


@pytest.mark.parametrize("name", NAMED)
def test_test_that_is_named_exists(name: str, known: set[str]) -> None:
    """A row's test can be found by its name."""
    assert name in known


@pytest.mark.parametrize("heading", TESTED)
def test_each_row_names_a_test(heading: str) -> None:
    """What a fault of the machine or a kill leaves is tested, and the row says where."""
    section = PAGE.partition(heading)[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ") and "|---" not in row][1:]
    assert [] == [row for row in rows if not re.search("`[^`]*(?:test_|Test)[^`]*`", row)]


@pytest.mark.parametrize("name", errors.__all__)
def test_error_is_documented(name: str) -> None:
    """Every public error class is named."""
    assert f"`{name}`" in PAGE
