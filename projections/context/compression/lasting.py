"""What is kept of a user's message at any age: rules verbatim, and identifiers.

A rule is a sentence of obligation ("A must never be charged in euro"), which a list of facts cannot
replace. Of any other sentence that contains an identifier, the identifiers and names are kept. The
patterns are fixed, so the same text always keeps the same. If you change a pattern, raise the
version of the projection `context`, which notes the messages of which anything is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from projections.context.compression.facts import (
    LONGEST_FACT,
    SENTENCE_ENDS,
    facts_of_text,
    names_identifier,
)

__all__ = ["MOST_READ", "Lasting", "lasting_of", "leaves_anything"]

MOST_READ = 8_000  # characters; the rest of a message is not searched
_LONGEST_RULE = 240
_MOST_RULES = 4  # of one message
_MOST_FACTS = 12
_IDENTIFIES = re.compile("[0-9@/_]")  # Every identifier contains one of these.
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
    """What is kept of a message.

    Attributes:
        rules: Sentences of obligation, verbatim.
        facts: Identifiers in other sentences, and the names in those sentences.
    """

    rules: tuple[str, ...]
    facts: tuple[str, ...]


_NOTHING = Lasting((), ())


def lasting_of(text: str) -> Lasting:
    """Return the rules and facts to keep of a user's text; often none."""
    rules: list[str] = []
    facts: dict[str, None] = {}
    for said, obliges in _left(text):
        if obliges:
            rules.append(said)
            continue
        found = (fact.text for fact in facts_of_text(said) if fact.kind in ("identifier", "name"))
        facts.update(dict.fromkeys(text for text in found if len(text) <= LONGEST_FACT))
    if not (rules or facts):
        return _NOTHING
    return Lasting(tuple(rules[:_MOST_RULES]), tuple([*facts][:_MOST_FACTS]))


def leaves_anything(text: str) -> bool:
    """Whether `lasting_of` finds anything in a text; stops at the first match."""
    return next(_left(text), None) is not None


def _left(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each sentence that is a rule or contains an identifier, and whether it is a rule."""
    obliges = _may_oblige(text)
    if not (obliges or _IDENTIFIES.search(text)):
        return
    for sentence in SENTENCE_ENDS.split(text[:MOST_READ]):
        said = sentence.strip() if sentence else ""
        if not said:
            continue
        if obliges and len(said) <= _LONGEST_RULE and _OBLIGES.search(said):
            yield said, True
        elif _IDENTIFIES.search(said) and names_identifier(said):
            yield said, False


def _may_oblige(text: str) -> bool:
    """Whether a text may contain a word of obligation; ``in`` takes a tenth of a regex's time."""
    if not text.isascii():
        return _OBLIGES.search(text) is not None
    lowered = text.lower()
    for word in _OBLIGING:  # Faster than `any`: this runs for every user message.
        if word in lowered:
            return True
    return False
