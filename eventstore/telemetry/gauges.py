"""Gauges: values that OpenTelemetry polls, and their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

__all__ = ["Attributes", "GaugeName", "Measurement", "observed", "observing"]

Attributes = Mapping[str, str | int]
GaugeName = Literal[
    "eventstore.projection.lag",
    "eventstore.projection.lag.duration",
    "eventstore.feed.held_back",
    "eventstore.feed.held_back.duration",
]

_sources: list[Callable[[], Iterable[Measurement]]] = []


@dataclass(frozen=True, slots=True)
class Measurement:
    """The current value of a gauge, for the given attributes."""

    gauge: GaugeName
    value: float
    attributes: Attributes


@contextmanager
def observing(read: Callable[[], Iterable[Measurement]]) -> Iterator[None]:
    """While the block runs, let an OpenTelemetry thread read the gauges with this function."""
    _sources.append(read)
    try:
        yield
    finally:
        _sources.remove(read)


def observed() -> list[Measurement]:
    """Return the current measurements of every source."""
    return [measurement for read in tuple(_sources) for measurement in read()]
