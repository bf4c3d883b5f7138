"""The body of a provider's HTTP response, read along as its bytes pass: pure.

An event stream gives its chunks as they are complete; anything else is one JSON document, which is
there at its end.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

__all__ = ["Body"]

_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")
"""The three of the standard; `str.splitlines` knows others, which may stand within a chunk.

After a carriage return that came last, the line feed may still follow.
"""


class Body:
    """Reads a response's body along.

    Args:
        content_type: The header of this name.
    """

    def __init__(self, content_type: str) -> None:
        self.streamed = "event-stream" in content_type.lower()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._data: list[str] = []

    def feed(self, passed: bytes) -> list[Any]:
        """Take what has passed; return the chunks of the stream that it completes."""
        text = self._decoder.decode(passed)
        self._pieces.append(text)
        if not self.streamed or ("\n" not in text and "\r" not in text):
            return []
        *lines, rest = _LINE_END.split("".join(self._pieces))
        self._pieces = [rest]
        return [chunk for line in lines for chunk in self._line(line)]

    def whole(self) -> Any:
        """Return the document, as JSON or else as text; None if it was a stream.

        An event that a stream's end has cut off is none, as the SDKs see it.
        """
        if self.streamed:
            return None
        return _parsed("".join(self._pieces) + self._decoder.decode(b"", final=True))

    def _line(self, line: str) -> list[Any]:
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            return []
        data, self._data = "\n".join(self._data), []
        return [_parsed(data)] if data and not data.startswith("[DONE]") else []


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
