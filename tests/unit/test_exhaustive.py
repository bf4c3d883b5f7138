"""What `make test` leaves out is marked by parameters, and no test function is left out whole."""

from __future__ import annotations

from pathlib import Path

from tests.inner import run_pytest

HOOK = "from tests.exhaustive import mark_exhaustive as pytest_collection_modifyitems\n"
TESTS = """
import pytest
from tests.exhaustive import partly

@pytest.mark.parametrize("number", partly(range(4), quick=2))
def test_some(number): pass

@pytest.mark.exhaustive_when("postgresql")
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_one(database): pass

@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("access", ["sync", "async"])
def test_diagonal(database, access): pass

def test_plain(): pass
"""
ABOVE = """
import pytest

@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("number", range(40))
def test_folds(number, database): pass

@pytest.mark.parametrize("database", ["postgresql"])
def test_one(database): pass
"""
WHOLE = """
@pytest.mark.exhaustive
def test_forgotten(): pass
"""


def run(directory: Path, tests: str, expression: str) -> tuple[int, str]:
    """Run tests that have the marker, or do not; return the status and what is said."""
    (directory / "conftest.py").write_text(HOOK)
    (directory / "test_it.py").write_text(tests)
    return run_pytest("-c", "pyproject.toml", "-v", "-m", expression, str(directory))


def test_the_two_have_everything_between_them(tmp_path: Path) -> None:
    """Of the twins on two databases each is quick on one of them."""
    quick = run(tmp_path, TESTS, "not exhaustive")
    assert (0, True) == (quick[0], "6 passed, 5 deselected" in quick[1])
    assert "test_diagonal[sync-sqlite] PASSED" in quick[1]
    assert "test_diagonal[async-postgresql] PASSED" in quick[1]
    rest = run(tmp_path, TESTS, "exhaustive")
    assert (0, True) == (rest[0], "5 passed, 6 deselected" in rest[1])


def test_above_the_statements_one_database_does(tmp_path: Path) -> None:
    """Either, for about half of the tests."""
    directory = tmp_path / "projections"
    directory.mkdir()
    status, said = run(directory, ABOVE, "not exhaustive")
    assert (0, True) == (status, "41 passed, 40 deselected" in said)
    assert 10 < sum("-sqlite] PASSED" in line for line in said.splitlines()) < 30
    assert "test_one[postgresql] PASSED" in said


def test_a_test_that_is_left_out_whole_is_named(tmp_path: Path) -> None:
    """Of each something must be run, however little."""
    status, said = run(tmp_path, TESTS + WHOLE, "not exhaustive")
    assert (4, True) == (status, "test_it.py::test_forgotten" in said)
