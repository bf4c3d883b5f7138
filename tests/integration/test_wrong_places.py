"""What is handed in where another thing belongs: told in words, before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from agent_eventstore import AsyncConversation, AsyncViews, Conversation, Views
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import UnsafeTransaction
from tests.contract.facade import say


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store of each database."""
    with EventStore.open(database_url) as store:
        yield store


async def opened_with(store: Any, how: str) -> None:
    """Begin, open or fork a conversation of an asynchronous store."""
    names = () if how == "start" else ("key",)
    await getattr(AsyncConversation, how)(store, *names)


@pytest.mark.parametrize("how", ["start", "open", "fork"])
def test_the_other_kind_of_store(store: EventStore, how: str) -> None:
    """It was an AttributeError of some name within the library."""
    asynchronous: Any = AsyncEventStore(store)
    names = () if how == "start" else ("key",)
    with pytest.raises(TypeError, match=r"must be an EventStore, not AsyncEventStore"):
        getattr(Conversation, how)(asynchronous, *names)
    with pytest.raises(TypeError, match=r"must be an AsyncEventStore, not EventStore"):
        asyncio.run(opened_with(store, how))


def test_views_of_no_store(store: EventStore) -> None:
    """Among them a store that nobody has waited for, which is closed without a warning."""
    wrong: Any
    for wrong in (AsyncEventStore(store), "sqlite://", None):
        with pytest.raises(TypeError, match="must be an EventStore"):
            Views(wrong)
    for wrong in (store, None):
        with pytest.raises(TypeError, match="must be an AsyncEventStore"):
            AsyncViews(wrong)
    unawaited: Any = AsyncEventStore.open("sqlite://")
    with pytest.raises(TypeError, match="write `await`"):
        AsyncViews(unawaited)


def test_what_is_no_connection(store: EventStore, database_url: str) -> None:
    """A session of SQLAlchemy's and an engine were an AttributeError; the session's own will do."""
    engine = create_engine(database_url)
    with Session(engine) as session:
        for wrong in (session, engine):
            with pytest.raises(UnsafeTransaction, match="not a SQLAlchemy connection"):
                store.append(new_id(), say("1"), connection=wrong)  # type: ignore[arg-type]
        assert 1 == store.append(new_id(), say("1"), connection=session.connection()).version
        session.rollback()
    engine.dispose()


def test_a_connection_of_the_drivers(postgres_url: str) -> None:
    """The synchronous one, and the asynchronous one on an event loop."""
    address = make_url(postgres_url).set(drivername="postgresql")
    conninfo = address.render_as_string(hide_password=False)
    refused = pytest.raises(UnsafeTransaction, match=r"psycopg\.")
    with EventStore.open(postgres_url) as store, psycopg.connect(conninfo) as raw, refused:
        store.append(new_id(), say("1"), connection=raw)  # type: ignore[arg-type]

    async def on_a_loop() -> None:
        engine = create_async_engine(postgres_url)
        asynchronous = await AsyncEventStore.open(postgres_url)
        try:
            async with await psycopg.AsyncConnection.connect(conninfo) as raw:
                with pytest.raises(UnsafeTransaction, match=r"psycopg\."):
                    await asynchronous.append(new_id(), say("1"), connection=raw)  # type: ignore[arg-type]
            with pytest.raises(UnsafeTransaction, match="AsyncEngine"):
                await asynchronous.append(new_id(), say("1"), connection=engine)  # type: ignore[arg-type]
        finally:
            await asynchronous.close()
            await engine.dispose()

    asyncio.run(on_a_loop())


@pytest.mark.parametrize(
    "read",
    [
        lambda views, cid: views.timeline(cid, limit=-1),
        lambda views, cid: views.tool_calls(limit=-1),
        lambda views, _: views.conversations(limit=-1),
        lambda views, _: views.search("word", limit=-1),
        lambda views, _: views.rows("sessions", limit=-1),
        lambda views, _: views.conversations_with_open_work(-1),
    ],
)
def test_a_negative_limit(store: EventStore, read: Callable[[Views, Any], object]) -> None:
    """SQLite took it for all there is, PostgreSQL refused the statement."""
    store.append(cid := new_id(), say("word"))

    with pytest.raises(ValueError, match="limit must not be negative: -1"):
        read(Views(store), cid)


@pytest.mark.parametrize("limit", ["5", 1.5])
@pytest.mark.parametrize(
    "read",
    [
        lambda views, cid, limit: views.timeline(cid, limit=limit),
        lambda views, _, limit: views.tool_calls(limit=limit),
        lambda views, _, limit: views.conversations(limit=limit),
        lambda views, _, limit: views.search("word", limit=limit),
        lambda views, _, limit: views.rows("sessions", limit=limit),
    ],
)
def test_a_limit_that_is_no_number_of_rows(
    store: EventStore, read: Callable[[Views, Any, Any], Sequence[object]], limit: object
) -> None:
    """The advice was to rebuild the projections, as if a row were damaged."""
    store.append(cid := new_id(), say("word"))
    views = Views(store)

    with pytest.raises(ValueError, match="limit must be a number of rows"):
        read(views, cid, limit)
    assert read(views, cid, 10**30) == read(views, cid, 100)


def test_a_page_needs_a_limit(store: EventStore) -> None:
    """Without one a search found nothing."""
    store.append(new_id(), say("word"))
    views: Any = Views(store)
    for read in (views.conversations, partial(views.search, "word")):
        with pytest.raises(ValueError, match="limit must be a number of rows, not None"):
            read(limit=None)


def test_a_status_that_no_tool_call_has(store: EventStore) -> None:
    """Nothing was found, as if every call had gone well."""
    with pytest.raises(ValueError, match="'faild': choose from requested, running, success"):
        Views(store).tool_calls(status="faild")
    assert [] == Views(store).tool_calls(status="failed")
