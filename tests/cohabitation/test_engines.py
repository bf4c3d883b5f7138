"""A store on the pool of a product's engine: what is shared, and what the product finds after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.rows import dict_row
from sqlalchemy import Engine, create_engine, event, make_url, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from agent_eventstore import Conversation
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import DatabaseBusy, InvalidUrl, NotWritable, UnsafeTransaction
from projections import Views, worker
from projections.upkeep import compare, rebuild
from tests.conftest import Beginning
from tests.contract.facade import say, texts
from tests.feed_wait import wait_for_feed

SETTINGS = ("search_path", "synchronous_commit", "lock_timeout", "TimeZone")
PRAGMAS = ("foreign_keys", "secure_delete", "synchronous", "busy_timeout", "query_only")


class Base(DeclarativeBase):
    """The product's models."""


class Order(Base):
    """A table of the product's."""

    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str]


@pytest.fixture
def beginning(request: pytest.FixtureRequest) -> Beginning:
    """Have databases begin with the schema, unless the test is about all that a store does."""
    return (
        "nothing"
        if request.function in (test_one_connection_is_enough, test_a_schema)
        else "upgraded"
    )


@pytest.fixture(params=[{"pool_size": 1, "max_overflow": 0}, {"poolclass": NullPool}])
def engine(request: pytest.FixtureRequest, database_url: str) -> Iterator[Engine]:
    """Give a product's engine with a single connection, or with none that is kept."""
    engine = create_engine(database_url, **request.param)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def found(engine: Engine) -> list[Any]:
    """Return what the product's connection has of what a store sets."""
    with engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        if engine.dialect.name == "sqlite":
            values = [raw.execute(f"PRAGMA {name}").fetchone() for name in PRAGMAS]
            return [*values, raw.isolation_level, raw.row_factory, raw.in_transaction]
        rows = [connection.execute(text(f"SHOW {name}")).scalar() for name in SETTINGS]
        return [*rows, raw.isolation_level, raw.autocommit, raw.read_only, raw.row_factory]


def test_one_connection_is_enough(engine: Engine) -> None:
    """Opening, recording, views, rebuild, comparison, erasure: one transaction after the other."""
    before = found(engine)
    store = EventStore.from_engine(engine)
    conversation = Conversation.start(store, title="t")
    with conversation.turn("Hello."):
        pass
    views = Views(store)
    assert "Hello." in [item.text for item in views.timeline(conversation.id)]
    rebuild(store)
    assert compare(wait_for_feed(store)).ok
    store.erase(conversation.id, reason="asked", vacuum=True)
    assert store.verify().ok
    conversation.close()
    store.close()
    assert before == found(engine)


def test_a_products_session(engine: Engine) -> None:
    """Its rows and the append are one transaction, also where the append is what begins it."""
    store, first, second = EventStore.from_engine(engine), new_id(), new_id()
    with Session(engine) as session:
        session.add(Order(number=1, note="one"))
        session.flush()
        store.append(first, say("1"), connection=session.connection())
        session.commit()
        store.append(second, say("2"), connection=session.connection())
        session.add(Order(number=2, note="two"))
        session.rollback()
        numbers = session.scalars(select(Order.number)).all()

    assert ([1], ["1"], []) == (numbers, texts(store.read(first)), texts(store.read(second)))


def test_closing_leaves_the_engine_open(engine: Engine) -> None:
    """The product goes on, and so does another store."""
    with EventStore.from_engine(engine) as store:
        cid = store.append(new_id(), say("1")).conversation_id
    with Session(engine) as session:
        assert [] == session.scalars(select(Order)).all()
    assert ["1"] == texts(EventStore.from_engine(engine).read(cid))


def test_a_pool_without_a_free_connection(database_url: str) -> None:
    """Who holds the only one and asks the store beside it is told so, and waits no longer."""
    engine = create_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    store = EventStore.from_engine(engine)
    with engine.connect(), pytest.raises(DatabaseBusy, match="all connections are in use"):
        store.append(new_id(), say("1"))
    assert 1 == store.append(new_id(), say("1")).version
    engine.dispose()


def test_connections_that_fail_go_back(engine: Engine) -> None:
    """An error in a transaction of the store's leaves the product's connection as it was."""
    store, before = EventStore.from_engine(engine), found(engine)
    for _ in range(3):
        with suppress(ZeroDivisionError), store.transaction() as connection:
            store.append(new_id(), say("1"), connection=connection)
            raise ZeroDivisionError
        with suppress(DBAPIError), store.transaction() as connection:
            connection.execute(text("SELECT * FROM nowhere"))
        assert before == found(engine)
    assert [] == store.list()


