"""The digest's lines about the part of a history that is older than the planned groups.

Older groups are not planned one by one, but the digest still has lines about what users said there:
rules and other lasting statements verbatim, and identifiers. An index finds the newest 256 rows
that contain any. Corrections and then rules come first, newest first, and take up to half of the
room, or all that the rest does not need. Other statements take a quarter, or what is left. Then
come identifiers without a statement, from blocks of 64 messages in turn, so that every block has a
line before any has a second; within a block, identifiers of a rare form come first. What a newer
message of a user takes back has no line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import NamedTuple

from eventstore.database import END
from projections.context.compression.facts import texts_of
from projections.context.compression.lasting import (
    MOST_READ,
    Lasting,
    has_frame,
    lasting_of,
    may_take_back,
    takes_back,
)
from projections.context.compression.reduction import header_tokens
from projections.context.prompts import DIGEST_HEADER
from projections.context.rows import ContextRow
from projections.tokens import Tokenizer, tokenizer_for

__all__ = ["MOST_OLDER", "DigestWriter", "LookForLasting", "Older"]

MOST_OLDER = 256
"""How many rows with rules or identifiers are read."""

LookForLasting = Callable[[int, int], Sequence[ContextRow]]
_SHARE = 16  # percent
_BLOCK = 64
_LINE_END = 1
_DIGIT, _LETTER = re.compile(r"[0-9]"), re.compile(r"[A-Za-z]")
NumberedTexts = Sequence[tuple[int, str]]
_Line = tuple[ContextRow, str]
_Sized = tuple[ContextRow, str, int]
_Left = tuple[ContextRow, Lasting]


class _Lines(NamedTuple):
    """Rows with their rules and facts, newest first; ``facts`` orders those with facts in turns."""

    left: Sequence[_Left]
    facts: Sequence[_Left]


@dataclass(frozen=True, slots=True)
class Older:
    """The digest's lines about messages older than everything else in a request.

    Attributes:
        lines: The lines, oldest first.
        tokens: The tokens of the lines.
        versions: The versions of the events that they were made from, ascending.
    """

    lines: tuple[str, ...]
    tokens: int
    versions: tuple[int, ...]


class DigestWriter:
    """Writes the lines about messages older than the groups of a plan.

    Args:
        lasting: Returns the newest rows before a version that contain rules or identifiers.
        tokenizer: Counts tokens.
        but: Keys of rows that are sent in any case, and need no line.
    """

    def __init__(
        self, lasting: LookForLasting, tokenizer: Tokenizer, but: Collection[tuple[int, int]]
    ) -> None:
        self._lasting, self._but = lasting, but
        self._tokenizer = tokenizer
        self._left: dict[int, _Lines] = {}
        self._header = header_tokens(DIGEST_HEADER, tokenizer)

    def reserve(self, before: int, limit: int, must: int, newer: NumberedTexts = ()) -> int:
        """Return the tokens to reserve: eight percent of the room, or fewer if all lines fit.

        The reserve grows with the limit, but more slowly, so that a larger budget leaves more for
        everything else. It is 0 if the mandatory messages take two fifths of the limit.

        Args:
            before: The version of the oldest group of the plan.
            limit: Upper limit for the request's tokens.
            must: Tokens of everything that must be sent.
            newer: Version and text of each newer message of a user, which may take back older ones.
        """
        room = max(min((limit - must) * _SHARE // 100, limit * 2 // 5 - must), 0)
        if room <= self._header:
            return room
        found, tokens = self._lines(before, newer), self._header
        for _, line in chain(_rules(found.left), _facts(found.facts), _statements(found.left)):
            tokens += _count(line, self._tokenizer.name) + _LINE_END
            if tokens >= room:
                return room
        return tokens if tokens > self._header else 0

    def digest(
        self, before: int, reserved: int, until: int = END, newer: NumberedTexts = ()
    ) -> Older | None:
        """Return the lines about rows before a version that fit into the reserved tokens.

        With ``until``, only rows before that version too.
        """
        found = self._lines(before, newer)
        return _older_of(found, reserved - self._header, self._tokenizer, until)

    def _lines(self, before: int, newer: NumberedTexts) -> _Lines:
        if before not in self._left:
            found = self._lasting(before, MOST_OLDER)
            rows = [row for row in found if row.key not in self._but]
            left = _in_effect([(row, _left_by(row)) for row in rows], newer)
            self._left[before] = _Lines(left, _in_turns(left))
        return self._left[before]


def _in_effect(left: Sequence[_Left], newer: NumberedTexts) -> list[_Left]:
    """Return rows, newest first, without what newer messages of users take back."""
    after = [each for each in newer if may_take_back(each[1])]
    found: list[_Left] = []
    for row, lasting in left:
        text = _text(row)
        if any(takes_back(each, (row.version, text)) for each in after):
            lasting = lasting.without(after, row.version)
        if may_take_back(text):
            after.append((row.version, text))
        found.append((row, lasting))
    return found


def _older_of(lines: _Lines, room: int, tokenizer: Tokenizer, until: int) -> Older | None:
    """Return the lines that fit into ``room`` tokens, or None if there are none.

    Rules take up to half of it, or what everything else leaves; other statements up to a quarter.
    """
    facts = [*_sized(_facts(lines.facts, until), tokenizer)]
    rest = room - sum(size for *_, size in facts)
    rules = _fitting(_sized(_rules(lines.left, until), tokenizer), max(room // 2, rest))
    room -= sum(size for *_, size in rules)
    statements = _fitting(
        _sized(_statements(lines.left, until), tokenizer), max(room // 4, min(rest, room))
    )
    room -= sum(size for *_, size in statements)
    verbatim = "\n".join(line for _, line, _ in statements)
    facts = [*_sized(_facts(lines.facts, until, verbatim), tokenizer)]
    digest = [*rules, *statements, *_fitting(facts, room)]
    if not digest:
        return None
    digest.sort(key=lambda each: each[0].key)
    return Older(
        tuple(line for _, line, _ in digest),
        sum(size for _, _, size in digest),
        tuple(sorted({version for row, _, _ in digest for version in row.source_versions})),
    )


def _sized(lines: Iterator[_Line], tokenizer: Tokenizer) -> Iterator[_Sized]:
    for row, line in lines:
        yield row, line, _count(line, tokenizer.name) + _LINE_END


def _fitting(lines: Iterable[_Sized], room: int) -> list[_Sized]:
    """Return the lines before the first one that does not fit."""
    fitting = []
    for row, line, size in lines:
        if size > room:
            break
        room -= size
        fitting.append((row, line, size))
    return fitting


def _rules(left: Sequence[_Left], until: int = END) -> Iterator[_Line]:
    order = sorted(left, key=lambda each: not each[1].taken_back)  # Corrections first.
    return _verbatim(((row, lasting.rules) for row, lasting in order), until)


def _statements(left: Sequence[_Left], until: int = END) -> Iterator[_Line]:
    framed = ((row, [*filter(has_frame, lasting.statements)]) for row, lasting in left)
    return _verbatim(chain(framed, ((row, lasting.statements) for row, lasting in left)), until)


def _verbatim(left: Iterable[tuple[ContextRow, Sequence[str]]], until: int) -> Iterator[_Line]:
    seen: set[str] = set()
    for row, sentences in left:
        for sentence in sentences if row.version < until else ():
            if sentence not in seen:
                seen.add(sentence)
                yield row, f"{row.version} user: {sentence}"


def _in_turns(left: Sequence[_Left]) -> list[_Left]:
    """Return the rows with facts, one of each block in turn; within a block, rare forms first."""
    often = Counter(form for _, lasting in left for form in _forms(lasting.facts))
    blocks: dict[int, list[_Left]] = {}
    for row, lasting in left:
        if lasting.facts:
            blocks.setdefault((row.ordinal or 0) // _BLOCK, []).append((row, lasting))
    for block in blocks.values():
        block.sort(key=lambda each: min([often[form] for form in _forms(each[1].facts)]))
    return [each for turn in zip_longest(*blocks.values()) for each in turn if each is not None]


def _facts(left: Sequence[_Left], until: int = END, verbatim: str = "") -> Iterator[_Line]:
    seen: set[str] = set()
    for row, lasting in left:
        new = [fact for fact in lasting.facts if fact not in seen and fact not in verbatim]
        if new and row.version < until:
            seen.update(new)
            yield row, f"{row.version} user: {' '.join(new)}"


@lru_cache(maxsize=1 << 12)
def _form(fact: str) -> str:
    """Return the form of a fact: letters and digits are replaced, so order numbers are equal."""
    return _LETTER.sub("a", _DIGIT.sub("0", fact))


@lru_cache(maxsize=4 * MOST_OLDER)
def _forms(facts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_form, facts))


def _text(row: ContextRow) -> str:
    return "\n".join(texts_of(row.message))[:MOST_READ]


def _left_by(row: ContextRow) -> Lasting:
    return _lasting_of(_text(row))


# A step reads mostly the same rows as the previous one; analysing them is half of its time.
_lasting_of = lru_cache(maxsize=4 * MOST_OLDER)(lasting_of)


@lru_cache(maxsize=1 << 12)
def _count(text: str, encoding: str) -> int:
    return tokenizer_for(encoding).count(text).tokens
