"""Stores for schedulers, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventstore import EventStore
from tests.conftest import Beginning


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the tables of all projections, which no test here asks about."""
    return "installed"


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store of this test's own."""
    with EventStore.open(database_url, synchronous="NORMAL", pool_size=3) as found:
        yield found
