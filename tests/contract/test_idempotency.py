"""Retries: an append that is repeated with its event ids happens once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import ANY, NO_STREAM, EventStore, NewEvent, new_id
from eventstore.errors import EventIdConflict
from tests.contract.facade import say, texts


def named(*texts_of_events: str) -> list[NewEvent]:
    """Return events with ids of their own."""
    return [NewEvent(message, new_id()) for message in say(*texts_of_events)]


@pytest.mark.parametrize("expected", [ANY, NO_STREAM, 0])
def test_first_append_repeated_gives_the_first_result(
    store: EventStore, cid: UUID, expected: Any
) -> None:
    """Whatever the writer expected, it learns what happened the first time."""
    events = named("one", "two")
    first = store.append(cid, events, expected_version=expected)
    store.append(cid, say("later"))

    assert first == store.append(cid, events, expected_version=expected)
    assert ["one", "two", "later"] == texts(store.read(cid))


@pytest.mark.parametrize("expected", [ANY, 1])
def test_later_append_repeated_gives_the_first_result(
    store: EventStore, cid: UUID, expected: Any
) -> None:
    """The stream has gone on, and the exact version is no longer current: still no conflict."""
    store.append(cid, say("before"))
    events = named("one", "two")
    first = store.append(cid, events, expected_version=expected)
    store.append(cid, say("later"))

    assert first == store.append(cid, events, expected_version=expected)
    assert ["before", "one", "two", "later"] == texts(store.read(cid))


def test_large_append_is_repeated_as_well(store: EventStore, cid: UUID) -> None:
    """More ids than one query asks for are found again."""
    events = named(*(str(number) for number in range(1_201)))
    first = store.append(cid, events)

    assert first == store.append(cid, events)


@pytest.mark.parametrize("expected", [NO_STREAM, 0, 2, 3])
def test_events_at_another_place_than_asked_for(
    store: EventStore, cid: UUID, expected: Any
) -> None:
    """Ids that are there, but not where the writer says, are not a retry."""
    store.append(cid, say("before"))
    events = named("one")
    store.append(cid, events)

    with pytest.raises(EventIdConflict):
        store.append(cid, events, expected_version=expected)


@pytest.mark.parametrize("expected", [ANY, 0, 1, 2])
def test_partial_overlap_is_a_conflict(store: EventStore, cid: UUID, expected: Any) -> None:
    """An append that is there in part carries the ids that are, and writes nothing."""
    old, new = named("old"), named("new")
    store.append(cid, old)

    with pytest.raises(EventIdConflict) as caught:
        store.append(cid, [*old, *new], expected_version=expected)

    assert (cid, {old[0].event_id: 1}) == (caught.value.conversation_id, caught.value.versions)
    assert ["old"] == texts(store.read(cid))


@pytest.mark.parametrize("rearranged", [(1, 0), (1,), (0, 2), (2, 0, 1)])
def test_another_order_or_part_is_a_conflict_or_its_own_place(
    store: EventStore, cid: UUID, rearranged: tuple[int, ...]
) -> None:
    """A retry must repeat the same events in order; a run of neighbours is found where it is."""
    events = named("a", "b", "c")
    store.append(cid, events)
    again = [events[index] for index in rearranged]

    if rearranged == (1,):
        assert 2 == store.append(cid, again).version
    else:
        with pytest.raises(EventIdConflict):
            store.append(cid, again)
    assert ["a", "b", "c"] == texts(store.read(cid))


def test_events_with_and_without_ids_are_no_retry(store: EventStore, cid: UUID) -> None:
    """An event without an id is new, so an append that also repeats one overlaps in part."""
    old = named("old")
    store.append(cid, old)

    with pytest.raises(EventIdConflict):
        store.append(cid, [*old, *say("new")])


def test_an_event_id_belongs_to_its_conversation(store: EventStore) -> None:
    """The same id in another conversation is another event."""
    events = named("hello")
    first, second = store.append(new_id(), events), store.append(new_id(), events)

    assert first.conversation_id != second.conversation_id
    assert 1 == second.version


def test_events_without_ids_are_never_taken_for_a_retry(store: EventStore, cid: UUID) -> None:
    """Saying the same twice is two facts."""
    store.append(cid, say("hello"))
    store.append(cid, say("hello"))

    assert ["hello", "hello"] == texts(store.read(cid))
