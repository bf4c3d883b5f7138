"""A plugin of pytest: `EventStoreSaver` and `EventStoreStore` in the place of LangGraph's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio
import langgraph.store.memory
import langgraph.store.sqlite
import langgraph.store.sqlite.aio
from langgraph.store.base import IndexConfig
from stores import store_at, temporary_store  # type: ignore[import-not-found]

from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from agent_eventstore.integrations.langgraph.store import EventStoreStore


class Saver:
    """Opens savers as `SqliteSaver` does."""

    @staticmethod
    @contextmanager
    def from_conn_string(_: str) -> Iterator[EventStoreSaver]:
        """Give a saver on a store of its own."""
        yield EventStoreSaver(temporary_store())


class AsyncSaver:
    """Opens savers as `AsyncSqliteSaver` does."""

    @staticmethod
    @asynccontextmanager
    async def from_conn_string(_: str) -> AsyncIterator[EventStoreSaver]:
        """Give a saver on a store of its own."""
        yield EventStoreSaver(temporary_store())


class Store(EventStoreStore):
    """A store of its own, which forgets with the process like `InMemoryStore`."""

    def __init__(self, *, index: IndexConfig | None = None) -> None:
        super().__init__(temporary_store(), index=index)


class SqliteStore(EventStoreStore):
    """Opened as their `SqliteStore`, at a path."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, **options: Any) -> Iterator[Self]:
        """Give the items at a path."""
        yield cls(store_at(conn_string), **options)


class AsyncSqliteStore(EventStoreStore):
    """Opened as their `AsyncSqliteStore`, whose sweeping is awaited."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(  # type: ignore[override]
        cls, conn_string: str, **options: Any
    ) -> AsyncIterator[Self]:
        """Give the items at a path."""
        yield cls(store_at(conn_string), **options)

    async def setup(self) -> None:  # type: ignore[override]
        """Do nothing."""

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        """Sweep in a thread."""
        return await asyncio.to_thread(EventStoreStore(self.store).sweep_ttl)

    async def start_ttl_sweeper(  # type: ignore[override]
        self, sweep_interval_minutes: float | None = None
    ) -> None:
        """Start the thread."""
        self.sweeping = EventStoreStore(self.store, ttl=self.ttl_config)
        self.sweeping.start_ttl_sweeper(sweep_interval_minutes)

    async def stop_ttl_sweeper(self, *seconds: float | None) -> bool:  # type: ignore[override]
        """Stop the thread."""
        return self.sweeping.stop_ttl_sweeper(*seconds)


sqlite: Any = langgraph.checkpoint.sqlite
sqlite.SqliteSaver, sqlite.aio.AsyncSqliteSaver = Saver, AsyncSaver
stores: Any = langgraph.store.sqlite
stores.SqliteStore = SqliteStore
stores.AsyncSqliteStore = stores.aio.AsyncSqliteStore = AsyncSqliteStore
memory: Any = langgraph.store.memory
memory.InMemoryStore = Store
