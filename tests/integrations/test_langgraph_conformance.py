"""The suite that LangGraph ships for checkpointers, over both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from agent_eventstore import EventStore
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver


@pytest.mark.parametrize("capability", [each.value for each in Capability])
def test_capability(store: EventStore, capability: str) -> None:
    """Each of the suite's capabilities is there, and all of its tests pass."""

    @checkpointer_test(name="EventStoreSaver")
    async def saver() -> AsyncGenerator[EventStoreSaver, None]:
        yield EventStoreSaver(store)

    report = asyncio.run(validate(saver, capabilities={capability}))
    result = report.results[capability]

    assert [] == result.failures
    assert result.detected
    assert result.tests_passed > 0
