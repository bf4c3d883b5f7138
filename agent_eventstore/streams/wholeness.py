"""Whether the text of a tool call's arguments, which arrives in pieces, is a whole JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

__all__ = ["Wholeness"]

_MARKS = re.compile(r'\\.|\\\Z|["{}\[\]]', re.DOTALL)


class Wholeness:
    """Looks at each piece once, and parses the text once: when its first bracket is closed."""

    def __init__(self) -> None:
        self._seen = 0
        self._depth = 0
        self._quoted = False
        self._escaped = ""
        self._closed = False
        self._whole: bool | None = None

    def of(self, pieces: Sequence[str]) -> bool:
        """Return whether the pieces are one; they are those of the last time, and new ones."""
        for piece in pieces[self._seen :]:
            if self._closed:
                self._whole = False if piece.strip() else self._whole
            else:
                self._look(piece)
        self._seen = len(pieces)
        if self._closed and self._whole is None:
            self._whole = _is_object("".join(pieces))
        return bool(self._whole)

    def _look(self, piece: str) -> None:
        text, self._escaped = self._escaped + piece, ""
        for mark in _MARKS.finditer(text):
            found = mark[0]
            if found == '"':
                self._quoted = not self._quoted
            elif found == "\\":
                self._escaped = found
            elif found[0] != "\\" and not self._quoted:
                self._depth += 1 if found in "{[" else -1
                if self._depth <= 0:
                    self._closed = True
                    return


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
