"""Stores for the adapters of frameworks; each test has a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_eventstore import EventStore
from tests.conftest import Beginning
from tests.warm import Programs, programs


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the tables of all projections, which no test here asks about."""
    return "installed"


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store, once for each backend."""
    with EventStore.open(database_url, synchronous="OFF") as opened:
        yield opened


@pytest.fixture(scope="module")
def framework_programs(request: pytest.FixtureRequest) -> Iterator[Programs]:
    """Give a server of programs that has imported the framework: what the module calls `USED`."""
    with programs(*request.module.USED) as found:
        yield found
