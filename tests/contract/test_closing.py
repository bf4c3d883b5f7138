"""A store that is closed leaves no connection behind, whoever uses it at that moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event

from eventstore import AsyncEventStore, EventStore
from eventstore.errors import StoreClosed
from eventstore.sql.engines import open_engine
from eventstore.sql.watch import Watch
from tests.contract.facade import say


@contextmanager
def _watching(store: EventStore) -> Iterator[Any]:
    with Watch(store.engine) as watch:
        yield watch.moved()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.reading(),
        lambda store: store.writing(),
        lambda store: store._driver_transaction(),
        lambda store: store._driver_transaction(write=True),
        _watching,
    ],
    ids=["reading", "writing", "on_driver", "on_driver_writing", "watch"],
)
def test_what_is_in_use_is_closed_with_its_use(
    database_url: str, use: Callable[[EventStore], AbstractContextManager[Any]]
) -> None:
    """It came back to a pool that nobody had any more, and stayed open on the server."""
    with EventStore.open(database_url) as store:
        store.append(uuid4(), say("first"))
    engine = open_engine(database_url)
    made: list[Any] = []
    closed: list[Any] = []
    event.listen(engine, "connect", lambda connection, _: made.append(connection))
    event.listen(engine, "close", lambda connection, _: closed.append(connection))
    store = EventStore(engine)
    in_use, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with use(store):
            in_use.set()
            may_end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    in_use.wait()
    list(store.read(uuid4()))
    store.close()
    may_end.set()
    thread.join()

    assert made
    assert {*map(id, made)} == {*map(id, closed)}


def test_a_closed_store_keeps_nothing(database_url: str) -> None:
    """It is used as before, by a thread that ends late, and leaves nothing open."""
    EventStore.open(database_url).close()
    engine = open_engine(database_url)
    opened: list[Any] = []
    event.listen(engine, "connect", lambda connection, _: opened.append(connection))
    event.listen(engine, "close", lambda connection, _: opened.remove(connection))
    with EventStore(engine) as store:
        store.append(cid := uuid4(), say("first"))
        assert opened

    store.append(cid, say("second"))

    assert [1, 2] == [recorded.version for recorded in store.read(cid)]
    assert [] == opened


def test_what_is_asked_of_a_closed_asynchronous_store_is_refused(database_url: str) -> None:
    """Python's own words were of futures that cannot be scheduled."""

    async def ask() -> None:
        conversation_id = uuid4()
        store = await AsyncEventStore.open(database_url)
        await store.append(conversation_id, say("hello"))
        await store.close()
        with pytest.raises(StoreClosed, match="store is closed"):
            await store.append(conversation_id, say("again"))
        with pytest.raises(StoreClosed, match="store is closed"):
            await store.read_all()

    asyncio.run(ask())


def test_nobody_waits_for_a_thread_that_was_refused(sqlite_url: str) -> None:
    """A task of another loop, which met a store in the midst of closing, waited for ever."""
    store = asyncio.run(AsyncEventStore.open(sqlite_url))
    asyncio.run(store.close())
    refused = []

    def append() -> None:
        try:
            asyncio.run(asyncio.wait_for(store.append(uuid4(), say("hello")), 5))
        except StoreClosed as error:
            refused.append(error)

    others = [threading.Thread(target=append)]
    shut = store._groups[0]._executor.submit

    def submit(work: Any) -> Any:
        if not others[0].ident:  # while the first is being refused
            others[0].start()
            others[0].join(0.1)
        return shut(work)

    store._groups[0]._executor.submit = submit  # type: ignore[assignment,method-assign]
    append()
    others[0].join()

    assert 2 == len(refused)
