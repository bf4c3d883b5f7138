"""What a user's words leave behind however old they are: rules to the letter, and identifiers.

A rule is a sentence of obligation ("A must never be charged in euro"), which no list of facts can
stand for. Of the other sentences that name an identifier, that and the names around it stay. Plain
patterns, so that the same text leaves the same for ever; whoever changes them raises the version
of the projection `context`, which notes whose words leave anything.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from projections.context.compression.facts import facts_of_text

__all__ = ["MOST_READ", "Lasting", "lasting_of"]

MOST_READ = 8_000  # characters of a message that are looked at
_LONGEST_RULE = 240
_MOST_RULES = 4  # of one message
_MOST_FACTS = 12
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_IDENTIFIES = re.compile("[0-9@/_]")  # what no identifier is without
_OBLIGES = re.compile(
    r"\b(?:must|must not|mustn't|never|always|shall|may not|under no circumstances|from now on"
    r"|make sure|do not ever)\b|必须|不得|绝不|永远|务必|禁止",
    re.IGNORECASE,
)


class Lasting(NamedTuple):
    """What is left of a message.

    Attributes:
        rules: Sentences of obligation, as they were said.
        facts: Identifiers of other sentences, with the names that stand in these.
    """

    rules: tuple[str, ...]
    facts: tuple[str, ...]


_NOTHING = Lasting((), ())


def lasting_of(text: str) -> Lasting:
    """Return what a user's text leaves behind; often nothing."""
    if not (_IDENTIFIES.search(text) or _OBLIGES.search(text)):
        return _NOTHING
    rules: list[str] = []
    facts: dict[str, None] = {}
    for sentence in _SENTENCE.split(text[:MOST_READ]):
        said = sentence.strip() if sentence else ""
        if not said:
            continue
        if len(said) <= _LONGEST_RULE and _OBLIGES.search(said):
            rules.append(said)
            continue
        if not _IDENTIFIES.search(said):
            continue
        found = [fact for fact in facts_of_text(said) if fact.kind in ("identifier", "name")]
        if any(fact.kind == "identifier" for fact in found):
            facts.update(dict.fromkeys(fact.text for fact in found))
    return Lasting(tuple(rules[:_MOST_RULES]), tuple([*facts][:_MOST_FACTS]))
