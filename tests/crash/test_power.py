"""After a power cut all that was acknowledged is there; at NORMAL the log may lack its end."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.power import COMPILER, cut_off

pytestmark = [
    pytest.mark.skipif(
        COMPILER is None, reason="there is no C compiler to build the recorder with"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="the recorder is preloaded as on Linux"),
]

WRONG = ("corrupt", "altered", "differing", "out of order")


def wrong(found: Counter[str]) -> dict[str, int]:
    """Return what must not be, whatever the disk was told."""
    return {name: found[name] for name in WRONG if found[name]}


def test_nothing_acknowledged_is_missed(tmp_path: Path) -> None:
    """SQLite's default, FULL: each image opens, verifies, and has what was acknowledged by then."""
    found = cut_off(tmp_path, events=200, cuts=8, synchronous="FULL")

    assert ({}, 0) == (wrong(found), found["missed"])
    assert found["images"] == 8
    assert found["lost"] > 0


def test_without_waiting_the_end_may_be_lost(tmp_path: Path) -> None:
    """At NORMAL acknowledged events go, and only such from which on all are gone."""
    found = cut_off(tmp_path, events=200, cuts=8, synchronous="NORMAL")

    assert {} == wrong(found)
    assert found["missed"] > 0
