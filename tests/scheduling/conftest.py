"""Stores for schedulers, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventstore import EventStore


@pytest.fixture(scope="session")
def begin_upgraded() -> bool:
    """Let databases begin with the schema: nothing here is about how it comes about."""
    return True


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store of this test's own."""
    with EventStore.open(database_url, synchronous="NORMAL", pool_size=3) as found:
        yield found
