"""Gauges: what OpenTelemetry asks for from time to time, and who answers."""

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
    """The value of a gauge now, for the attributes given."""

    gauge: GaugeName
    value: float
    attributes: Attributes


@contextmanager
def observing(read: Callable[[], Iterable[Measurement]]) -> Iterator[None]:
    """Have the gauges read in this way, from a thread of OpenTelemetry's, while the block runs."""
    _sources.append(read)
    try:
        yield
    finally:
        _sources.remove(read)


def observed() -> list[Measurement]:
    """Return what every source reads now."""
    return [measurement for read in tuple(_sources) for measurement in read()]
