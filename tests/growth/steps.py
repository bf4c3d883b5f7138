"""Counted steps: lines of this project's code, each turn of a loop among them, that a call runs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["assert_linear", "steps_of"]

_ROOT = str(Path(__file__).parents[2])
_OWN = tuple(f"{_ROOT}/{name}/" for name in ("agent_eventstore", "eventstore", "projections"))
_TIMES = (1, 2, 4)


def steps_of(run: Callable[[], object]) -> int:
    """Return how many lines a call runs."""
    counted = 0

    def line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(_OWN) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        run()
    finally:
        sys.settrace(before)
    return counted


def assert_linear(work: Callable[[int], Callable[[], object]], size: int) -> None:
    """Fail if twice as much input takes more than about twice the steps, and then twice again.

    Args:
        work: Given a size, prepares what is to be counted.
        size: Of the smallest input.
    """
    work(2)()  # What is loaded and remembered once.
    steps = [steps_of(work(size * times)) for times in _TIMES]
    assert steps[0] >= size
    for less, more in itertools.pairwise(steps):
        assert more <= 2.2 * less + 200, steps
