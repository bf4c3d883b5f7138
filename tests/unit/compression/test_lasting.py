"""Of a user's words, rules stay to the letter and identifiers with the names beside them."""

from __future__ import annotations

import pytest

from projections.context.compression.lasting import (
    Lasting,
    lasting_of,
    leaves_anything,
    superseded,
    takes_back,
)

NOTHING = Lasting((), ())


def test_a_rule_stays_as_it_was_said() -> None:
    """And what else was said around it does not."""
    said = "Hello there. Halden must never be charged in euro. It was a mess."
    assert Lasting(("Halden must never be charged in euro.",), ()) == lasting_of(said)


def test_an_identifier_stays_with_the_names_of_its_sentence() -> None:
    """A number alone would not say whose it is; the value of one thing has its words as well."""
    said = "Good day. Ask about 4100-88231-0 of Mia Rossi. Thanks."
    assert Lasting((), ("4100-88231-0", "Mia", "Rossi")) == lasting_of(said)
    said = "Good day. The account of Mia Rossi is 4100-88231-0. Thanks."
    statement = "The account of Mia Rossi is 4100-88231-0."
    assert Lasting((), ("Mia", "Rossi", "4100-88231-0"), (statement,)) == lasting_of(said)


@pytest.mark.parametrize(
    "said",
    [
        *("", "Thanks!", "It is 5 pm.", "I read about tides yesterday.", "Tell me about my city."),
        *("What is my name?", "我想知道天气怎么样。", "Erzähl mir von Brücken."),
    ],
)
def test_talk_leaves_nothing(said: str) -> None:
    """Names and numbers alone are not worth a line for ever."""
    assert NOTHING == lasting_of(said)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("The invoice number is 4471.", "No, not 4471 but 4717."),
        ("The invoice number is 4471.", "The correct invoice number is 4717."),
        ("I live in Bremen.", "I actually live in Bonn now."),
        ("My budget is 500 dollars.", "My budget is 650 dollars after all."),
        ("Mein Budget liegt bei 500 Euro.", "Unser neues Budget liegt bei 600 Euro."),
        ("发票号是3307。", "不对, 不是3307, 而是3370。"),
    ],
)
def test_the_newer_statement_of_one_thing_wins(first: str, then: str) -> None:
    """However far it is from the older, and not the other way round."""
    assert takes_back((900, then), (2, first))
    assert not takes_back((900, "The gate is B7."), (2, first))


@pytest.mark.parametrize(
    "said",
    [
        "I would like to fly to New York.",
        "Shellfish makes me really ill.",
        "We have four cats at home.",
        "The wifi password at the cabin is bluefinch.",
        "I can't stand coriander.",
        "Mein Budget für den Urlaub liegt bei 900 Euro.",
        "Von Nüssen bekomme ich Ausschlag.",
        "我穿41码的鞋。",
        "仓库的门禁密码是海鸥。",
        "J'habite à Lyon.",
        "Tengo dos hijas.",
        "私は京都に住んでいます。",
        "저는 채식주의자입니다.",
    ],
)
def test_what_users_state_about_themselves_or_a_value_stays(said: str) -> None:
    """Wishes and small numbers too: an earlier version kept rules and identifiers only."""
    lasting = lasting_of(said)
    assert said in (*lasting.rules, *lasting.statements)


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


@pytest.mark.parametrize(
    "said",
    [
        "My daughter is allergic to peanuts, keep that in mind.",
        "Don't use emojis.",
        "Please do not send me links.",
        "Call me Kim.",
        "I am a nurse from Graz.",
        "From now on answer in French.",
        "Bitte keine Emojis verwenden.",
        "Nenn mich Alex.",
        "Meine Tochter ist gegen Nüsse allergisch.",
        "Ab jetzt nur noch auf Deutsch antworten.",
        "我女儿对花生过敏。",
        "不要用表情符号。",
        "叫我小李。",
        "以后请用中文回答。",
    ],
)
def test_what_users_say_to_be_kept_stays_verbatim(said: str) -> None:
    """Once only words of obligation counted, and in no language but English and Chinese."""
    left = lasting_of(f"Hello. {said} It was fun.")
    assert (*left.rules, *left.statements) == (said,)


@pytest.mark.parametrize(
    ("said", "old"),
    [
        ("No, not X12345 but Y99999.", "X12345"),
        ("Nein, nicht RE-11111, sondern RE-22222.", "RE-11111"),
        ("不是王五，是王六。", "王五"),
        ("Use tabs instead of spaces.", "spaces"),
        ("I meant Tuesday, not Monday.", "Monday"),
        ("把周二改成周三", "周二"),
    ],
)
def test_a_correction_says_what_it_takes_back(said: str, old: str) -> None:
    """And is itself a rule, so that both values stand together."""
    left = lasting_of(said)
    assert (left.rules, left.taken_back) == ((said,), (old,))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("My invoice is RE-11111.", "Not RE-11111, but RE-22222."),
        ("Call me Kim.", "Please call me Alex."),
        ("Answer in French.", "From now on write in German."),
        ("Nenn mich Kim.", "Nenn mich Alex."),
        ("叫我小李。", "叫我老王。"),
        ("The dinner is on Monday.", "On Tuesday, not Monday."),
    ],
)
def test_the_newer_of_two_contradicting_statements_wins(older: str, newer: str) -> None:
    """The older one is taken back by it, and not the other way round."""
    assert superseded([(1, older), (3, newer)]) == {0: 1}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Never use the word synergy.", "Never use the word leverage."),
        ("My daughter is allergic to nuts.", "My daughter is five."),
        ("It is RE-11111.", "Not only RE-11111, but RE-22222."),
    ],
)
def test_statements_that_can_both_hold_both_stay(older: str, newer: str) -> None:
    """A rule is not taken back by another rule that begins alike."""
    assert superseded([(1, older), (3, newer)]) == {}
