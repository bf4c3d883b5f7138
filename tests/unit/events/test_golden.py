"""Golden files: what earlier versions of this code wrote is read for ever.

``tests/golden/<type>.v<version>.json`` holds a payload with every field filled. A file is written
once, when its version is new, and never edited: a test that fails here has found a change that old
databases would not survive. Such a change needs a new ``schema_version`` and an upcaster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventstore.events import EVENT_TYPES, Payload, UnknownEvent, codec
from eventstore.events.base import Value
from eventstore.events.codec import decode, encode
from eventstore.events.registry import REGISTRY, UPCASTERS
from eventstore.events.values import VersionRange

GOLDEN = Path(__file__).parents[2] / "golden"
WRITTEN = [
    (cls.type, version) for cls in EVENT_TYPES for version in range(1, cls.schema_version + 1)
]
CURRENT = [(cls.type, cls.schema_version) for cls in EVENT_TYPES]


def golden(type_name: str, version: int) -> str:
    """Return the text of a golden file."""
    return (GOLDEN / f"{type_name}.v{version}.json").read_text(encoding="utf-8")


def values(value: Any) -> Iterator[Value]:
    """Yield every value object in a payload, the payload itself first."""
    if isinstance(value, Value):
        yield value
        for name in type(value).model_fields:
            yield from values(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from values(item)


def current() -> list[Payload]:
    """Return the payloads of all golden files of current versions."""
    found = [decode(*key, golden(*key)) for key in CURRENT]
    return [payload for payload in found if isinstance(payload, Payload)]


def value_classes(cls: type[Value] = Value) -> Iterator[type[Value]]:
    """Yield the classes of values that payloads are made of."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from value_classes(subclass)


def test_every_type_and_version_has_a_file_and_none_is_left_over() -> None:
    """A new type or version cannot be released without its golden file, nor an old one lost."""
    expected = {f"{name}.v{version}.json" for name, version in WRITTEN}

    assert expected == {path.name for path in GOLDEN.iterdir()}


def test_every_older_version_has_an_upcaster() -> None:
    """There is one for each version before the current one, and for no other."""
    assert set(WRITTEN) - set(CURRENT) == set(UPCASTERS)


@pytest.mark.parametrize(("name", "version"), WRITTEN)
def test_file_decodes_to_the_class_of_its_type(name: str, version: int) -> None:
    """Whatever its version, the payload comes back as today's class."""
    assert REGISTRY[name] is type(decode(name, version, golden(name, version)))


@pytest.mark.parametrize(("name", "version"), CURRENT)
def test_current_file_encodes_to_itself(name: str, version: int) -> None:
    """No field is lost, renamed, added or moved on the way in and out."""
    text = golden(name, version)
    payload = decode(name, version, text)

    compact = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))

    assert compact == encode(payload)


@pytest.mark.parametrize(("name", "version"), CURRENT)
def test_current_file_has_every_field_filled(name: str, version: int) -> None:
    """A field that the file leaves out would not be protected."""
    payload = decode(name, version, golden(name, version))

    empty = [
        f"{type(value).__name__}.{field}"
        for value in values(payload)
        for field in type(value).model_fields
        if field not in value.model_fields_set or getattr(value, field) in (None, (), {}, "")
    ]

    assert [] == empty


def test_every_value_class_is_in_some_file() -> None:
    """Parts and other values are protected as well as the payloads that hold them."""
    elsewhere = {"Meta"}
    used = {type(value).__name__ for payload in current() for value in values(payload)}
    declared = {cls.__name__ for cls in value_classes() if cls.__module__.startswith("eventstore.")}

    assert declared - {"Payload"} - elsewhere == used


def test_a_class_that_lost_a_field_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check on every file can fail: an unknown field keeps a payload from its class."""

    class Retraction(Payload):
        type = "retraction"

        versions: tuple[VersionRange, ...]

    monkeypatch.setitem(REGISTRY, "retraction", Retraction)
    monkeypatch.delitem(codec._CURRENT, ("retraction", 1))

    assert isinstance(decode("retraction", 1, golden("retraction", 1)), UnknownEvent)
