"""Two workers on one app of Google's ADK, and texts that UTF-8 has no bytes for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError

from agent_eventstore import EventStore
from agent_eventstore.integrations.google_adk import service
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService
from tests.integrations.test_google_adk_sessions import ADA, changing, read, said

pytestmark = pytest.mark.anyio


@pytest.fixture
def two(postgres_url: str) -> Iterator[list[EventStoreSessionService]]:
    """Give the service of two workers on PostgreSQL, where transactions run side by side."""
    with EventStore.open(postgres_url) as one, EventStore.open(postgres_url) as other:
        yield [EventStoreSessionService(each) for each in (one, other)]


async def test_two_sessions_that_begin_with_state_of_their_app(
    two: list[EventStoreSessionService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both begin, and each one's change of the app's state stays."""
    one, other = two
    backward = service._backward

    def overtaken(*place: Any) -> Any:
        monkeypatch.setattr(service, "_backward", backward)
        events = [*backward(*place)]
        other._create(("app", "ada", "t"), {"app:b": 2})
        return events

    monkeypatch.setattr(service, "_backward", overtaken)
    await one.create_session(**ADA, session_id="s", state={"app:a": 1})

    assert {"app:a": 1, "app:b": 2} == (await read(one)).state == (await read(other, "t")).state
    with pytest.raises(AlreadyExistsError):
        await other.create_session(**ADA, session_id="s")


async def test_lone_surrogates(store: EventStore) -> None:
    """Half of a pair, as models write it in JSON, is read as it was written."""
    service = EventStoreSessionService(store)
    session = await service.create_session(**ADA, session_id="s")
    await service.append_event(session, said("half \ud83d of a bird"))
    await service.append_event(session, changing(half="\udc26"))
    for _ in range(3):  # from the log, into memory, and from memory
        found = await read(service)
        assert session.events == found.events
        assert {"half": "\udc26"} == found.state
