"""Upcasters: a payload of an older version becomes one of the current version, step by step."""

from __future__ import annotations

from typing import ClassVar

import pytest

from eventstore.events import JsonObject, Payload, UnknownEvent, own, register_event
from eventstore.events.codec import decode


class Greeting(Payload):
    """A type that has been changed twice: a name was added, then the text became words."""

    type: ClassVar[str] = "acme.greeting"
    schema_version: ClassVar[int] = 3

    words: tuple[str, ...]
    name: str


def add_name(payload: JsonObject) -> JsonObject:
    """Version 1 knew no names."""
    return {**payload, "name": "somebody"}


def split_text(payload: JsonObject) -> JsonObject:
    """Version 2 kept one text."""
    return {"name": payload["name"], "words": payload["text"].split()}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the class with its two upcasters, for this test alone."""
    for name in ("_own", "_upcasters"):
        monkeypatch.setattr(own, name, {})
    register_event(Greeting, upcasters={1: add_name, 2: split_text})


def read(version: int, text: str) -> Payload | UnknownEvent:
    """Decode a greeting."""
    return decode("acme.greeting", version, text)


def test_oldest_version_takes_every_step() -> None:
    """Version 1 goes through both upcasters, in order."""
    expected = Greeting(words=("good", "day"), name="somebody")

    assert expected == read(1, '{"text": "good day"}')


def test_version_between_takes_the_rest() -> None:
    """Version 2 goes through the second one only."""
    assert Greeting(words=("hi",), name="Ada") == read(2, '{"text": "hi", "name": "Ada"}')


def test_current_version_takes_none() -> None:
    """What this code wrote is read as it is."""
    assert Greeting(words=("hi",), name="Ada") == read(3, '{"words": ["hi"], "name": "Ada"}')


def test_surrogates_survive_upcasting() -> None:
    """An older payload may hold them as well."""
    assert Greeting(words=("\ud800",), name="somebody") == read(1, '{"text": "\\ud800"}')


def test_failing_upcaster_gives_an_unknown_event() -> None:
    """A payload that an upcaster cannot take is kept as it was written, with the reason."""
    event = read(2, '{"name": "Ada"}')

    assert isinstance(event, UnknownEvent)
    assert ("acme.greeting", 2, {"name": "Ada"}) == (event.type, event.schema_version, event.raw)
    assert "text" in (event.reason or "")


def test_missing_upcaster_gives_an_unknown_event() -> None:
    """A gap in the chain of upcasters does not break reading."""
    own._upcasters.clear()
    event = read(1, "{}")

    assert isinstance(event, UnknownEvent)
    assert event.reason


def test_upcaster_may_fail_in_any_way() -> None:
    """A division by zero, for example, ended every read of the conversation and of the feed."""

    def divide(payload: JsonObject) -> JsonObject:
        return {**payload, "share": 1 // payload["count"]}

    own._upcasters["acme.greeting", 1] = divide
    event = read(1, '{"count": 0}')

    assert isinstance(event, UnknownEvent)
    assert "division" in (event.reason or "")
