"""The words of a text, in any language, as an index stores them; and their places in the text.

Words consist of letters, digits and their marks; case, width and the accents of European scripts
are ignored. Texts in scripts without spaces between words (Chinese, Japanese, Korean, Thai and
others) are split into pairs of characters, so that any part of a sentence can be found. Both
databases index the same words, and so find the same messages.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Snippet", "Term", "pieces_of", "snippet_of", "terms_of", "words_of"]

PIECE_CHARS = 8_000
_PIECES = 128  # of one message: text after about a million characters is not found
_LONGEST = 64  # characters of a word; longer words are cut
_QUERY_CHARS = 1_000
_TERMS = 32
_SNIPPET_CHARS = 160

_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff"
    "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\uff66-\uffdc\U00020000-\U0003ffff"
)
_UNIT = re.compile(rf"[{_DENSE}]+|[^ {_DENSE}]+")
_IS_DENSE = re.compile(f"[{_DENSE}]")
# For `bytes.translate`, for ASCII: lowercase letters and digits, and spaces for everything else.
_PLAIN = bytes(ord(char.lower() if char.isalnum() else " ") for char in map(chr, range(128)))
_PLAIN += bytes(128)
_ACCENTS = re.compile("[\u0300-\u036f]")
_QUOTED = re.compile('"([^"]*)"?|([^" ]+)')
_JOINERS = "\u200c\u200d\ufeff\u00ad"


class _Blanks(dict[int, int]):
    """For `str.translate`: a space for each character outside words, so that places stay."""

    def __missing__(self, code: int) -> int:
        is_word = unicodedata.category(chr(code))[0] in "LNM" or chr(code) in _JOINERS
        self[code] = code if is_word else ord(" ")
        return self[code]


_BLANKS = _Blanks()


@dataclass(frozen=True, slots=True)
class Term:
    """A search term: consecutive words; with ``prefix``, the last is the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of a text, and the places of the matching words in it: start and end of each."""

    text: str
    marks: tuple[tuple[int, int], ...]


def words_of(text: str) -> str:
    """Return the words of a text, in order, separated by spaces."""
    if text.isascii():
        words = text.encode().translate(_PLAIN).decode().split()
        if max(map(len, words), default=0) > _LONGEST:
            words = [word[:_LONGEST] for word in words]
        return " ".join(words)
    return " ".join(word for unit in _units(text) for word in _words(unit[0], last=True))


def pieces_of(text: str) -> Iterator[str]:
    """Yield a text in pieces that an index can hold, cut at spaces where possible."""
    start = 0
    for _ in range(_PIECES):
        end = start + PIECE_CHARS
        if end < len(text):
            end = text.rfind(" ", start + PIECE_CHARS // 2, end) + 1 or end
        yield text[start:end]
        start = end
        if start >= len(text):
            return


def terms_of(query: str) -> list[Term]:
    """Return a query's terms: words, "quoted phrases", and prefixes such as ``be*``.

    Only the first 1,000 characters and 32 terms are used. A query without words has no terms.
    """
    terms: dict[Term, None] = {}
    for quoted, word in _QUOTED.findall(" ".join(query[:_QUERY_CHARS].split())):
        if quoted:
            _add(terms, quoted, prefix=False)
        else:
            # Words written without a space are a phrase: e-mail.
            _add(terms, word, prefix=word.endswith("*"))
    return list(terms)[:_TERMS]


def _add(terms: dict[Term, None], text: str, *, prefix: bool) -> None:
    units = [unit[0] for unit in _units(text)]
    words: list[str] = []
    for place, unit in enumerate(units):
        words += _words(unit, last=place + 1 < len(units))
    if words:
        # A single character of a script without spaces is the prefix of all pairs it begins.
        alone = len(words[-1]) == 1 and _IS_DENSE.match(words[-1]) is not None
        terms[Term(tuple(words), prefix or alone)] = None


def _units(text: str) -> Iterator[re.Match[str]]:
    return _UNIT.finditer(text.translate(_BLANKS))


def _words(unit: str, *, last: bool) -> list[str]:
    """Return the words of a unit: the unit itself or, in a script without spaces, its pairs.

    With ``last``, the last character is added on its own, so that it can be found alone and so that
    phrases can continue after it.
    """
    folded = _fold(unit)
    if not folded:
        return []
    if not _IS_DENSE.match(folded):
        return [folded[:_LONGEST]]
    pairs = [folded[start : start + 2] for start in range(len(folded) - 1)]
    return [*pairs, folded[-1]] if last or not pairs else pairs


def _fold(unit: str) -> str:
    if unit.isascii():
        return unit.lower()
    plain = unicodedata.normalize("NFKC", unit).casefold()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", plain))
    plain = unicodedata.normalize("NFC", plain).translate(_BLANKS).replace(" ", "")
    return plain.translate(dict.fromkeys(map(ord, _JOINERS)))


def snippet_of(text: str, terms: Sequence[Term]) -> Snippet:
    """Return the part of a text that contains most of the words of a query."""
    found = sorted({*_found(text, terms)})
    starts = [first for first, _ in found]

    def within(start: int) -> int:
        return bisect_left(starts, start + _SNIPPET_CHARS) - bisect_left(starts, start)

    best = max(starts, key=within, default=0)
    start = max(0, min(best - _SNIPPET_CHARS // 4, len(text) - _SNIPPET_CHARS))
    if start:
        # Start at the beginning of a word, if one is near.
        start = text.find(" ", start, best) + 1 or start
    end = start + _SNIPPET_CHARS
    marks = [(first - start, min(last, end) - start) for first, last in found]
    return Snippet(text[start:end], _joined([mark for mark in marks if 0 <= mark[0] < mark[1]]))


def _found(text: str, terms: Sequence[Term]) -> Iterator[tuple[int, int]]:
    whole = {word for term in terms for word in term.words}
    prefixes = tuple(term.words[-1] for term in terms if term.prefix)
    for unit in _units(text):
        words = _words(unit[0], last=True)
        if words and _IS_DENSE.match(words[0]):
            exact = len(words) == len(unit[0])
            for place, word in enumerate(words):
                if word in whole or (prefixes and word.startswith(prefixes)):
                    first, size = unit.start() + place, 1 if word.startswith(prefixes or " ") else 2
                    size = min(size, len(word))
                    yield (first, first + size) if exact else unit.span()
        elif words and (words[0] in whole or (prefixes and words[0].startswith(prefixes))):
            yield unit.span()


def _joined(marks: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for first, last in marks:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
