"""A service on loopback, served by uvicorn in a thread, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventstore import EventStore
from tests.conftest import Beginning
from tests.server.serving import Answering, Running, running


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the tables of all projections, which no test here asks about."""
    return "installed"


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store of this test's own."""
    with EventStore.open(database_url, synchronous="NORMAL") as found:
        yield found


@pytest.fixture
def models() -> dict[str, Answering]:
    """Give two participants' models."""
    return {"tom": Answering("tom says"), "ann": Answering("ann says")}


@pytest.fixture
def service(store: EventStore, models: dict[str, Answering]) -> Iterator[Running]:
    """Give a running service for everybody who has the token."""
    with running(store, models=models) as found:
        yield found
