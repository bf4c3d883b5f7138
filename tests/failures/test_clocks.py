"""Clocks set back, or that disagree: times are kept as told, and nothing is ordered by them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import InvalidEvent
from projections import Views
from projections.upkeep import rebuild
from tests.contract.facade import say
from tests.feed_wait import wait_for_feed
from tests.projections.support import converse, expected, stored, turn

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Backward:
    """A clock that goes back by an hour whenever it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> datetime:
        """Return the time."""
        self.reads += 1
        return NOON - timedelta(hours=self.reads)


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store on each database."""
    with EventStore.open(database_url, clock=Backward()) as store:
        yield store


@pytest.fixture
def told(store: EventStore) -> UUID:
    """Give a conversation of two turns, each event of which is earlier than the one before."""
    cid = new_id()
    for payload in (*turn(0, "one"), *turn(7, "two")):
        store.append(cid, [payload])
    return cid


def test_order_is_by_version(store: EventStore, told: UUID) -> None:
    """Reading, the feed and the hash chain do not look at the times, which stay as they were."""
    events = list(store.read(told))

    assert list(range(1, 15)) == [event.version for event in events]
    times = [event.recorded_at for event in events]
    assert sorted({*times}, reverse=True) == times
    assert times[0] < NOON
    assert events == list(wait_for_feed(store).read_all())
    assert store.verify(told).ok


def test_feed_goes_on_from_a_cursor(store: EventStore, told: UUID) -> None:
    """What is appended at an earlier time than what was handed out is handed out next."""
    cursor = wait_for_feed(store).read_all().cursor
    other = converse(store, 1)

    assert list(store.read(other)) == list(wait_for_feed(store).read_all(after=cursor))


def test_views(store: EventStore, told: UUID) -> None:
    """They list by version; a duration that would be negative is 0; a rebuild gives the same."""
    views = Views(store)
    timeline, calls, tools = views.timeline(told), views.usage(by="call"), views.tool_calls()

    assert sorted(item.version for item in timeline) == [item.version for item in timeline]
    assert {0} == {item.duration_ms for item in timeline} - {None}
    assert {0} == {call.latency_ms_avg for call in calls}
    assert {0} == {call.duration_ms for call in tools}
    rebuild(store)
    assert expected(store.read(told)) == stored(store, told)
    assert timeline == views.timeline(told)


def test_last_activity_is_the_latest(store: EventStore, told: UUID) -> None:
    """In the directory; the store's own column tells the time of the last append."""
    events = list(store.read(told))
    [row] = Views(store).conversations()

    assert events[0].recorded_at == row.last_activity_at
    assert events[-1].recorded_at == store.get(told).last_active_at


_WEST, _EAST = timezone(timedelta(hours=-3)), timezone(timedelta(hours=3))


@pytest.mark.parametrize(
    "told",
    [
        datetime(2026, 3, 1),  # noqa: DTZ001 - that is what is refused
        datetime(9999, 12, 31, 23, tzinfo=_WEST),
        datetime(1, 1, 1, 2, tzinfo=_EAST),
        None,
    ],
)
def test_a_time_that_cannot_be_read_again(database_url: str, told: Any) -> None:
    """PostgreSQL stored the year 10000, and then no reader could read the feed or verify it."""
    cid = new_id()
    with EventStore.open(database_url, clock=lambda: told) as store:
        for version in (0, 0):
            with pytest.raises(InvalidEvent, match="clock returned") as caught:
                store.append(cid, say("hello"), expected_version=version)
            assert "clock" == caught.value.field
        assert [] == list(wait_for_feed(store).read_all())


@pytest.mark.parametrize(
    "moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)
def test_the_first_and_the_last_time(database_url: str, moment: datetime) -> None:
    """What is stored is what is read."""
    with EventStore.open(database_url, clock=lambda: moment) as store:
        done = store.append(new_id(), say("hello"))
        assert [moment] == [event.recorded_at for event in wait_for_feed(store).read_all()]
        assert store.verify(done.conversation_id).ok
