"""Clocks set back, or that disagree: times are kept as told, and nothing is ordered by them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from projections import Views
from projections.upkeep import rebuild
from tests.projections.support import converse, expected, stored, turn
from tests.settling import settled

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
    assert events == list(settled(store).read_all())
    assert store.verify(told).ok


def test_feed_goes_on_from_a_cursor(store: EventStore, told: UUID) -> None:
    """What is appended at an earlier time than what was handed out is handed out next."""
    cursor = settled(store).read_all().cursor
    other = converse(store, 1)

    assert list(store.read(other)) == list(settled(store).read_all(after=cursor))


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
