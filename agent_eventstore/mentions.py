"""Mentions of participants in a text: ``@`` and a name.

Names are compared casefolded, which may change a text's length: "@STRASSE" mentions "Straße".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eventstore.events import Mention

__all__ = ["ParsedMentions", "parse_mentions"]

_AFTER_A_MENTION = " ,:;\uff0c\uff1a\uff1b\u3001"


@dataclass(frozen=True, slots=True)
class ParsedMentions:
    """The mentions of a text, in order, and the text without them."""

    mentions: tuple[Mention, ...]
    clean_text: str


def parse_mentions(text: str, lookup: Mapping[str, str]) -> ParsedMentions:
    """Return a text's mentions, and the text without them.

    A mention is ``@`` and a known name in any case; the longest matching name counts. An email
    address is not a mention, nor is a name that is followed by more letters or digits.

    Args:
        text: The text.
        lookup: The result of `build_lookup`.

    >>> parsed = parse_mentions("@Tom, look at this", {"tom": "tom"})
    >>> parsed.mentions[0].participant, parsed.clean_text
    ('tom', 'look at this')
    """
    folded, places = _folded(text)
    found = [
        Mention(participant=lookup[each["name"]], text=text[start:end], start=start)
        for each in (_mention(tuple(lookup)).finditer(folded) if lookup else ())
        for start, end in [(places[each.start()], places[each.end()])]
        if places[each.end() - 1] < end  # not in the middle of a character, such as "ß"
    ]
    pieces, at = [], 0
    for mention in found:
        start = mention.start or 0
        pieces.append(text[at:start])
        at = start + len(mention.text)
    clean = "".join([*pieces, text[at:]])
    if found:
        clean = re.sub(r"[ \t\u3000]{2,}", " ", clean).strip().lstrip(_AFTER_A_MENTION)
    return ParsedMentions(tuple(found), clean)


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """Return a text casefolded, and for each of its indices, the end included, that in the text.

    >>> _folded("aßb")
    ('assb', [0, 1, 1, 2, 3])
    """
    folded = text.casefold()
    if len(folded) == len(text):
        return folded, range(len(text) + 1)
    places = [place for place, character in enumerate(text) for _ in character.casefold()]
    return folded, [*places, len(text)]


def _mention(names: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    # A name that ends in an ASCII word character must end at a word boundary; Chinese has none.
    choices = (
        re.escape(name) + (r"(?!-?[A-Za-z0-9_])" if re.match(r"[A-Za-z0-9_]", name[-1]) else "")
        for name in longest_first
    )
    return re.compile(rf"(?<![A-Za-z0-9_.+-])[@\uff20](?P<name>{'|'.join(choices)})")
