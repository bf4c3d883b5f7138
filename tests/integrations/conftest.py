"""Stores for the adapters of frameworks; each test has a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_eventstore import EventStore


@pytest.fixture(scope="session")
def begin_upgraded() -> bool:
    """Have databases begin with the schema, which the tests here do not ask about."""
    return True


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store, once for each backend."""
    with EventStore.open(database_url, synchronous="OFF") as opened:
        yield opened
