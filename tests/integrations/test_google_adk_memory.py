"""What the session service of Google's ADK keeps in memory of the sessions that it reads."""

from __future__ import annotations

from uuid import UUID

import pytest

from agent_eventstore import EventStore
from agent_eventstore.integrations.google_adk import EventStoreSessionService
from agent_eventstore.integrations.google_adk_state import key_of
from tests.integrations.test_google_adk_sessions import ADA, read

pytestmark = pytest.mark.anyio


@pytest.fixture
def service(store: EventStore) -> EventStoreSessionService:
    """Give the adapter over a store."""
    return EventStoreSessionService(store)


async def test_sessions_read_once_evict_nothing(service: EventStoreSessionService) -> None:
    """A session that is read again stays cached, however many others are read once."""
    names = [f"s{number}" for number in range(66)]
    for name in names:
        await service.create_session(**ADA, session_id=name)
    for name in ("s0", *names):
        await read(service, name)

    cached = [name for name in names if service._events._memory.get(_stream(service, name))]
    assert ["s0"] == cached


def _stream(service: EventStoreSessionService, session_id: str) -> UUID:
    return service.store.stream(key_of("app", "ada", session_id))
