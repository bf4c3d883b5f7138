"""Measuring on a shared, noisy machine: candidates take turns, and medians are compared.

A single figure says little there. Every measurement therefore has a first candidate, the floor or
the peer, and the others are shown as ratios to it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Amount", "Figure", "Measured", "awaiting", "in_turns", "processor_time"]


@dataclass(frozen=True, slots=True)
class Figure:
    """The times of one candidate, in seconds, each for ``events`` events (0: not counted)."""

    name: str
    times: tuple[float, ...]
    events: int = 0

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        """The 99th percentile, in seconds."""
        return sorted(self.times)[int(len(self.times) * 0.99)]

    @property
    def rate(self) -> float:
        """Events per second at the median."""
        return self.events / self.median

    @property
    def value(self) -> float:
        """The basis of ratios: seconds per event, or per round if no events are counted."""
        return self.median / (self.events or 1)

    def of(self, events: int) -> Figure:
        """Return the figure with the number of events that each of its times covers."""
        return replace(self, events=events)


@dataclass(frozen=True, slots=True)
class Amount:
    """One number of a candidate other than a time, such as megabytes."""

    name: str
    value: float
    unit: str


Measured = Figure | Amount

clock: Callable[[], float] = time.perf_counter
"""The clock: a wall clock, or `time.process_time` on a busy machine."""


def in_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    events: int = 0,
    processor: bool = False,
) -> list[Figure]:
    """Run every candidate once per round, and return their times in the given order.

    Every second round runs backward, so that no candidate always follows the same one: a candidate
    takes longer after one that fills and frees much memory.

    Args:
        candidates: The functions to run, by name.
        rounds: Number of rounds; an additional first round warms up and is not counted.
        events: Number of events that each candidate writes or reads in a round.
        processor: Whether to return processor time too, of all threads of this process: a second
            figure for each candidate, after all others.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    spent: dict[str, list[float]] = {processor_time(name): [] for name in candidates}
    for candidate in candidates.values():
        candidate()
    gc.collect()
    gc.disable()
    try:
        for place in range(rounds):
            turns = [*candidates.items()]
            for name, candidate in reversed(turns) if place % 2 else turns:
                started, begun = clock(), time.process_time()
                candidate()
                times[name].append(clock() - started)
                spent[processor_time(name)].append(time.process_time() - begun)
    finally:
        gc.enable()
    measured = times | spent if processor else times
    return [Figure(name, tuple(values), events) for name, values in measured.items()]


def processor_time(name: str) -> str:
    """Return the name of a candidate's processor time."""
    return f"{name}, processor"


def awaiting(run: Callable[[Any], object], done: Callable[[], Awaitable[object]]) -> Any:
    """Return a function that makes ``asyncio.Runner.run`` await something and drop its result.

    When the runner restores the signal handler, it formats the result: for a long history that
    takes several times as long as loading it.
    """

    async def awaited() -> None:
        await done()

    return lambda: run(awaited())
