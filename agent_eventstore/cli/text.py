"""Other people's text, made harmless for a terminal, and numbers, sizes and times as text.

Control characters could move the cursor, change colours or turn the direction of writing, and
invisible ones could hide what stands there, so each is shown as its escape. Nothing here knows of
rich.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

__all__ = [
    "call",
    "cost",
    "count",
    "duration",
    "escaped",
    "moment",
    "one_line",
    "plural",
    "shown",
]

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def shown(text: str) -> str:
    """Return a text with its control characters as escapes; line breaks stay."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text)


def escaped(document: str) -> str:
    """Return JSON text, or lines of it, that is harmless and has the same value."""
    # Such characters stand within texts only, where JSON has an escape for each.
    return _HARMFUL.sub(_as_json_escape, document)


def _as_json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def one_line(text: str, limit: int = 400) -> str:
    """Return the start of a text on one line, harmless, in about ``limit`` characters."""
    start = " ".join(text.lstrip()[: 4 * limit].split())
    return shown(start if len(start) <= limit else f"{start[:limit]}…")


def count(number: int | None) -> str:
    """Return a number with separators; nothing for None."""
    return "" if number is None else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "event"), plural(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(milliseconds: float | None) -> str:
    """Return a duration in the unit that suits it; nothing for None.

    >>> duration(12), duration(1234), duration(61_000)
    ('12 ms', '1.2 s', '1:01 min')
    """
    if milliseconds is None:
        return ""
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02} min"


def cost(dollars: float | None) -> str:
    """Return an amount of US dollars, with the places that a small one needs."""
    if dollars is None:
        return ""
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"


def moment(value: datetime | None, *, seconds: bool = False) -> str:
    """Return a time in UTC; nothing for None."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"[: 19 if seconds else 16]


def call(name: str | None, arguments: Any) -> str:
    """Return a tool call as it would be written in code."""
    if isinstance(arguments, dict):
        inside = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    else:
        inside = "" if arguments is None else str(arguments)
    return f"{name or '?'}({inside})"
