"""Numbers and times as people read them; a dash for what is unknown, which is never 0."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["ago", "cost", "count", "counted", "duration", "moment", "percent", "plain_number"]

UNKNOWN = "–"  # noqa: RUF001 - an en dash, as in tables
_MINUTE_MS = 60_000


def plain_number(number: float | None) -> str:
    """Return a whole number with separators."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def count(number: float | None) -> str:
    """Return a number in at most five characters or so: 9,999, 12.3k, 1.58M."""
    if number is None:
        return UNKNOWN
    if number < 10_000:
        return f"{number:,.0f}"
    if number < 999_950:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.2f}M"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def cost(dollars: float | None) -> str:
    """Return dollars, with four decimals below ten cents."""
    if dollars is None:
        return UNKNOWN
    return f"${dollars:.4f}" if 0 < dollars < 0.1 else f"${dollars:,.2f}"


def duration(milliseconds: float | None) -> str:
    """Return a duration as 32 ms, 1.4 s or 1.7 min."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < _MINUTE_MS:
        return f"{milliseconds / 1_000:.1f} s"
    return f"{milliseconds / _MINUTE_MS:,.1f} min"


def percent(part: float | None, whole: float | None) -> str:
    """Return a share in percent."""
    if part is None or not whole:
        return UNKNOWN
    share = 100 * part / whole
    return f"{share:.1f} %" if 0 < share < 1 else f"{share:.0f} %"


def moment(time: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return UNKNOWN if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def ago(time: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time was: now, 3 min, 5 h, 12 d, or its date."""
    if time is None:
        return UNKNOWN
    seconds = ((now or datetime.now(UTC)) - time).total_seconds()
    if seconds < 60:
        return "now"
    if seconds < 3_600:
        return f"{seconds // 60:.0f} min"
    if seconds < 86_400:
        return f"{seconds // 3_600:.0f} h"
    if seconds < 30 * 86_400:
        return f"{seconds // 86_400:.0f} d"
    return f"{time.astimezone(UTC):%Y-%m-%d}"
