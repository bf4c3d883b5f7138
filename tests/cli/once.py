"""What is dear to make and only looked at: made once in a run of the tests, whoever comes first.

A session fixture of pytest-xdist belongs to one worker, and each worker would make its own. Here
the first worker makes the thing under a lock, and the others find it in the directory of the run.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["once"]


@contextmanager
def once(
    directories: pytest.TempPathFactory,
    name: str,
    make: Callable[[Path], str],
    discard: Callable[[str], None] | None = None,
) -> Iterator[str]:
    """Make a thing, or find it made by another worker.

    Args:
        directories: The run's temporary directories.
        name: What the thing is called; also the directory that is handed to ``make``.
        make: Makes the thing, and returns what one needs to know to find it again.
        discard: Undoes what outlives the directory; called by the last one to need the thing.

    Yields:
        What ``make`` returned, in this process or in another.
    """
    place = _directory_of_the_run(directories) / name
    place.mkdir(exist_ok=True)
    made, users = place / "made", place / "users"
    with _locked(place):
        if not made.exists():
            made.write_text(make(place), encoding="utf-8")
        known = made.read_text(encoding="utf-8")
        _count(users, 1)
    try:
        yield known
    finally:
        with _locked(place):
            if _count(users, -1) == 0 and discard is not None:
                discard(known)
                made.unlink()


def _directory_of_the_run(directories: pytest.TempPathFactory) -> Path:
    own = directories.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def _count(path: Path, change: int) -> int:
    count = change + (int(path.read_text()) if path.exists() else 0)
    path.write_text(str(count))
    return count


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    with (place / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
