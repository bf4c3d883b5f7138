"""What a product keeps with an event beside its payload, and with a conversation for its lists."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, Meta, NewEvent, new_id
from eventstore import events as e
from eventstore.errors import InvalidEvent, RedactionFailed
from projections import Views
from tests.contract.facade import say
from tests.contract.plain import PlainClient

EXTRA = {"request": "r-1", "device": {"name": "phone", "ü": [1, None]}}


def test_extra_comes_back_with_its_event(store: EventStore, cid: UUID) -> None:
    """Each with its own, and it is part of what the chain commits to."""
    first, second = say("one", "two")
    store.append(cid, [NewEvent(first, meta=Meta(turn=1, extra=EXTRA)), second])

    assert [EXTRA, None] == [event.meta.extra for event in store.read(cid)]
    assert store.verify(cid).ok


@pytest.mark.parametrize(
    ("extra", "limit"),
    [
        ({"a": "ü" * 1_025}, "2,048 bytes"),
        ({"a": [["x"] * 10] * 60}, "2,048 bytes"),
        ({"a": 10**5_000}, "4,000 digits"),
    ],
    ids=["text", "json", "number"],
)
def test_extra_is_bounded(store: EventStore, cid: UUID, extra: Any, limit: str) -> None:
    """The refusal names field and limit, and nothing is written."""
    with pytest.raises(InvalidEvent, match="extra") as caught:
        store.append(cid, say("x"), meta=Meta(extra=extra))
    assert ("extra", limit) == (caught.value.field, caught.value.limit)


def test_extra_that_is_no_json_is_refused(store: EventStore, cid: UUID) -> None:
    """As in a payload."""
    for value in (object(), float("nan")):
        with pytest.raises(InvalidEvent):
            store.append(cid, say("x"), meta=Meta(extra={"a": value}))


def test_extra_holds_any_text(store: EventStore, cid: UUID) -> None:
    """Lone surrogates and NUL too, in keys and values."""
    extra = {"\ud800": "\0", "$meta": {"$value": "\udfff"}}
    store.append(cid, say("x"), meta=Meta(extra=extra))
    assert [extra] == [event.meta.extra for event in store.read(cid)]


def test_extra_goes_with_the_payload(database_url: str) -> None:
    """An erasure leaves nothing of it, in log or timeline."""
    cid = new_id()
    with EventStore.open(database_url) as store:
        store.append(cid, say("x"), meta=Meta(extra={"who": "Ada Lovelace"}))
        views = Views(store)
        assert [{"who": "Ada Lovelace"}] == [item.extra for item in views.timeline(cid)]

        store.erase(cid, reason="asked for")

        assert [None, None] == [event.meta.extra for event in store.read(cid)]
        assert [None, None] == [item.extra for item in views.timeline(cid)]
        assert store.verify(cid).ok
    with PlainClient(database_url) as plain:
        rows = plain.execute("SELECT CAST(data AS TEXT), CAST(meta AS TEXT) FROM events")
    assert "Ada" not in repr(rows)


def test_a_redactor_is_asked_about_extra(database_url: str) -> None:
    """By its place; where it fails nothing is stored."""

    def redact(path: Any, value: Any) -> Any:
        if value == "fail":
            raise RuntimeError
        return "[gone]" if path == ("meta", "extra", "token") else value

    cid = new_id()
    with EventStore.open(database_url, redact=redact) as store:
        done = store.append(cid, say("x"), meta=Meta(extra={"token": "t", "a": 1}))
        assert [{"token": "[gone]", "a": 1}] == [event.meta.extra for event in done.events]
        assert list(done.events) == list(store.read(cid))
        with pytest.raises(RedactionFailed, match="extra"):
            store.append(cid, say("y"), meta=Meta(extra={"a": "fail"}))


def test_metadata_are_listed(database_url: str) -> None:
    """As the conversation began with them, and then as they were last set, whole."""
    cid = new_id()
    with EventStore.open(database_url) as store:
        views = Views(store)
        for told, listed in (
            (e.ConversationStart(metadata={"channel": "web"}), {"channel": "web"}),
            (e.ConversationUpdate(title="Norway"), {"channel": "web"}),
            (e.ConversationUpdate(metadata={"n": 2}), {"n": 2}),
            (e.ConversationUpdate(metadata={}), {}),
        ):
            store.append(cid, [told])
            (entry,) = views.conversations()
            assert listed == entry.metadata


def test_metadata_are_bounded(store: EventStore, cid: UUID) -> None:
    """The refusal names field and limit."""
    with pytest.raises(InvalidEvent) as caught:
        store.append(cid, [e.ConversationStart(metadata={"a": "x" * 16_384})])
    assert ("metadata", "16,384 bytes") == (caught.value.field, caught.value.limit)
