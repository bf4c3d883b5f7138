"""Races that are hard to hit by chance, held open on purpose: one transaction waits for another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import NO_STREAM, EventStore, NewEvent, new_id
from eventstore.errors import EventIdConflict, WrongExpectedVersion
from eventstore.sql.migrate import schema_lock
from projections import Views
from tests.conftest import Beginning
from tests.contract.facade import say, texts
from tests.reusable_database import ReusableDatabase

WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
    """


@pytest.fixture
def store(reusable_databases: Callable[[Beginning], ReusableDatabase]) -> Iterator[EventStore]:
    """Give a store on PostgreSQL, where writers of different streams run side by side."""
    database = reusable_databases("upgraded")
    with EventStore.open(database.url(), migrate=False) as store:
        yield store
    database.reset()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Give a thread that may wait for a lock."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def until_blocked(store: EventStore, running: Future[Any], waiting: str = WAITING) -> None:
    """Return once the other thread waits for a lock of this one."""
    deadline = time.monotonic() + 30
    while not running.done():
        assert time.monotonic() < deadline, "nobody came to wait for the lock"
        with store.reading() as connection:
            if connection.execute(text(waiting)).scalar():
                return


def overlapped(
    store: EventStore,
    pool: ThreadPoolExecutor,
    first: Callable[[Any], Any],
    second: Callable[[], Any],
) -> Future[Any]:
    """Run ``first`` in a transaction that commits only when ``second`` waits for it."""
    with store.writing() as connection:
        first(connection)
        running = pool.submit(second)
        until_blocked(store, running)
    return running


def test_two_creators_at_any_version(
    store: EventStore, pool: ThreadPoolExecutor, cid: UUID
) -> None:
    """Who comes second to a new stream goes on from the first."""
    running = overlapped(
        store,
        pool,
        lambda connection: store.append(cid, say("first"), connection=connection),
        lambda: store.append(cid, say("second")),
    )

    assert 2 == running.result().version
    assert ["first", "second"] == texts(store.read(cid))


def test_two_creators_that_expect_no_stream(
    store: EventStore, pool: ThreadPoolExecutor, cid: UUID
) -> None:
    """Only one can be the first; the other learns the actual version."""
    running = overlapped(
        store,
        pool,
        lambda connection: store.append(cid, say("first"), connection=connection),
        lambda: store.append(cid, say("second"), expected_version=NO_STREAM),
    )

    with pytest.raises(WrongExpectedVersion) as caught:
        running.result()
    assert (0, 1) == (caught.value.expected, caught.value.actual)


@pytest.mark.parametrize("existing", [False, True])
def test_a_retry_while_the_first_try_is_still_under_way(
    store: EventStore, pool: ThreadPoolExecutor, cid: UUID, existing: bool
) -> None:
    """A writer that lost its connection retries before the server noticed: it happens once."""
    if existing:
        store.append(cid, say("before"))
    events = [NewEvent(message, new_id()) for message in say("1", "2")]
    done: list[Any] = []
    running = overlapped(
        store,
        pool,
        lambda connection: done.append(store.append(cid, events, connection=connection)),
        lambda: store.append(cid, events),
    )

    assert done == [running.result()]
    assert ["1", "2"] == texts(store.read(cid))[-2:]


def test_an_overlap_with_what_is_still_under_way(
    store: EventStore, pool: ThreadPoolExecutor, cid: UUID
) -> None:
    """A partial overlap is a conflict as well when the other append commits meanwhile."""
    events = [NewEvent(message, new_id()) for message in say("1", "2")]
    running = overlapped(
        store,
        pool,
        lambda connection: store.append(cid, events[:1], connection=connection),
        lambda: store.append(cid, events),
    )

    with pytest.raises(EventIdConflict):
        running.result()


def test_the_feed_waits_for_an_older_transaction(store: EventStore) -> None:
    """Positions are taken before commits: what commits late is not skipped."""
    late, early = new_id(), new_id()
    with store.writing() as connection:
        store.append(late, say("position 1, commits second"), connection=connection)
        store.append(early, say("position 2, commits first"))
        during = store.read_all()

    after = whole_feed(store, during.cursor, 2)

    assert [] == texts(during)
    assert ["position 1, commits second", "position 2, commits first"] == after


def test_the_feed_goes_on_after_a_rollback(store: EventStore, cid: UUID) -> None:
    """A transaction that is undone leaves a gap in the positions, and nothing to wait for."""
    with store.writing() as connection:
        store.append(new_id(), say("never"), connection=connection)
        connection.rollback()
    store.append(cid, say("there"))

    assert ["there"] == whole_feed(store, None, 1)


SET_UP_LATE = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '150 ms'
    """


def test_processes_that_set_up_the_views_at_once_wait_for_each_other(
    store: EventStore, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one failed if the first took longer than a lock may be waited for."""
    monkeypatch.setattr("eventstore.sql.sessions.LOCK_TIMEOUT_MS", 50)
    url = store.engine.url.render_as_string(hide_password=False)
    with EventStore.open(url, migrate=False) as other:
        with schema_lock(store.engine):
            running = pool.submit(Views, other)
            until_blocked(store, running, SET_UP_LATE)
        assert () == tuple(running.result(30).conversations().entries)


def test_the_feed_keeps_each_conversation_in_order(store: EventStore, cid: UUID) -> None:
    """A transaction that began first but came to a conversation last does not overtake."""
    with store.writing() as connection:
        store.append(new_id(), say("begun first"), connection=connection)
        store.append(cid, say("1"))
        store.append(cid, say("2"), connection=connection)
    store.append(cid, say("3"))

    feed = whole_feed(store, None, 4)

    assert ["1", "2", "3"] == [words for words in feed if words != "begun first"]


def whole_feed(store: EventStore, cursor: str | None, count: int) -> list[str]:
    """Read on until so many events have come; other tests' transactions may hold them up."""
    deadline = time.monotonic() + 30
    while len(page := store.read_all(after=cursor)) < count:
        assert time.monotonic() < deadline, f"{len(page)} of {count} events came"
    return texts(page)


@pytest.fixture
def cid() -> UUID:
    """Give the id of a conversation that does not exist yet."""
    return new_id()
