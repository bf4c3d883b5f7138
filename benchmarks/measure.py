"""Measuring on a shared, noisy machine: candidates take turns, and medians are compared.

A figure alone says little there, so that every measurement has a first candidate, the floor or the
peer, and the others are shown as ratios to it.
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
    """The times of one candidate, in seconds, each for so many events (0: none are counted)."""

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
        """Events a second at the median."""
        return self.events / self.median

    @property
    def value(self) -> float:
        """What ratios are made of: seconds an event, or a round where no events are counted."""
        return self.median / (self.events or 1)

    def of(self, events: int) -> Figure:
        """Return the figure with the number of events that each of its times was for."""
        return replace(self, events=events)


@dataclass(frozen=True, slots=True)
class Amount:
    """One number of a candidate that is not a time, such as megabytes."""

    name: str
    value: float
    unit: str


Measured = Figure | Amount

clock: Callable[[], float] = time.perf_counter
"""What times are taken by: that of a wall clock, or `time.process_time` where a machine is busy."""


def in_turns(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    events: int = 0,
    processor: bool = False,
) -> list[Figure]:
    """Run every candidate once a round, and return their times in the order given.

    Every second round goes backward, so that nobody always comes after the same one: what follows
    a candidate that fills and frees much memory takes longer.

    Args:
        candidates: What to run, by name.
        rounds: How often; a first round that is not counted warms up.
        events: How many events each candidate writes or reads in a round.
        processor: Whether to return the processor's time too, of all threads of this process: a
            second figure each, behind all others.
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
    """Return what a candidate's time on the processor is called."""
    return f"{name}, processor"


def awaiting(run: Callable[[Any], object], done: Callable[[], Awaitable[object]]) -> Any:
    """Return what has ``asyncio.Runner.run`` await something, whose result is dropped within.

    The runner would spell out a result, as it puts the handler of signals back: for a long history
    that takes several times as long as loading it.
    """

    async def awaited() -> None:
        await done()

    return lambda: run(awaited())
