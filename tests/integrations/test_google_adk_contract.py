"""What ADK's own session services do with unusual calls and values, and the adapter as well."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from agent_eventstore import EventStore
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService
from tests.integrations.test_google_adk_sessions import ADA, changing, read

pytestmark = pytest.mark.anyio


@pytest.fixture
def service(store: EventStore) -> EventStoreSessionService:
    """Give the adapter over a store."""
    return EventStoreSessionService(store)


async def test_closing_leaves_the_store_open(store: EventStore) -> None:
    """As ADK's own services, it may stand in ``async with``; the store is the product's."""
    async with EventStoreSessionService(store) as service:
        await service.create_session(**ADA, session_id="s")
    await service.close()
    assert await read(service) is not None


async def test_an_event_that_is_delivered_again(service: EventStoreSessionService) -> None:
    """It is kept once, and changes nothing again; another one of the same id is kept."""
    session = await service.create_session(**ADA, session_id="s")
    event = changing(n=1)
    await service.append_event(session, event)
    await service.append_event(session, changing(n=2))
    copied = event.model_copy(deep=True)
    for again, into in ((event, session), (copied, session), (copied, await read(service))):
        assert await service.append_event(into, again) is again
        assert len(into.events) == len((await read(service)).events) == 2
        assert (into.state, (await read(service)).state) == ({"n": 2}, {"n": 2})

    await service.append_event(session, changing(n=3).model_copy(update={"id": event.id}))
    assert (await read(service)).state == {"n": 3}


async def test_values_of_state_are_written_one_way(
    service: EventStoreSessionService, tmp_path: Path
) -> None:
    """The same values are the same state, begun with or appended, as in ADK's own services."""
    values = {"part": types.Part(text="x"), "bytes": b"ab", "pair": (1, 2), "none": {"a": None}}
    told = []
    for kept in (SqliteSessionService(str(tmp_path / "adk.db")), service):
        await kept.create_session(**ADA, session_id="begun", state=values)
        session = await kept.create_session(**ADA, session_id="s")
        await kept.append_event(session, changing(**values))
        told += [(await read(kept, "begun")).state, (await read(kept)).state]
    assert told[0] == told[1] == told[2] == told[3]
    assert told[3]["part"]["thought"] is None

    session = await service.create_session(**ADA, session_id="n", state={"n": math.nan})
    await service.append_event(session, changing(m=math.inf))
    assert (await read(service, "n")).state == {"n": None, "m": None}


async def test_a_user_without_a_name(store: EventStore, service: EventStoreSessionService) -> None:
    """Its sessions are nobody's in the log, and its own to ADK."""
    nobody: dict[str, Any] = {"app_name": "app", "user_id": ""}
    session = await service.create_session(**nobody, session_id="s", state={"user:u": 1})
    await service.create_session(**ADA, session_id="s")
    await service.append_event(session, changing(user__u=2))

    listed = [
        (await service.list_sessions(**each)).sessions for each in (nobody, {"app_name": "app"})
    ]
    assert [[each.user_id for each in found] for found in listed] == [[""], ["ada", ""]]
    assert await service.get_user_state(**nobody) == {"u": 2}
    assert store.get("app//s").user_id is None
    await service.delete_session(**nobody, session_id="s")
    assert await service.get_session(**nobody, session_id="s") is None


async def test_a_session_that_was_begun_anew(
    service: EventStoreSessionService, tmp_path: Path
) -> None:
    """An object of the one before is stale, also where neither has an event."""
    for kept in (SqliteSessionService(str(tmp_path / "adk.db")), service):
        before = await kept.create_session(**ADA, session_id="s", state={"a": 1})
        await kept.delete_session(**ADA, session_id="s")
        await kept.create_session(**ADA, session_id="s")
        with pytest.raises(ValueError, match=r"stale|read it again"):
            await kept.append_event(before, changing(b=2))
        anew = await read(kept)
        assert (anew.state, anew.events) == ({}, [])
        await kept.append_event(anew, changing(b=3))
        assert (await read(kept)).state == {"b": 3}
