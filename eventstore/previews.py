"""The ends of a text that is kept elsewhere: what a reader sees of it. JSON stays JSON.

Of a JSON value, prose goes first, then the ends of long lists and objects; keys, numbers and short
texts, such as identifiers, stay as long as they fit.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["PREVIEW_CHARS", "is_json", "preview_of"]

PREVIEW_CHARS = 2_000
"""Characters that a preview has at most."""

_MOST_PARSED = 8_000_000  # characters; parsing more would make an append wait
_DEEPEST = 8
_ELLIPSIS = "…"
# How many entries of a list, and characters of a text, are kept: the first that fits is taken.
_SIZES = ((24, 200), (12, 120), (8, 80), (5, 48), (3, 32), (2, 24), (1, 16))


def preview_of(text: str) -> str:
    """Return the preview of a text; a JSON object or list gives a smaller one of the same shape."""
    value = _parsed(text)
    if value is not None:
        for entries, characters in _SIZES:
            smaller = json.dumps(_cut(value, entries, characters, _DEEPEST), ensure_ascii=False)
            if len(smaller) <= PREVIEW_CHARS:
                return smaller
    return _ends(text)


def _ends(text: str) -> str:
    """Return the start of a text and its end, where what went wrong often stands."""
    if len(text) <= PREVIEW_CHARS:
        return text
    end = PREVIEW_CHARS // 4
    return f"{text[: PREVIEW_CHARS - end - 3]}\n{_ELLIPSIS}\n{text[-end:]}"


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or list; one too long to be parsed is none."""
    return _parsed(text) is not None


def _parsed(text: str) -> Any:
    if text[:1] not in ("{", "[") or len(text) > _MOST_PARSED:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _cut(value: Any, entries: int, characters: int, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else value[:characters] + _ELLIPSIS
    if not isinstance(value, dict | list) or not value:
        return value
    if not depth:
        return _ELLIPSIS
    if isinstance(value, list):
        kept = [_cut(each, entries, characters, depth - 1) for each in value[:entries]]
        more = len(value) - len(kept)
        return [*kept, f"{_ELLIPSIS} {more} more"] if more else kept
    # Objects are wider than lists are long: their keys tell what there is.
    held = list(value.items())
    inner = {key: _cut(each, entries, characters, depth - 1) for key, each in held[: entries * 3]}
    more = len(held) - len(inner)
    return {**inner, _ELLIPSIS: f"{more} more"} if more else inner
