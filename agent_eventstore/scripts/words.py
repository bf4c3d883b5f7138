"""Durations in milliseconds."""

from __future__ import annotations

__all__ = ["milliseconds"]


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, never negative."""
    return max(0, round(seconds * 1000))
