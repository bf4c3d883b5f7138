"""Workers that are forked run every test once, and a death among them is not overlooked."""

from __future__ import annotations

from pathlib import Path

from tests.inner import run_pytest

FILES = {
    "test_a.py": "def test_1(tmp_path): pass\ndef test_2(): assert 1 == 2\n",
    "test_b.py": "def test_3(tmp_path): pass\n",
    "test_c.py": "import os\ndef test_4(): os._exit(0)\ndef test_5(): pass\n",
}


def run(directory: Path, *names: str) -> tuple[int, str]:
    """Run some of the files in two workers; return the status, and the last line."""
    for name in names:
        (directory / name).write_text(FILES[name])
    return run_pytest("-p", "tests.forked", "--workers", "2", "--rootdir", ".", str(directory))


def test_all_are_run_and_counted(tmp_path: Path) -> None:
    """A failure is shown as ever."""
    status, shown = run(tmp_path, "test_a.py", "test_b.py")
    assert (1, True) == (status, "1 failed, 2 passed" in shown)
    assert "assert 1 == 2" in shown


def test_a_worker_that_dies_is_told(tmp_path: Path) -> None:
    """By the test that it was at; and those that it had taken fail the run."""
    status, shown = run(tmp_path, "test_b.py", "test_c.py")
    assert (1, True) == (status, "1 failed, 1 passed" in shown)
    assert "the worker died in this test" in shown
    assert "1 tests were not run, since a worker died" in shown
