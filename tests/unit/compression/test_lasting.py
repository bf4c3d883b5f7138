"""Of a user's words, rules stay to the letter and identifiers with the names beside them."""

from __future__ import annotations

import pytest

from projections.context.compression.lasting import Lasting, lasting_of, leaves_anything

NOTHING = Lasting((), ())


def test_a_rule_stays_as_it_was_said() -> None:
    """And what else was said around it does not."""
    said = "Hello there. Halden must never be charged in euro. It was a mess."
    assert Lasting(("Halden must never be charged in euro.",), ()) == lasting_of(said)


def test_an_identifier_stays_with_the_names_of_its_sentence() -> None:
    """A number alone would not say whose it is."""
    said = "Good day. The account of Mia Rossi is 4100-88231-0. Thanks."
    assert Lasting((), ("Mia", "Rossi", "4100-88231-0")) == lasting_of(said)


@pytest.mark.parametrize("said", ["", "Thanks!", "I would like to fly to New York.", "It is 5 pm."])
def test_talk_leaves_nothing(said: str) -> None:
    """Names and numbers alone are not worth a line for ever."""
    assert NOTHING == lasting_of(said)


def test_it_is_bounded() -> None:
    """However much a message says."""
    rules = lasting_of("You must always call W12345 first. " * 1_000).rules
    facts = lasting_of(" ".join(f"W{number:06} " for number in range(1_000))).facts
    assert len(rules) <= 4
    assert len(facts) <= 12
    assert NOTHING == lasting_of(f"You must {'x' * 500}")


@pytest.mark.parametrize(
    "said",
    [
        "NEVER charge it in euro.",
        "Mustn't be late.",
        "\u017fhall we?",  # a long s, which is an s where case does not count
        "Write to mia@example.org.",
        "This is mustard, nevermore, 5 pm.",
        "必须 go",
        "Thanks!",
        f"You must {'x' * 500}",
    ],
)
def test_whether_anything_is_left_is_told_alike(said: str) -> None:
    """The fold asks only that, and need not look for all of it."""
    assert leaves_anything(said) == (NOTHING != lasting_of(said))
    assert leaves_anything(said) == (not said.startswith(("This", "Thanks", "You must x")))
