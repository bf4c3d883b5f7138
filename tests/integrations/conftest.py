"""Stores for the adapters of frameworks; each test has a database of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from agent_eventstore import EventStore
from eventstore.events import AssistantChunk
from tests.conftest import Beginning
from tests.warm import Programs, programs

PATIENCE_S = 30.0


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


def chunks_of(store: EventStore, key: str) -> list[str]:
    """Return the texts of the batches that have been recorded of what streamed."""
    data = [event.data for event in store.read(key)]
    return [each.text for each in data if isinstance(each, AssistantChunk)]


async def arrived(store: EventStore, key: str, text: str) -> None:
    """Wait until a text that streams is recorded; fail if it is not."""
    until = time.monotonic() + PATIENCE_S
    while "".join(chunks_of(store, key)) != text:
        assert time.monotonic() < until, f"not recorded: {text}"
        await asyncio.sleep(0.01)
