"""The parts of user messages that are kept however old they are: rules verbatim, and identifiers.

A rule is a sentence of obligation ("A must never be charged in euro"), which no list of facts can
replace. From other sentences with an identifier, the identifier and the names next to it are kept.
The patterns are regular expressions, so the same text always gives the same result. When you change
them, raise the version of the projection `context`, which marks the messages with such parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from projections.context.compression.facts import facts_of_text, names_identifier

__all__ = ["MOST_READ", "Lasting", "lasting_of", "leaves_anything"]

MOST_READ = 8_000  # characters of a message that are scanned
_LONGEST_RULE = 240
_MOST_RULES = 4  # of one message
_MOST_FACTS = 12
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_IDENTIFIES = re.compile("[0-9@/_]")  # every identifier contains one of these
_OBLIGING = (
    "must",
    "never",
    "always",
    "shall",
    "may not",
    "under no circumstances",
    "from now on",
    "make sure",
    "do not ever",
)
_OBLIGES = re.compile(
    rf"\b(?:mustn't|{'|'.join(_OBLIGING)})\b|必须|不得|绝不|永远|务必|禁止", re.IGNORECASE
)


class Lasting(NamedTuple):
    """The lasting parts of a message.

    Attributes:
        rules: Sentences of obligation, verbatim.
        facts: Identifiers in other sentences, with the names in the same sentences.
    """

    rules: tuple[str, ...]
    facts: tuple[str, ...]


_NOTHING = Lasting((), ())


def lasting_of(text: str) -> Lasting:
    """Return the lasting parts of a user's text; often none."""
    rules: list[str] = []
    facts: dict[str, None] = {}
    for said, obliges in _left(text):
        if obliges:
            rules.append(said)
            continue
        found = (fact for fact in facts_of_text(said) if fact.kind in ("identifier", "name"))
        facts.update(dict.fromkeys(fact.text for fact in found))
    if not (rules or facts):
        return _NOTHING
    return Lasting(tuple(rules[:_MOST_RULES]), tuple([*facts][:_MOST_FACTS]))


def leaves_anything(text: str) -> bool:
    """Whether `lasting_of` finds anything in a text; stops at the first find."""
    return next(_left(text), None) is not None


def _left(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each sentence with a lasting part, and whether it is a rule."""
    obliges = _may_oblige(text)
    if not (obliges or _IDENTIFIES.search(text)):
        return
    for sentence in _SENTENCE.split(text[:MOST_READ]):
        said = sentence.strip() if sentence else ""
        if not said:
            continue
        if obliges and len(said) <= _LONGEST_RULE and _OBLIGES.search(said):
            yield said, True
        elif _IDENTIFIES.search(said) and names_identifier(said):
            yield said, False


def _may_oblige(text: str) -> bool:
    """Whether a text may contain a word of obligation; plain searches are ten times as fast."""
    if not text.isascii():
        return _OBLIGES.search(text) is not None
    lowered = text.lower()
    for word in _OBLIGING:  # A loop, because every user message passes here.
        if word in lowered:
            return True
    return False
