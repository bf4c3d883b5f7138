"""What the session service of Google's ADK keeps in memory of the sessions that it reads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from agent_eventstore import EventStore
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService, key_of
from tests.integrations.test_google_adk_sessions import ADA, read, said

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


async def test_a_session_read_while_it_is_deleted(
    service: EventStoreSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader does not put back into memory what the deletion has removed."""
    session = await service.create_session(**ADA, session_id="s")
    await service.append_event(session, said("secret"))
    await read(service)
    erase = service.store.erase

    def read_then_erase(*args: Any, **named: Any) -> Any:
        service._get(("app", "ada", "s"), None)
        return erase(*args, **named)

    monkeypatch.setattr(service.store, "erase", read_then_erase)
    await service.delete_session(**ADA, session_id="s")

    assert service._events._memory.get(_stream(service, "s")) is None
    assert service._log._sessions.get(key_of("app", "ada", "s")) is None


def _stream(service: EventStoreSessionService, session_id: str) -> UUID:
    return service.store.stream(key_of("app", "ada", session_id))
