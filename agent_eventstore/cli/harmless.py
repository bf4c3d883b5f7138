"""Foreign text, made harmless for a terminal.

Control characters could move the cursor, change colours or reverse the writing direction, and
invisible ones could hide text, so each is shown as its escape.
"""

from __future__ import annotations

import re

__all__ = ["escaped", "one_line", "shown"]

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def shown(text: str) -> str:
    """Return a text with its control characters as escapes; line breaks are kept."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text)


def escaped(document: str) -> str:
    """Return JSON text, or lines of it, with harmful characters escaped and the same value."""
    # Such characters occur only within strings, for which JSON has escapes.
    return _HARMFUL.sub(_as_json_escape, document)


def _as_json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def one_line(text: str, limit: int = 400) -> str:
    """Return the start of a text on one line, escaped, in about ``limit`` characters."""
    start = " ".join(text.lstrip()[: 4 * limit].split())
    return shown(start if len(start) <= limit else f"{start[:limit]}…")
