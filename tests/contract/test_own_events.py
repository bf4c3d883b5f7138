"""A product's own events: written and read as their class, and kept where nobody knows it."""

from __future__ import annotations

from datetime import date
from typing import Any, ClassVar
from uuid import UUID

import pytest
from pydantic import Field, SecretStr

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.errors import InvalidEvent
from eventstore.events import own
from eventstore.events.base import Value
from eventstore.security.redaction import redact_secrets
from tests.contract.facade import say
from tests.contract.plain import PlainClient


class Note(e.Payload):
    """A value within an own event."""

    type: ClassVar[str] = "acme.note"

    text: str = ""


@e.register_event
class TicketOpened(e.Payload):
    """Somebody opened a ticket."""

    type: ClassVar[str] = "acme.ticket_opened"

    number: int
    title: str = ""
    notes: list[Note] = []  # noqa: RUF012 - pydantic copies it
    more: Any = None


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that knows none of these classes."""
    own.class_of("acme.never_registered")  # Or entry points might register theirs for this test.
    monkeypatch.setattr(own, "_own", {})
    monkeypatch.setattr(own, "_logged", set())


def test_is_read_as_its_class(store: EventStore, cid: UUID) -> None:
    """With its type and version in the envelope, large or small."""
    opened = [TicketOpened(number=1, title="ü" * size, more={"a": [1]}) for size in (1, 60_000)]
    store.append(cid, [*say("before"), *opened])

    recorded = list(store.read(cid))[1:]

    assert opened == [event.data for event in recorded]
    assert {("acme.ticket_opened", 1)} == {(each.type, each.schema_version) for each in recorded}
    assert {} == store.verify(cid).unregistered


def test_is_unknown_to_a_process_without_the_class(
    fresh: EventStore,
    plain: PlainClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is read, told of once, counted by a verification, and written again byte for byte."""
    first, second = new_id(), new_id()
    fresh.append(first, [TicketOpened(number=1, title="ü")] * 2)
    _forget(monkeypatch)

    events = [event.data for event in fresh.read(first)]
    fresh.append(second, [each for each in events if each is not None])

    raw = {"number": 1, "title": "ü", "notes": []}
    assert [e.UnknownEvent("acme.ticket_opened", 1, raw)] * 2 == events
    assert 1 == caplog.text.count("event_type_not_registered")
    assert "eventstore.events" in caplog.text
    assert {"acme.ticket_opened": 4} == dict(fresh.verify().unregistered)
    rows = "SELECT DISTINCT type, schema_version, CAST(data AS TEXT) FROM events"
    assert 1 == len(plain.execute(rows))


def test_a_class_that_is_not_registered_is_refused(
    store: EventStore, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it would be written, since it could not be read back."""
    with pytest.raises(InvalidEvent, match=r"register_event\(Note\)") as caught:
        store.append(cid, [*say("before"), Note(text="x")])
    assert 1 == caught.value.index
    _forget(monkeypatch)
    with pytest.raises(InvalidEvent, match=r"register_event\(TicketOpened\)"):
        store.append(cid, [TicketOpened(number=1)])


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (TicketOpened(number=2**63), "number"),
        (TicketOpened(number=1, more={"a": 10**5_000}), "more"),
    ],
    ids=["number", "json"],
)
def test_what_is_beyond_the_bounds_is_refused(
    store: EventStore, cid: UUID, payload: TicketOpened, field: str
) -> None:
    """As of any event, by field and limit."""
    with pytest.raises(InvalidEvent, match="at most") as caught:
        store.append(cid, [payload])
    assert field == caught.value.field


def test_what_could_not_be_read_back_is_refused(store: EventStore, cid: UUID) -> None:
    """A class whose JSON is not what it reads shows when it is first written, and says why."""

    @e.register_event
    class Odd(e.Payload):
        type: ClassVar[str] = "acme.odd"
        names: frozenset[bytes] = frozenset()

    with pytest.raises(InvalidEvent, match=r"acme\.odd"):
        store.append(cid, [Odd(names=frozenset((b"\xff",)))])


def test_is_redacted_and_erased_as_others(database_url: str) -> None:
    """Texts in lists of values too; an erased one keeps its envelope."""
    cid, secret = new_id(), "sk-proj-" + "aB3" * 14
    ticket = TicketOpened(number=1, title=secret, notes=[Note(text=secret)], more=[secret])
    with EventStore.open(database_url, redact=redact_secrets) as store:
        store.append(cid, [ticket])
        (event,) = store.read(cid)
        assert secret not in repr(event)
        assert 3 == repr(event).count("[redacted: api_key]")

        store.erase(cid, reason="asked for")

        (event, _) = store.read(cid)
        assert ("acme.ticket_opened", None) == (event.type, event.data)
        assert store.verify(cid).ok


class _Told(e.Payload):
    """Values of kinds that JSON has not."""

    type: ClassVar[str] = "acme.told"

    count: int | None = 5
    secret: SecretStr = SecretStr("")
    hidden: str = Field(default="", exclude=True)
    more: Any = None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", None),
        ("secret", SecretStr("pw")),
        ("hidden", "x"),
        ("more", {1: 2}),
        ("more", [date(2026, 1, 1)]),
        ("more", {"a": {1}}),
    ],
)
def test_what_would_be_read_as_another_value_is_refused(
    store: EventStore, cid: UUID, monkeypatch: pytest.MonkeyPatch, field: str, value: Any
) -> None:
    """It was stored: None as the default, a secret as asterisks, what is excluded not at all."""
    _forget(monkeypatch)
    e.register_event(_Told)
    store.append(cid, _Told(more={"pair": (1, [2])}))

    with pytest.raises(InvalidEvent, match=f"{field} would be read back as another value"):
        store.append(cid, _Told(**{field: value}))

    assert 1 == store.get(cid).version


def test_a_class_within_a_function(
    store: EventStore, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may name others there: its limits were looked for where only a module's names are."""
    _forget(monkeypatch)

    class Line(Value):
        text: str

    @e.register_event
    class Order(e.Payload):
        type: ClassVar[str] = "acme.order"

        lines: tuple[Line, ...]

    order = Order(lines=(Line(text="one"),))
    store.append(cid, order)

    assert [order] == [event.data for event in store.read(cid)]
