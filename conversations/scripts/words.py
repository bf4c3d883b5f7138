"""Errors in words, and durations in milliseconds."""

from __future__ import annotations

__all__ = ["milliseconds", "told"]


def told(error: BaseException | str) -> str:
    """Return an error in words: its class and its message."""
    if isinstance(error, str):
        return error
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, never negative."""
    return max(0, round(seconds * 1000))
