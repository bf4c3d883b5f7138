"""Reads beside a lock that does not come: folded in memory, and not refused after half a minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import make_url, text

from eventstore import EventStore
from eventstore.errors import DatabaseBusy
from projections import Views
from projections.models.directory import DIRECTORY
from projections.upkeep import rebuild
from tests.contract.facade import say
from tests.failures.test_locked import locked
from tests.projections.support import converse

VIEWS: dict[str, Callable[[Any, UUID], Any]] = {
    "timeline": lambda views, cid: views.timeline(cid),
    "context": lambda views, cid: views.context(cid),
    "context in a budget": lambda views, cid: views.context(cid, max_tokens=2_000),
    "context in run mode": lambda views, cid: views.context(cid, mode="run"),
    "context searched": lambda views, cid: views.context(
        cid, max_tokens=2_000, strategy="retrieval"
    ),
    "usage": lambda views, cid: views.usage(by="turn", conversation_id=cid),
    "calibration": lambda views, cid: views.calibration("gpt-4o", conversation_id=cid),
    "tool_calls": lambda views, cid: views.tool_calls(conversation_id=cid),
    "run_state": lambda views, cid: views.run_state(cid),
    "open_work": lambda views, cid: views.open_work(cid),
    "usage of all": lambda views, _: views.usage(),
    "calibration of all": lambda views, _: views.calibration("gpt-4o"),
    "tool_calls of all": lambda views, _: views.tool_calls(),
    "open work of all": lambda views, _: views.conversations_with_open_work(),
    "conversations": lambda views, _: views.conversations(),
}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads wait for a lock for 20 ms."""
    for module in ("reading", "context_reading"):
        monkeypatch.setattr(f"projections.{module}.PATIENCE_MS", 20)


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store that itself would wait for a lock, on PostgreSQL for ever."""
    with EventStore.open(database_url) as store:
        Views(store)
        yield store


@contextmanager
def behind(store: EventStore, *names: str) -> Iterator[tuple[Views, UUID]]:
    """Give views that have read a conversation, which has gained events since, beside a lock."""
    views, cid = Views(store), converse(store, 2)
    for name in names or VIEWS:
        VIEWS[name](views, cid)
    converse(store, 1)
    store.append(cid, say("more"))
    with locked(store):
        yield views, cid


@pytest.mark.parametrize("name", VIEWS)
def test_view(store: EventStore, name: str) -> None:
    """It answers as it does once the lock is gone; it raised `DatabaseBusy` after 30 s."""
    with behind(store, name) as (views, cid):
        beside = VIEWS[name](views, cid)
        again = VIEWS[name](views, cid)
        other = VIEWS[name](Views(store), cid)
    after = VIEWS[name](views, cid)

    assert beside == again == other
    assert _same(beside, after)


def test_views_of_many_threads(store: EventStore) -> None:
    """They answer the same, all at a time, as a program of asyncio asks for them."""

    async def main(cid: UUID) -> list[Any]:
        views = Views(store)
        reads = (asyncio.to_thread(read, views, cid) for read in VIEWS.values())
        return await asyncio.gather(*reads)

    with behind(store) as (_, cid):
        beside = asyncio.run(main(cid))
    for (name, read), seen in zip(VIEWS.items(), beside, strict=True):
        assert _same(seen, read(Views(store), cid)), name


def _same(one: Any, other: Any) -> bool:
    """Whether two answers say the same; of searched ones only how they were searched differs."""
    return bool(getattr(one, "messages", one) == getattr(other, "messages", other))


def test_conversation_of_which_nothing_is_stored(store: EventStore) -> None:
    """It is folded from its first event."""
    cid = converse(store, 2)
    with locked(store):
        beside = Views(store).timeline(cid)
    assert beside
    assert beside == Views(store).timeline(cid)


def test_past_and_current_views_need_no_lock(store: EventStore) -> None:
    """They are read as ever."""
    views, cid = Views(store), converse(store, 2)
    current = views.timeline(cid)
    with locked(store):
        assert current == views.timeline(cid)
        assert current[:1] == views.timeline(cid, at=2)[:1]


def test_one_broken_conversation_beside_a_lock(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not hinder a read across conversations."""
    views, cid = Views(store), converse(store, 2)
    views.conversations()
    good = converse(store, 2)
    store.append(cid, say("more"))
    fold = type(DIRECTORY).fold

    def broken(self: Any, state: Any, event: Any) -> Any:
        if event.conversation_id == cid:
            raise RuntimeError("broken")
        return fold(self, state, event)

    monkeypatch.setattr(type(DIRECTORY), "fold", broken)
    with locked(store):
        seen = {each.conversation_id for each in views.conversations()}
    assert {cid, good} == seen


def test_it_is_told_once(store: EventStore, caplog: pytest.LogCaptureFixture) -> None:
    """One line at level info, however often it happens."""
    caplog.set_level(logging.INFO, "projections")
    with behind(store, "timeline", "conversations") as (views, cid):
        for _ in range(3):
            views.timeline(cid)
            views.conversations()
    assert 1 == caplog.text.count("folded in memory")


def test_writers_are_as_patient_as_before(sqlite_url: str) -> None:
    """A read that was in a hurry leaves the timeout of its connection as it was."""
    with EventStore.open(sqlite_url, busy_timeout_ms=1234, pool_size=1) as store:
        with behind(store, "timeline", "context") as (views, cid):
            views.timeline(cid)
            views.context(cid)
        with store.reading() as connection:
            assert 1234 == connection.execute(text("PRAGMA busy_timeout")).scalar()
        with store._driver_transaction() as driver:
            assert (1234,) == driver.raw.execute("PRAGMA busy_timeout").fetchone()


def test_patience_of_the_store_itself(database_url: str) -> None:
    """Whoever writes still waits for as long as the store does, and a rebuild is refused."""
    url = make_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.update_query_dict({"options": "-c lock_timeout=50"})
    with EventStore.open(url, busy_timeout_ms=50) as store:
        with behind(store, "timeline") as (_, cid):
            with pytest.raises(DatabaseBusy):
                store.append(cid, say("refused"))
            if store.engine.dialect.name == "sqlite":
                with pytest.raises(DatabaseBusy):
                    rebuild(store, ["timeline"])
