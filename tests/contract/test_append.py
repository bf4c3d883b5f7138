"""Append: what a writer may expect of a stream, and that nothing is ever half written."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import ANY, NO_STREAM, EventStore, Meta, NewEvent, new_id
from eventstore.errors import ConversationNotFound, InvalidEvent, WrongExpectedVersion
from tests.contract.facade import say, texts


def test_first_append_begins_at_version_one(store: EventStore, cid: UUID) -> None:
    """A stream begins to exist with its first event."""
    done = store.append(cid, say("hello"), expected_version=NO_STREAM)

    assert (cid, 1, [1]) == (done.conversation_id, done.version, [e.version for e in done.events])


def test_versions_go_on_without_a_gap(store: EventStore, cid: UUID) -> None:
    """Every append follows the one before, whatever it expected."""
    store.append(cid, say("one", "two"))
    store.append(cid, say("three"), expected_version=2)
    store.append(cid, say("four"), expected_version=ANY)

    assert [1, 2, 3, 4] == [event.version for event in store.read(cid)]


def test_what_append_returns_is_what_read_returns(store: EventStore, cid: UUID) -> None:
    """The events come back with every field as it is recorded, times and hashes included."""
    meta = Meta(turn=1, step=0, mode="agent", session_id="s", actor="user:1", in_context=False)

    done = store.append(cid, [NewEvent(say("one")[0], new_id(), meta), *say("two")])

    assert list(done.events) == list(store.read(cid))


def test_positions_grow_with_every_event(store: EventStore, cid: UUID) -> None:
    """The positions of a batch are its own, in order, on both databases."""
    events = [*store.append(cid, say("1", "2", "3")).events, *store.append(cid, say("4")).events]

    positions = [event.position for event in events]

    assert sorted(set(positions)) == positions


def test_metadata_of_the_append_is_for_events_without_their_own(
    store: EventStore, cid: UUID
) -> None:
    """An event's own metadata goes before that of the append."""
    own, common = Meta(turn=2), Meta(turn=1)

    store.append(cid, [*say("a"), NewEvent(say("b")[0], meta=own)], meta=common)

    assert [common, own] == [event.meta for event in store.read(cid)]


def test_conversation_id_may_be_text(store: EventStore, cid: UUID) -> None:
    """The text of a UUID names the same stream as the UUID."""
    store.append(str(cid), say("hello"))

    assert ["hello"] == texts(store.read(cid))


@pytest.mark.parametrize("name", ["", 7, None])
def test_conversation_must_be_named(store: EventStore, name: Any) -> None:
    """What is neither a UUID nor a key is refused in words."""
    with pytest.raises(InvalidEvent, match="is not a conversation"):
        store.append(name, say("hello"))


def test_no_stream_is_refused_once_there_is_one(store: EventStore, cid: UUID) -> None:
    """The conflict carries conversation, expected and actual version."""
    store.append(cid, say("one", "two"))

    with pytest.raises(WrongExpectedVersion) as caught:
        store.append(cid, say("again"), expected_version=NO_STREAM)

    error = caught.value
    assert (cid, 0, 2) == (error.conversation_id, error.expected, error.actual)


@pytest.mark.parametrize("expected", [0, 1, 3, -1])
def test_exact_version_is_refused_at_any_other(store: EventStore, cid: UUID, expected: int) -> None:
    """A writer that is behind, or ahead, learns where the stream is."""
    store.append(cid, say("one", "two"))

    with pytest.raises(WrongExpectedVersion) as caught:
        store.append(cid, say("again"), expected_version=expected)

    error = caught.value
    assert (cid, expected, 2) == (error.conversation_id, error.expected, error.actual)


def test_exact_version_of_a_stream_that_does_not_exist(store: EventStore, cid: UUID) -> None:
    """A stream without events is at version 0."""
    with pytest.raises(WrongExpectedVersion) as caught:
        store.append(cid, say("again"), expected_version=1)

    assert (1, 0) == (caught.value.expected, caught.value.actual)


def test_version_zero_means_no_stream(store: EventStore, cid: UUID) -> None:
    """Expecting version 0 creates the stream."""
    assert 1 == store.append(cid, say("hello"), expected_version=0).version


def test_a_conflict_writes_nothing(store: EventStore, cid: UUID) -> None:
    """After a refused append the stream does not exist, not even as an empty row."""
    with pytest.raises(WrongExpectedVersion):
        store.append(cid, say("one", "two"), expected_version=7)

    with pytest.raises(ConversationNotFound):
        store.get(cid)


def test_an_empty_append_is_refused(store: EventStore, cid: UUID) -> None:
    """An append without events is a mistake, and creates no stream."""
    with pytest.raises(InvalidEvent, match="at least one event"):
        store.append(cid, [])
    with pytest.raises(ConversationNotFound):
        store.get(cid)


def test_an_event_id_twice_in_a_batch_is_refused(store: EventStore, cid: UUID) -> None:
    """Two events of one append cannot have one id."""
    event_id = new_id()

    with pytest.raises(InvalidEvent, match="same event id twice"):
        store.append(cid, [NewEvent(message, event_id) for message in say("one", "two")])
    assert [] == list(store.read(cid))


def test_something_else_than_an_event_is_refused(store: EventStore, cid: UUID) -> None:
    """A text is not an event; the error says what is one."""
    with pytest.raises(InvalidEvent, match=r"use a class of eventstore\.events"):
        store.append(cid, ["hello"])  # type: ignore[list-item]
    assert [] == list(store.read(cid))


_ANY_ID = UUID("0192b0a0-0000-7000-8000-000000000001")
WRONG: dict[str, Any] = {
    "expected_version": ("3", 1.5, True, None),
    "parent": (("nope", 1), (str(_ANY_ID), 1), _ANY_ID, (_ANY_ID, "1")),
    "writer_epoch": ("0", 1.5),
    "anchor": ((1, b""), "1"),
    "meta": ({"turn": 1}, "ada"),
    "event_id": ("order-7", str(_ANY_ID)),
}


@pytest.mark.parametrize(
    ("field", "value"), [(f, each) for f, some in WRONG.items() for each in some]
)
def test_conditions_of_a_wrong_type_are_refused(
    store: EventStore, cid: UUID, field: str, value: Any
) -> None:
    """1.5 was taken for 1, and a parent that was no id broke the conversation's chain on SQLite."""
    store.append(cid, say("one"))
    event = NewEvent(say("two")[0], **({field: value} if field == "event_id" else {}))
    options = {} if field == "event_id" else {field: value}

    with pytest.raises(InvalidEvent, match=f"{field} must be"):
        store.append(cid, event, **options)

    assert ["one"] == texts(store.read(cid))