def test_a_schema(postgres_url: str) -> None:
    """The store's names mean its own schema, the product's mean the product's."""
    engine = create_engine(postgres_url, pool_size=1, max_overflow=0)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE events (number INT)"))
    store = EventStore.from_engine(engine, schema="agent")
    with engine.begin() as connection:
        cid = store.append(new_id(), say("1"), connection=connection).conversation_id
        connection.execute(text("INSERT INTO events VALUES (1)"))
    workers = create_engine(postgres_url)
    worker.run(EventStore.from_engine(workers, schema="agent"), once=True)
    workers.dispose()

    assert ["1"] == [item.text for item in Views(store).timeline(cid)]
    engine.dispose()


def test_settings_of_a_products_connections(postgres_url: str) -> None:
    """Rows as dictionaries, commits that do not wait, another zone: the store has its own."""
    options = "-c synchronous_commit=off -c timezone=Asia/Tokyo -c datestyle=German"
    engine = create_engine(
        postgres_url,
        isolation_level="SERIALIZABLE",
        connect_args={"options": options},
    )
    with engine.connect():
        pass

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.row_factory = dict_row

    engine.dispose()
    before = found_raw(engine)
    store = EventStore.from_engine(engine)
    with Conversation.start(store, title="t") as conversation, conversation.turn("Hello."):
        pass
    assert Views(store).timeline(conversation.id)
    with store.transaction() as connection:
        for name, value in (
            ("synchronous_commit", "on"),
            ("transaction_isolation", "read committed"),
        ):
            assert value == connection.execute(text(f"SHOW {name}")).scalar()
    assert before == found_raw(engine)
    engine.dispose()


def found_raw(engine: Engine) -> Any:
    """Return what the product's connection has, asked of the driver."""
    pooled = engine.raw_connection()
    raw: Any = pooled.dbapi_connection
    query = "SELECT current_setting('synchronous_commit') c, current_setting('timezone') z"
    values = raw.execute(query).fetchone()
    pooled.close()
    return values, raw.isolation_level, raw.row_factory


def test_rows_and_commits_of_a_products_sqlite(sqlite_url: str) -> None:
    """Commits that do not wait are waited for by the store's, and are the product's again after."""
    engine = create_engine(sqlite_url, pool_size=1, max_overflow=0)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA synchronous=OFF")
        connection.commit()
    store = EventStore.from_engine(engine)
    with store.writing() as connection:
        assert 2 == connection.exec_driver_sql("PRAGMA synchronous").scalar()
    with engine.begin() as connection:
        assert 0 == connection.exec_driver_sql("PRAGMA synchronous").scalar()
        with pytest.raises(UnsafeTransaction, match="OFF"):
            store.append(new_id(), say("1"), connection=connection)
    engine.dispose()


def test_read_only(engine: Engine) -> None:
    """Such a store writes nothing, and the product goes on writing."""
    cid = EventStore.from_engine(engine).append(new_id(), say("1")).conversation_id
    reader = EventStore.from_engine(engine, read_only=True)
    assert ["1"] == [item.text for item in Views(reader).timeline(cid)]
    with pytest.raises(NotWritable):
        reader.append(cid, say("2"))
    with Session(engine) as session:
        session.add(Order(number=1, note="one"))
        session.commit()


def test_engines_that_cannot_be_shared() -> None:
    """A database in memory has one connection for all."""
    with pytest.raises(InvalidUrl, match="cannot be shared"):
        EventStore.from_engine(create_engine("sqlite://"))


async def converse(engine: Any) -> list[str]:
    """Append alone and in a transaction, and return what is read."""
    async with await AsyncEventStore.from_engine(engine) as store:
        cid = new_id()
        await store.append(cid, say("1"))
        async with store.transaction() as connection:
            await store.append(cid, say("2"), connection=connection)
        return texts([event async for event in store.read(cid)])


def test_asynchronous_store(database_url: str) -> None:
    """It shares an engine's pool, as the other kind of store does."""
    engine = create_engine(database_url, pool_size=1, max_overflow=0)
    assert ["1", "2"] == asyncio.run(converse(engine))
    engine.dispose()


def test_asynchronous_engine(database_url: str) -> None:
    """The store has a pool of its own beside one, by a driver that its threads can use.

    SQLAlchemy's `AsyncEngine` needs greenlet, which the tests do without: it has these attributes.
    """
    url = make_url(database_url.replace("sqlite:", "sqlite+aiosqlite:"))
    engine = SimpleNamespace(url=url, pool=None)
    assert ["1", "2"] == asyncio.run(converse(engine))
