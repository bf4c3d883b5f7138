"""A plugin of pytest: `EventStoreSaver` and `EventStoreStore` in the place of LangGraph's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio
import langgraph.store.memory
from langgraph.store.base import IndexConfig
from stores import temporary_store  # type: ignore[import-not-found]

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


sqlite: Any = langgraph.checkpoint.sqlite
sqlite.SqliteSaver, sqlite.aio.AsyncSqliteSaver = Saver, AsyncSaver
memory: Any = langgraph.store.memory
memory.InMemoryStore = Store
