"""A store makes the events of a page one by one, as its reader takes them."""

from __future__ import annotations

import gc
from uuid import UUID

import pytest

from eventstore import EventStore, RecordedEvent
from eventstore.errors import EventDamaged
from tests.contract.facade import say, texts
from tests.raw_events import insert_raw_event


def test_who_keeps_no_event_leaves_the_garbage_collector_little_to_go_through(
    store: EventStore, cid: UUID
) -> None:
    """Of many events that are read, one lives at a time."""
    store.append(cid, say(*map(str, range(450))))

    lived = [
        [each.version for each in gc.get_objects() if _is_of(each, cid)]
        for event in store.read(cid)
        if event.version % 150 == 0
    ]

    assert [[150], [300], [450]] == lived


def _is_of(each: object, cid: UUID) -> bool:
    return type(each) is RecordedEvent and each.conversation_id == cid


def test_a_damaged_event_is_told_when_it_is_reached(store: EventStore, cid: UUID) -> None:
    """What comes before it in its page has been read by then."""
    store.append(cid, say("1", "2"))
    insert_raw_event(store, cid, "user_message", "{}", meta="[1]")
    read = store.read(cid)

    assert ["1", "2"] == texts([next(read), next(read)])
    with pytest.raises(EventDamaged):
        next(read)
