"""Measuring on a shared, noisy machine: candidates take turns, and medians are compared.

A figure alone says little there, so that every measurement has a first candidate, the floor or the
peer, and the others are shown as ratios to it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Figure", "in_turns"]


@dataclass(frozen=True, slots=True)
class Figure:
    """The times of one candidate, in seconds."""

    name: str
    times: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        """The 99th percentile, in seconds."""
        return sorted(self.times)[int(len(self.times) * 0.99)]


def in_turns(candidates: Mapping[str, Callable[[], object]], rounds: int) -> list[Figure]:
    """Run every candidate once a round, and return their times in the order given."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for candidate in candidates.values():
        candidate()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, candidate in candidates.items():
                started = time.perf_counter()
                candidate()
                times[name].append(time.perf_counter() - started)
    finally:
        gc.enable()
    return [Figure(name, tuple(values)) for name, values in times.items()]
