"""A lock held beyond the timeout: who only reads goes on, and who writes is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from sqlalchemy import make_url, text

from eventstore import EventStore, new_id
from eventstore.errors import DatabaseBusy
from projections import Views, worker
from projections.models.timeline import TIMELINE
from projections.upkeep import rebuild
from tests.contract.facade import say, texts
from tests.projections.support import converse, expected, stored


@contextmanager
def locked(store: EventStore) -> Iterator[None]:
    """Hold SQLite's write lock, or on PostgreSQL the rows of all conversations and heads."""
    with store.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT FROM conversations FOR UPDATE"))
            connection.execute(text("SELECT FROM projection_heads FOR UPDATE"))
        yield


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store that waits for 50 ms, whose views have been installed."""
    if database_url.startswith("sqlite"):
        url = make_url(database_url)
    else:
        url = make_url(database_url).update_query_dict({"options": "-c lock_timeout=50"})
    with EventStore.open(url, busy_timeout_ms=50) as store:
        Views(store)
        yield store


def test_append_to_a_locked_conversation(store: EventStore) -> None:
    """It is refused and leaves nothing; what is there can be read; the same one then succeeds."""
    store.append(cid := new_id(), say("1"))
    with locked(store):
        with pytest.raises(DatabaseBusy, match="beyond the timeout"):
            store.append(cid, say("2"))
        assert ["1"] == texts(store.read(cid))
        assert store.verify(cid).ok

    assert 2 == store.append(cid, say("2")).version


def test_a_view_that_is_current_needs_no_lock(store: EventStore) -> None:
    """A reader does not see that somebody writes."""
    views, cid = Views(store), converse(store, 2)
    before = views.timeline(cid)

    with locked(store):
        assert before == views.timeline(cid)


def test_a_view_that_is_behind(store: EventStore) -> None:
    """While the lock is held it is folded in memory; afterwards the tables are caught up."""
    views, cid = Views(store), converse(store, 2)
    before = views.timeline(cid)
    store.append(cid, say("more"))
    with locked(store):
        seen = views.timeline(cid)

    assert seen[: len(before)] == before
    assert seen == views.timeline(cid)
    assert expected(store.read(cid), [TIMELINE]) == stored(store, cid, [TIMELINE])


def test_a_view_of_a_read_only_store(store: EventStore, database_url: str) -> None:
    """It folds what is new in memory, waits for nobody, and answers as the other one will."""
    cid = converse(store, 2)
    with locked(store), EventStore.open(database_url, read_only=True) as reader:
        seen = Views(reader).timeline(cid)

    assert seen == Views(store).timeline(cid)


def test_rebuild_beside_a_lock(sqlite_url: str) -> None:
    """It stops, the live generation is read on, and it can be started again."""
    with EventStore.open(sqlite_url, busy_timeout_ms=50) as store:
        views, cid = Views(store), converse(store, 2)
        before = views.timeline(cid)
        with locked(store):
            with pytest.raises(DatabaseBusy):
                rebuild(store, ["timeline"])
            assert before == views.timeline(cid)

        assert 1 == rebuild(store, ["timeline"]).conversations
        assert before == views.timeline(cid)


def test_rebuild_beside_a_reader(postgres_url: str) -> None:
    """The cut-over waits for whoever reads the view, and lets other readers go on meanwhile."""
    with EventStore.open(f"{postgres_url}&lock_timeout=50") as store, ExitStack() as stack:
        views, cid = Views(store), converse(store, 2)
        before = views.timeline(cid)
        reading = stack.enter_context(EventStore.open(postgres_url))
        with ThreadPoolExecutor(1) as pool, reading.reading() as connection:
            connection.execute(text("SELECT * FROM timeline_items")).all()
            rebuilding = pool.submit(rebuild, store, ["timeline"])
            with pytest.raises(TimeoutError):
                rebuilding.result(1.5)
            assert before == views.timeline(cid)
            connection.rollback()
            assert 1 == rebuilding.result(30.0).conversations
        assert before == views.timeline(cid)


def test_worker_beside_a_lock(store: EventStore) -> None:
    """It tries again, round after round, until it gets the lock."""
    views, cid, stop = Views(store), converse(store, 2), threading.Event()
    views.timeline(cid)
    store.append(cid, say("more"))
    rounds: list[int] = []
    with ExitStack() as holding:
        holding.enter_context(locked(store))

        def after_round(count: int) -> None:
            rounds.append(count)
            holding.close()
            if count or len(rounds) > 1_000:
                stop.set()

        worker.run(store, poll_interval_s=0.01, stop=stop, on_round=after_round)

    assert 0 == rounds[0]
    assert 1 == sum(rounds)
    assert expected(store.read(cid)) == stored(store, cid)


def test_worker_that_shall_run_once(store: EventStore) -> None:
    """It waits no longer than the timeout, and says why nothing was done."""
    cid = converse(store, 2)
    worker.run(store, once=True)
    store.append(cid, say("more"))
    with locked(store), pytest.raises(DatabaseBusy):
        worker.run(store, once=True)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_threads_of_a_store_take_turns(database_url: str) -> None:
    """None is refused by SQLite for another of its own process, even if it would not wait."""
    failed: list[Exception] = []

    with EventStore.open(database_url, busy_timeout_ms=0) as store:
        store.append(cid := new_id(), say("first"))

        def append() -> None:
            try:
                for _ in range(20):
                    store.append(cid, say("more"))
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=append) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [] == failed
        assert 161 == len(list(store.read(cid)))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_append_within_an_own_transaction_for_writing(store: EventStore) -> None:
    """One that does not use its connection is refused, and does not wait for itself for ever."""
    with store._driver_transaction(write=True), pytest.raises(DatabaseBusy):
        store.append(new_id(), say("by another connection"))
