"""The sentences of a text, at which shortened texts are cut: a list item is one, however long.

Lines end sentences, so that lists, logs and tables are cut between lines. Within a line,
`sentencex` finds the ends; a place counts only if both its English and its German rules end a
sentence there, since a text does not say which language it is in. Scripts without spaces need no
rules of a language. A number that begins a list item never ends a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

__all__ = ["BULLET", "sentences_of"]

BULLET = re.compile(
    r"\s*+(?:[-*+\u2022\u00b7\u2013\u25aa\u25cf\u25e6]|[(\uff08]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)\uff09]"
    r"|[(\uff08]?[\d\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341]{1,3}[\u3001\uff0e\uff09]"
    r"|[\u2460-\u2473])\s*\S"
)
"""The beginning of a list item."""

_LANGUAGES = ("en", "de")
_MAY_END = re.compile(r"[.!?\u3002\uff01\uff1f\u2026](?!\Z)")
_LONGEST_ITEM = 600
_LONGEST = 1_000  # characters; the time of `sentencex` grows with the square of some texts
_NEAR_END = re.compile(r".*(?:[.!?]\s|[\u3002\uff01\uff1f])", re.DOTALL)
_NUMBER_AT_END = re.compile(
    r"(?:^|[\s\u3000-\u303f\uff00-\uff0f\uff1a-\uff20])[(\uff08]?\d{1,2}[.)\u3001\uff0e\uff09]\s*\Z"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def sentences_of(text: str) -> list[str]:
    r"""Return the sentences of a text, in order, without blank ones and white space at the ends.

    >>> sentences_of("Ask Dr. Miller. Then go on:\n1. Make it blue. Or red.\n2. Stop")
    ['Ask Dr. Miller.', 'Then go on:', '1. Make it blue. Or red.', '2. Stop']
    """
    found: list[str] = []
    item = False
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped:
            item = False
        elif len(stripped) <= _LONGEST_ITEM and BULLET.match(line):
            found.append(line.rstrip())
            item = True
        elif item and line[0] in " \t":
            found[-1] += f"\n{line.rstrip()}"  # The item goes on.
        else:
            item = False
            found += [stripped] if _MAY_END.search(stripped) is None else _of_line(stripped)
    return found


def _of_line(line: str) -> Iterator[str]:
    current = ""
    for piece in _pieces(line):
        current += piece
        if _NUMBER_AT_END.search(current) is None:
            yield current.strip()
            current = ""
    if current.strip():
        yield current.strip()


def _pieces(line: str) -> Iterator[str]:
    """Yield a line in pieces that end with a sentence; joined, they are the line."""
    import sentencex  # only processes that shorten texts need it

    while line:
        part, line = _divided(line)
        bare = _SURROGATE.sub("?", part)
        ends = set(range(1, len(part) + 1))
        for language in _LANGUAGES:
            ends &= set(accumulate(map(len, sentencex.segment(language, bare))))
        start = 0
        for end in sorted(ends | {len(part)}):
            yield part[start:end]
            start = end


def _divided(line: str) -> tuple[str, str]:
    if len(line) <= _LONGEST:
        return line, ""
    near = _NEAR_END.match(line, 0, _LONGEST)
    end = _LONGEST if near is None else near.end()
    return line[:end], line[end:]
