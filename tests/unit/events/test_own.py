"""Registering a product's own event classes: what is taken, what is refused, and older versions."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from agent_eventstore import events, register_event
from eventstore.errors import InvalidEvent
from eventstore.events import JsonObject, Payload, UnknownEvent, own
from eventstore.events.base import Value
from eventstore.events.codec import decode, encode


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing registered."""
    for name, empty in (("_own", {}), ("_upcasters", {}), ("_logged", set())):
        monkeypatch.setattr(own, name, empty)
    monkeypatch.setattr(own, "_entry_points", [])


def made(name: Any, version: Any = 1, base: type[Payload] = Payload) -> type[Payload]:
    """Make a class of a type and version, with one text."""
    about = {"__annotations__": {"text": str}, "type": name, "schema_version": version, "text": ""}
    return type("Made", (base,), {**about, "__module__": __name__})


class Reply(Value):
    """Something said, and what was answered to it."""

    likes: int = 0
    replies: tuple[Reply, ...] = ()


class Thread(Value):
    """Texts alone: nothing whose size is looked at when it is read."""

    title: str = ""


def test_numbers_are_clamped_wherever_they_stand() -> None:
    """In values that hold values of their own class too; texts beside them stay."""

    @register_event
    class Discussed(Payload):
        type = "acme.discussed"
        thread: Thread = Thread()
        replies: tuple[Reply, ...] = ()

    text = '{"thread":{"title":"leak"},"replies":[{"replies":[{"likes":99999999999999999999}]}]}'
    read = decode("acme.discussed", 1, text)
    assert isinstance(read, Discussed)
    assert read.thread.title == "leak"
    assert 2**63 - 1 == read.replies[0].replies[0].likes


def test_a_class_is_read_back() -> None:
    """By its type, which is said without annotations too."""

    @register_event
    class TicketOpened(events.Payload):
        type = "acme.ticket_opened"
        title: str

    ticket = TicketOpened(title="leak")

    assert ticket == decode("acme.ticket_opened", 1, encode(ticket))


def test_older_versions_are_upcast() -> None:
    """Step by step; a version from the future is kept as it is."""

    def spaced(payload: JsonObject) -> JsonObject:
        return {"text": payload["words"].replace("_", " ")}

    def named(payload: JsonObject) -> JsonObject:
        return {"words": payload["w"]}

    cls = register_event(made("acme.said", 3), upcasters={1: named, 2: spaced})

    assert cls(text="a b") == decode("acme.said", 1, '{"w":"a_b"}')  # type: ignore[call-arg]
    assert cls(text="a b") == decode("acme.said", 2, '{"words":"a_b"}')  # type: ignore[call-arg]
    assert UnknownEvent("acme.said", 4, {"x": 1}) == decode("acme.said", 4, '{"x":1}')


def test_the_same_class_may_come_again() -> None:
    """Itself, or imported again; another class of the type is refused, with the name of both."""
    cls = register_event(made("acme.said"))
    assert cls is register_event(cls)
    again = register_event(made("acme.said"))
    assert again is type(decode("acme.said", 1, "{}"))

    other = made("acme.said")
    other.__qualname__ = "Other"
    with pytest.raises(InvalidEvent, match=r"test_own\.Other.*'acme\.said' belongs to .*\.Made"):
        register_event(other)


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (made("user_message"), "a namespace, a dot and a name"),
        (made("acme.Ticket"), "a namespace, a dot and a name"),
        (made("acme."), "a namespace, a dot and a name"),
        (made("acme." + "x" * 124), "up to 128 characters"),
        (made(None), "a namespace, a dot and a name"),
        (made("acme.said", 0), "from 1, not 0"),
        (made("acme.said", "1"), "from 1, not '1'"),
        (made("acme.said", 2), "an upcaster from each earlier version"),
        (made("acme.said", base=events.TaskEnd), "not a class of the catalogue"),
        (dict, "extend eventstore.events.Payload"),
        ("acme.said", "extend eventstore.events.Payload"),
    ],
    ids=range(11),
)
def test_what_cannot_be_one_is_refused(cls: Any, reason: str) -> None:
    """With the class and what it should be."""
    with pytest.raises(InvalidEvent, match=reason):
        register_event(cls)


def test_upcasters_of_no_version_are_refused() -> None:
    """A wrong number is a mistake, and would never be called."""
    with pytest.raises(InvalidEvent, match="upcaster"):
        register_event(made("acme.said"), upcasters={1: dict})


FOUND = made("acme.found")


def test_entry_points_are_found_once_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that fails is told of, and keeps no other from being found."""
    entries = [
        EntryPoint("broken", "nowhere:Thing", own.ENTRY_POINTS),
        EntryPoint("found", f"{__name__}:FOUND", own.ENTRY_POINTS),
    ]
    monkeypatch.setattr(own, "entry_points", lambda group: entries)
    monkeypatch.setattr(own, "_entry_points", None)

    assert FOUND is type(decode("acme.found", 1, "{}"))
    assert "No module named 'nowhere'" in caplog.text
    assert isinstance(decode("acme.lost", 1, "{}"), UnknownEvent)
