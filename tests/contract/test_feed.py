"""The feed of the whole store: every event once, from wherever a reader left off."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

import pytest

from eventstore import EventStore, FeedPage, new_id
from eventstore.errors import InvalidCursor
from eventstore.sql.feed import behind, feed_end
from tests.contract.facade import Access, say, texts
from tests.contract.plain import PlainClient


def settled(store: EventStore, count: int) -> FeedPage:
    """Read all of the feed, once that many events have come.

    PostgreSQL hands an event out when every transaction of the cluster that began before it has
    ended, and other tests use the same cluster.
    """
    deadline = time.monotonic() + 30
    while len(page := store.read_all(limit=1_000)) < count:
        assert time.monotonic() < deadline, f"{len(page)} of {count} events came"
    return page


def drained(store: EventStore, limit: int) -> list[str]:
    """Read the feed to its end, page by page."""
    found: list[str] = []
    page = store.read_all(limit=limit)
    while page.events:
        found += texts(page)
        page = store.read_all(after=page.cursor, limit=limit)
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_feed_gives_every_event_once_in_order(fresh: EventStore, limit: int) -> None:
    """Pages of any size join to the same feed."""
    one, two = new_id(), new_id()
    fresh.append(one, say("1", "2"))
    fresh.append(two, say("3"))
    fresh.append(one, say("4", "5", "6"))
    fresh.append(two, say("7"))
    settled(fresh, 7)

    assert ["1", "2", "3", "4", "5", "6", "7"] == drained(fresh, limit)


def test_feed_of_an_empty_store_can_be_resumed(fresh: EventStore, cid: UUID) -> None:
    """The cursor of an empty page sees what comes later."""
    page = fresh.read_all()
    fresh.append(cid, say("first"))
    settled(fresh, 1)

    assert ((), ["first"]) == (page.events, texts(fresh.read_all(after=page.cursor)))


def test_cursor_of_an_empty_page_stays_where_it_was(fresh: EventStore, cid: UUID) -> None:
    """A reader that polls at the end does not move, and misses nothing."""
    fresh.append(cid, say("first"))
    end = settled(fresh, 1).cursor

    assert end == fresh.read_all(after=end).cursor
    fresh.append(cid, say("second"))
    settled(fresh, 2)
    assert ["second"] == texts(fresh.read_all(after=end))


def test_feed_gives_recorded_events(fresh: EventStore, cid: UUID) -> None:
    """The feed's events equal those of the stream, hashes included."""
    fresh.append(cid, say("one", "two"))

    assert tuple(fresh.read(cid)) == settled(fresh, 2).events


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "7",
        "s1",
        "s1:",
        "s1:x",
        "s1:1:2",
        "p1:1",
        "p1:1:2:x",
        "s9:1",
        "s1:-1",
        "s1:1_0",
        f"s1:{10**30}",
        f"p1:0:{10**30}:0",
        f"p1:{10**30}:0:0",
        "p1:0:-1:0",
        "s2:0",
        "s2:1:",
        "s2:1:0123456789abcdeg",
        f"s2:{10**18}:0123456789abcdef",
        f"s2:{10**30}:0123456789abcdef",
        "s2:-1:0123456789abcdef",
        "s2:0:0123456789abcdef",
        "p2:1:2:0123456789abcdef",
        f"p2:1:2:{10**18}:0123456789abcdef",
        f"p2:0:{10**30}:0:0123456789abcdef",
        "p2:0:-1:0:0123456789abcdef",
        "p2:0:0:0:0123456789abcdef",
    ],
)
def test_what_is_no_cursor_is_refused(store: EventStore, cursor: str) -> None:
    """A cursor that the feed did not give out is a typed error, never the driver's."""
    with pytest.raises(InvalidCursor) as caught:
        store.read_all(after=cursor)
    assert cursor == caught.value.cursor


def test_cursor_of_the_other_database_is_refused(store: EventStore, cid: UUID) -> None:
    """A reader that was moved between databases must begin again, and is told so."""
    store.append(cid, say("first"))
    own = store.read_all(limit=1).cursor
    digest = own.rpartition(":")[2]
    foreign = f"p2:1:2:3:{digest}" if own.startswith("s2") else f"s2:3:{digest}"

    with pytest.raises(InvalidCursor):
        store.read_all(after=foreign)


def test_cursor_of_another_store_is_refused(
    fresh: EventStore,
    database_url: str,
    request: pytest.FixtureRequest,
    open_stores: Callable[[str, Access], EventStore],
) -> None:
    """Also where it is of the same kind of database and there is an event at that place."""
    kind = "sqlite" if database_url.startswith("sqlite") else "postgres"
    other = open_stores(request.getfixturevalue(f"shared_{kind}_url"), "sync")
    for one in (fresh, other):
        one.append(new_id(), say("first", "second"))
    settled(fresh, 2)
    cursors = [one.read_all(limit=1).cursor for one in (fresh, other)]

    for one, cursor in zip((other, fresh), cursors, strict=True):
        with pytest.raises(InvalidCursor, match="restored to an older state"):
            one.read_all(after=cursor)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_transaction_ids_are_ordered_as_numbers(postgres_url: str, limit: int) -> None:
    """Where their count of digits grows the feed skips nothing, and knows its own end."""
    ids = [new_id() for _ in range(3)]
    with EventStore.open(postgres_url) as store, PlainClient(postgres_url) as client:
        for number, conversation_id in enumerate(ids, start=9):
            store.append(conversation_id, say(str(number)))
        client.disarm()
        for number, conversation_id in enumerate(ids, start=9):
            client.execute(
                f"UPDATE events SET tx_id = '{number}' WHERE conversation_id = ?", conversation_id
            )

        assert ["9", "10", "11"] == drained(store, limit)
        with store.reading() as connection:
            end = feed_end(connection)
            seen = behind(connection, None, limit)
        assert end == store.read_all().cursor
        assert (tuple(ids[:limit]), store.read_all(limit=limit).cursor) == (
            seen.conversations,
            seen.safe,
        )
