"""Which literals of a text must survive its prose."""

from __future__ import annotations

import json

import pytest

from projections.context.compression.facts import (
    MOST_FACTS,
    facts_of_json,
    facts_of_messages,
    facts_of_text,
    lasting_facts,
)
from projections.context.compression.lasting import lasting_of
from tests.unit.compression.example import AIRLINE_FLIGHTS, RETAIL_ORDER, said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Order #W2378156 for you", ["#W2378156"]),
        ("I am yusuf_rossi_9620.", ["yusuf_rossi_9620"]),
        ("write to a.b+c@example.co.uk.", ["a.b+c@example.co.uk"]),
        ("see https://example.com/a?b=1#c, or not", ["https://example.com/a?b=1#c"]),
        ("open ./src/app/main.py now", ["./src/app/main.py"]),
        ("in @state/logs/tool-results/4.0.json it is", ["@state/logs/tool-results/4.0.json"]),
        ("on 2024-05-20 at 3pm, 200 USD", ["2024-05-20", "USD"]),
        ("flight HAT001 takes 10kg", ["HAT001"]),
        ("it was Yusuf, in Paris", ["Yusuf", "Paris"]),
        ("Please wait. Then go", []),
        ("订单#W2378156已退款", ["#W2378156"]),
        ("他说「退款完成」了", ["退款完成"]),
        ("", []),
        ("\ud800", []),
    ],
)
def test_literals_of_prose(text: str, expected: list[str]) -> None:
    """Identifiers, addresses, paths, dates and names are facts; amounts and first words are not."""
    assert [fact.text for fact in facts_of_text(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Das Wetter war schön, und der Zug fuhr mit Anna nach Berlin.", ["Anna", "Berlin"]),
        ("Ich bin der Meinung, dass Peter im Rathaus ein neues Protokoll schreibt.", ["Peter"]),
        ("I am Peter and am in the war with Das Keyboard", ["Peter", "Das", "Keyboard"]),
    ],
)
def test_nouns_of_german_are_no_names(text: str, expected: list[str]) -> None:
    """A capital after a determiner is how German writes any noun; names have none."""
    assert [fact.text for fact in facts_of_text(text)] == expected


def test_identifiers_of_a_retail_order_come_before_anything_is_lost() -> None:
    """Ids are identifiers wherever they stand; prices are not facts."""
    found = {fact.text: fact.kind for fact in facts_of_json(RETAIL_ORDER)}

    assert found["#W2378156"] == found["9523456873"] == found["19122"] == "identifier"
    assert found["Philadelphia"] == "name"
    assert found["763 Broadway"] == "phrase"
    assert found["delivered"] == "term"
    assert "46.66" not in found


def test_flights_keep_their_numbers() -> None:
    """A list of like objects gives the facts of each."""
    found = [fact.text for fact in facts_of_json(AIRLINE_FLIGHTS)]

    assert found == ["HAT001", "PHL", "HAT083", "LGA"]


def test_keys_that_are_identifiers_are_facts() -> None:
    """An object by id has its ids in its keys."""
    assert [fact.text for fact in facts_of_json({"1656367028": 1, "price": 2})] == ["1656367028"]


def test_a_fact_with_half_a_surrogate_pair_is_left_out() -> None:
    """It could not be written into a digest."""
    assert facts_of_messages([said(json.dumps({"id": "W123_\ud800"}))]) == ()


def test_the_first_facts_of_a_long_message_stay() -> None:
    """There is an upper limit for one message."""
    facts = facts_of_messages([said(" ".join(f"id_{number}" for number in range(500)))])

    assert len(facts) == MOST_FACTS
    assert facts[0].text == "id_0"


def test_only_what_the_shorter_form_says_lasts() -> None:
    """A gist never knows what the summary has forgotten."""
    lasting = lasting_facts([said("id_1 and id_2")], [said("id_2")])

    assert [fact.text for fact in lasting] == ["id_2"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"input": "id_1"}}]},
        {"role": "assistant", "tool_calls": [{"function": {"arguments": {"order": "id_1"}}}]},
        {"role": "assistant", "function_call": {"name": "f", "arguments": '"id_1"'}},
        {"role": "user", "content": ["id_1", {"text": None}, 3]},
    ],
)
def test_messages_that_are_odd_are_read(message: dict[str, object]) -> None:
    """Custom tools, parsed arguments, the older single call and bare parts raised KeyError."""
    assert [fact.text for fact in facts_of_messages([message])] == ["id_1"]


@pytest.mark.parametrize(
    "text", ["a+", "a--", ".", "_", "-", "a/", "a@", "https://x.", "QUJD+/x9", "退", "[", " "]
)
def test_a_megabyte_of_anything_is_read(text: str) -> None:
    """Several of these took quadratic time, which would be hours here."""
    whole = text * (1_000_000 // len(text))

    assert len(facts_of_messages([said(whole)])) <= MOST_FACTS


@pytest.mark.parametrize("kind", ["text", "value", "key", "number", "path", "url"])
def test_a_long_literal_is_no_fact(kind: str) -> None:
    """Encoded data filled the digest, since identifiers are dropped last."""
    literal = {"number": "9" * 513, "path": "/a1" * 171, "url": "https://a/" + "b1" * 252}
    long = literal.get(kind, "x1" * 257)
    content = {"value": f'["{long}"]', "key": f'{{"{long}": 1}}', "number": f"[{long}]"}
    message = {"role": "tool", "content": content.get(kind, f"See {long} of order #W2378156.")}

    assert not any(len(fact.text) > 512 for fact in facts_of_messages([message]))
    assert not any(len(text) > 512 for text in lasting_of(str(message["content"])).facts)
