"""The check of names finds what it is there to find."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_names_are_plain_and_unique() -> None:
    """As `make lint` checks."""
    done = subprocess.run(
        [sys.executable, "scripts/check_names.py"], cwd=ROOT, capture_output=True, text=True
    )
    assert (0, "") == (done.returncode, done.stdout)


@pytest.mark.parametrize(
    "spoilt",
    [
        "class KeptRows: pass",
        "def was_told(): pass",
        "def f(asked): pass",
        "held = 1",
        "self._begun = True",
        "for said in []: pass",
        "class EventStore: pass",
    ],
)
def test_a_vague_or_repeated_name_is_found(tmp_path: Path, spoilt: str) -> None:
    """In a copy of the packages with one line more."""
    for name in ("eventstore/store.py", "scripts/check_names.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    ast.parse(spoilt)
    (tmp_path / "eventstore" / "spoilt.py").write_text(spoilt + "\n", "utf-8")

    done = subprocess.run(
        [sys.executable, "scripts/check_names.py"], cwd=tmp_path, capture_output=True, text=True
    )

    assert 1 == done.returncode
    assert "spoilt.py" in done.stdout
