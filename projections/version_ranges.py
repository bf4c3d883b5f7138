"""Ranges of versions: those that retractions and branches withdraw, and their sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventstore.events import (
    RecordedEvent,
    Retraction,
    VersionRange,
)

__all__ = ["Range", "before", "joined", "retracted", "up_to", "within", "without"]

Range = tuple[int, int]
"""A range of versions, both ends inclusive."""


def retracted(retraction: Retraction, event: RecordedEvent) -> list[tuple[int, int]]:
    """Return the ranges of versions that a retraction withdraws, limited to versions before it."""
    return before(retraction.versions, event)


def before(versions: Iterable[VersionRange], event: RecordedEvent) -> list[tuple[int, int]]:
    """Return ranges of versions, limited to versions before an event."""
    return up_to(versions, event.version - 1)


def up_to(versions: Iterable[VersionRange], head: int) -> list[tuple[int, int]]:
    """Return ranges of versions, limited to versions up to ``head``."""
    return [
        (item.first, min(item.last, head))
        for item in versions
        if item.first <= min(item.last, head)
    ]


def within(ranges: Iterable[tuple[int, int]], version: int) -> bool:
    """Whether a version is in one of the ranges."""
    return any(first <= version <= last for first, last in ranges)


def without(
    ranges: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the parts of ranges that are in none of the others; both are ordered and disjoint."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        place = first
        for low, high in others:
            if low > last:
                break
            if high < place:
                continue
            if low > place:
                found.append((place, low - 1))
            place = high + 1
        if place <= last:
            found.append((place, last))
    return found


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of ranges of versions as disjoint ranges, in order."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
