"""The adapters on a product's engine whose pool has one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from google.adk.events import Event, EventActions
from langchain_core.messages import HumanMessage
from sqlalchemy import create_engine

from agent_eventstore import EventStore
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from tests.integrations.test_google_adk_sessions import ADA
from tests.integrations.test_langgraph_saver import named, put


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store that fails instead of waiting for a second connection."""
    engine = create_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=0)
    with EventStore.from_engine(engine) as opened:
        yield opened
    engine.dispose()


def test_state_that_sessions_share(store: EventStore) -> None:
    """ADK's state of the user and the app is read in the transaction that changes it."""
    service = EventStoreSessionService(store)

    async def changed() -> list[dict[str, object]]:
        first = await service.create_session(**ADA, session_id="s", state={"app:a": 1})
        actions = EventActions(state_delta={"app:b": 2, "user:c": 3})
        await service.append_event(first, Event(author="clerk", actions=actions))
        return [each.state for each in (await service.list_sessions(app_name="app")).sessions]

    assert [{"app:a": 1, "app:b": 2, "user:c": 3}] == asyncio.run(changed())


def test_threads_that_share_events(store: EventStore) -> None:
    """LangGraph's list of all threads reads a fork after its query has ended."""
    saver = EventStoreSaver(store)
    first = put(saver, named("t"), {"messages": [HumanMessage("Hello", id="h")]})
    store.fork("t", conversation_id="u")
    put(saver, named("u", "", first["configurable"]["checkpoint_id"]), {"n": 1})
    saver.copy_thread("u", "v")

    listed = [each.config["configurable"]["thread_id"] for each in saver.list(None)]
    assert ["t", "u", "u", "v", "v"] == sorted(listed)
