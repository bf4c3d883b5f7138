"""The product's own asynchronous connection: an append commits and is rolled back with it."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from eventstore import AsyncEventStore, NewEvent, new_id
from eventstore.errors import StatementRefused, UnsafeTransaction, WrongExpectedVersion
from eventstore.events import ToolResult
from tests.contract.facade import say


def test_the_products_row_and_the_events_are_one_transaction(postgres_url: str, cid: UUID) -> None:
    """Both are there, or neither is; blobs and repeated ids are as in any append."""

    async def main() -> None:
        engine = create_async_engine(postgres_url)
        large = NewEvent(ToolResult(call_id="1.0", content="x" * 100_000), new_id())
        async with await AsyncEventStore.open(postgres_url) as store:
            async with engine.begin() as connection:
                await connection.execute(text("CREATE TABLE orders (id integer)"))
            async with engine.begin() as connection:
                await connection.execute(text("INSERT INTO orders VALUES (1)"))
                done = await store.append(cid, [*say("1"), large], connection=connection)
            assert 2 == done.version
            assert done.events == tuple([event async for event in store.read(cid)])
            async with engine.begin() as connection:
                await connection.execute(text("INSERT INTO orders VALUES (2)"))
                assert 3 == (await store.append(cid, say("2"), connection=connection)).version
                await connection.rollback()
            assert 2 == (await store.get(cid)).version
            epoch = await store.raise_writer_epoch(cid)
            async with engine.begin() as connection:
                more = await store.append(
                    cid, say("3"), writer_epoch=epoch, anchor=done.anchor, connection=connection
                )
            assert 3 == more.version
            async with engine.begin() as connection:
                again = await store.append(cid, [large], connection=connection)
                assert 2 == again.version
                found = await connection.execute(text("SELECT id FROM orders"))
                assert [1] == list(found.scalars())
        await engine.dispose()

    asyncio.run(main())


def test_other_drivers_are_refused(postgres_url: str, cid: UUID) -> None:
    """SQLite's asynchronous one among them: `AsyncEventStore.transaction` is for its users."""

    async def main() -> None:
        engine = create_async_engine(postgres_url)
        async with await AsyncEventStore.open(postgres_url) as store, engine.begin() as mine:
            mine.dialect.driver = "aiosqlite"
            with pytest.raises(UnsafeTransaction, match="psycopg, not aiosqlite"):
                await store.append(cid, say("1"), connection=mine)
        await engine.dispose()

    asyncio.run(main())


def test_errors_are_the_stores(postgres_url: str, cid: UUID) -> None:
    """A conflict, a table that is gone, and a connection in no transaction."""

    async def main() -> None:
        engine = create_async_engine(postgres_url)
        async with await AsyncEventStore.open(postgres_url) as store, engine.connect() as mine:
            with pytest.raises(UnsafeTransaction):
                await store.append(cid, say("1"), connection=mine)
            await mine.begin()
            with pytest.raises(WrongExpectedVersion):
                await store.append(cid, say("1"), expected_version=7, connection=mine)
            await mine.execute(text("ALTER TABLE events RENAME TO moved"))
            with pytest.raises(StatementRefused):
                await store.append(cid, say("1"), connection=mine)
        await engine.dispose()

    asyncio.run(main())
