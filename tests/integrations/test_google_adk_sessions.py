"""What the session service of Google's ADK keeps, as its contract says, on both databases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations import conversation_memory
from agent_eventstore.integrations.google_adk.events import GoogleADKState
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService

pytestmark = pytest.mark.anyio

ADA: dict[str, Any] = {"app_name": "app", "user_id": "ada"}


@pytest.fixture
def service(store: EventStore) -> EventStoreSessionService:
    """Give the adapter over a store."""
    return EventStoreSessionService(store)


def said(text: str, author: str = "user", **fields: Any) -> Event:
    """Return an event in which somebody says something."""
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author=author, invocation_id="i1", content=content, **fields)


def changing(**state: Any) -> Event:
    """Return an event that changes the state; a double underscore stands for a colon."""
    delta = {key.replace("__", ":"): value for key, value in state.items()}
    return Event(author="clerk", invocation_id="i1", actions=EventActions(state_delta=delta))


async def read(service: Any, session_id: str = "s", **config: Any) -> Session:
    """Return a session as it is stored."""
    found = await service.get_session(
        **ADA, session_id=session_id, config=GetSessionConfig(**config) if config else None
    )
    assert found is not None
    return found


async def test_creating(service: EventStoreSessionService) -> None:
    """With an id of its own or a given one, whose spaces are left out; none twice."""
    own = await service.create_session(**ADA)
    given = await service.create_session(**ADA, session_id=" s ", state={"a": [1, None]})

    assert own.id
    assert (given.id, given.state, given.events) == ("s", {"a": [1, None]}, [])
    assert (await read(service)).state == {"a": [1, None]}
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**ADA, session_id="s")


async def test_what_is_nowhere(service: EventStoreSessionService) -> None:
    """Reads as none, is not appended to, and is deleted without a word."""
    assert await service.get_session(**ADA, session_id="s") is None
    assert (await service.list_sessions(app_name="app")).sessions == []
    await service.delete_session(**ADA, session_id="s")
    nameless: Any = None
    assert await service.get_session(**ADA, session_id=nameless) is None
    await service.delete_session(**ADA, session_id=nameless)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(Session(id="s", **ADA), said("Hello"))


async def test_events_come_back(service: EventStoreSessionService) -> None:
    """In order, each equal to what went in, also in the object that was appended to."""
    session = await service.create_session(**ADA, session_id="s")
    events = [said("Hello"), said("Hi!", "clerk"), changing(n=1), said("Bye")]
    for event in events:
        assert await service.append_event(session, event) is event

    again = await read(service)
    assert again.events == session.events == events
    assert again.state == session.state == {"n": 1}
    assert again.last_update_time == session.last_update_time == events[-1].timestamp


async def test_a_partial_event_is_not_kept(service: EventStoreSessionService) -> None:
    """It is handed back, and changes nothing."""
    session = await service.create_session(**ADA, session_id="s")
    await service.append_event(session, said("Hel", "clerk", partial=True))

    assert session.events == (await read(service)).events == []


async def test_state_by_prefixes(service: EventStoreSessionService) -> None:
    """The app's is that of all users, the user's of all sessions; temporary state is not kept."""
    first = await service.create_session(
        **ADA, session_id="s", state={"app:a": 1, "user:u": 2, "own": 3, "temp:t": 4}
    )
    await service.append_event(first, changing(app__a=5, user__v=6, own=7, temp__x=8))

    assert first.state["temp:x"] == 8
    assert "temp:x" not in first.events[-1].actions.state_delta
    assert (await read(service)).state == {"app:a": 5, "user:u": 2, "user:v": 6, "own": 7}
    second = await service.create_session(**ADA)
    assert second.state == {"app:a": 5, "user:u": 2, "user:v": 6}
    bob = await service.create_session(app_name="app", user_id="bob")
    assert bob.state == {"app:a": 5}
    other = await service.create_session(app_name="other", user_id="ada")
    assert other.state == {}
    assert await service.get_user_state(**ADA) == {"u": 2, "v": 6}
    assert await service.get_user_state(app_name="app", user_id="eve") == {}


async def test_the_newest_events(service: EventStoreSessionService) -> None:
    """As many as are asked for, with the state of all; and those since a time."""
    session = await service.create_session(**ADA, session_id="s")
    for number in range(6):
        event = changing(n=number)
        event.timestamp = 100.0 + number
        await service.append_event(session, event)

    newest = await read(service, num_recent_events=2)
    assert [each.timestamp for each in newest.events] == [104.0, 105.0]
    assert newest.state == {"n": 5}
    assert (await read(service, num_recent_events=0)).events == []
    assert len((await read(service, num_recent_events=50)).events) == 6
    since = await read(service, after_timestamp=103.0)
    assert [each.timestamp for each in since.events] == [103.0, 104.0, 105.0]
    both = await read(service, after_timestamp=103.0, num_recent_events=1)
    assert [each.timestamp for each in both.events] == [105.0]
    await service.append_event(newest, changing(n=6))


async def test_a_stale_session(service: EventStoreSessionService) -> None:
    """Who has not read what somebody else has appended is refused, until it is read."""
    session = await service.create_session(**ADA, session_id="s")
    stale = await read(service)
    await service.append_event(session, said("Hello"))

    with pytest.raises(ValueError, match="read it again"):
        await service.append_event(stale, said("Me, too"))
    assert stale.events == []
    await service.append_event(await read(service), said("Me, too"))
    with pytest.raises(ValueError, match="read it again"):
        await service.append_event(session, said("And me"))


async def test_a_session_object_made_by_hand(service: EventStoreSessionService) -> None:
    """It is as new as its time says."""
    made = await service.create_session(**ADA, session_id="s")
    await service.append_event(made, said("Hello"))
    old, new = [Session(id="s", last_update_time=at, **ADA) for at in (0.0, made.last_update_time)]

    with pytest.raises(ValueError, match="read it again"):
        await service.append_event(old, said("A"))
    await service.append_event(new, said("B"))
    assert len((await read(service)).events) == 2


async def test_two_services(store: EventStore) -> None:
    """One sees what the other appends; of two at once, one is stale."""
    one, other = EventStoreSessionService(store), EventStoreSessionService(store)
    await one.create_session(**ADA, session_id="s")
    await one.append_event(await read(one), said("first"))
    await other.append_event(await read(other), said("second"))
    assert len((await read(one)).events) == 2

    sessions = [await read(one), await read(other)]
    done = await asyncio.gather(
        one.append_event(sessions[0], said("third")),
        other.append_event(sessions[1], said("third, too")),
        return_exceptions=True,
    )
    assert sorted(isinstance(each, ValueError) for each in done) == [False, True]
    assert len((await read(other)).events) == 3


async def test_shared_state_at_once(store: EventStore) -> None:
    """What many sessions change of the app's and the user's state is all kept."""
    services = [EventStoreSessionService(store) for _ in range(4)]
    sessions = [await each.create_session(**ADA) for each in services]
    await asyncio.gather(
        *(
            each.append_event(session, changing(**{f"app__{n}": n, f"user__{n}": n}))
            for n, (each, session) in enumerate(zip(services, sessions, strict=True))
        )
    )

    assert await services[0].get_user_state(**ADA) == {str(n): n for n in range(4)}
    state = (await services[0].create_session(**ADA)).state
    assert {f"app:{n}": n for n in range(4)}.items() <= state.items()


async def test_tasks_that_share_a_session(service: EventStoreSessionService) -> None:
    """Branches of an agent append to one object, and none of them is stale."""
    session = await service.create_session(**ADA, session_id="s")
    await asyncio.gather(*(service.append_event(session, said(str(n), "a")) for n in range(8)))

    assert len((await read(service)).events) == len(session.events) == 8


async def test_listing(service: EventStoreSessionService) -> None:
    """Of an app or a user, without events, what changed last at the end, with its state."""
    one = await service.create_session(**ADA, session_id="1", state={"k": "v", "user:u": 1})
    await service.create_session(app_name="app", user_id="bob", session_id="2")
    for name in ("other", "App", "app_", "appl"):
        await service.create_session(app_name=name, user_id="ada", session_id="3")
    for place in range(120):  # the state is written anew on the way
        await service.append_event(one, said(f"Hello {place}"))

    everybody = (await service.list_sessions(app_name="app")).sessions
    assert [(each.id, each.user_id) for each in everybody] == [("2", "bob"), ("1", "ada")]
    listed = (await service.list_sessions(app_name="App")).sessions
    assert [(each.app_name, each.id) for each in listed] == [("App", "3")]
    [mine] = (await service.list_sessions(**ADA)).sessions
    assert (mine.state, mine.events) == ({"k": "v", "user:u": 1}, [])


async def test_a_fork_is_listed(store: EventStore, service: EventStoreSessionService) -> None:
    """A fork of a session is listed with the state that it shares, before it has any of its own."""
    await service.create_session(**ADA, session_id="s", state={"mood": "good"})
    store.fork("app/ada/s", conversation_id="app/ada/fork")

    listed = (await service.list_sessions(**ADA)).sessions

    assert {("s", "good"), ("fork", "good")} == {(each.id, each.state["mood"]) for each in listed}


async def test_what_is_cached_is_bounded(
    service: EventStoreSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the size of the states, not only by the number of sessions."""
    monkeypatch.setattr(conversation_memory, "_MOST_BYTES", 1_000)
    small = await service.create_session(**ADA, session_id="small")
    large = await service.create_session(**ADA, session_id="large", state={"a": "x" * 600})
    for session in (large, small):
        await service.append_event(session, changing(b="x" * 300))
    assert 1_000 > service._log._sessions._size > 300

    await service.append_event(large, changing(c="x" * 300))
    assert not {"app/ada/large"}.intersection(service._log._sessions._known)
    assert {"a", "b", "c"} == {*(await read(service, "large")).state}


async def test_deleting_erases(store: EventStore, service: EventStoreSessionService) -> None:
    """Nothing of it is read again, and shared state stays; the id may be used anew."""
    session = await service.create_session(**ADA, session_id="s", state={"user:u": 1, "k": "v"})
    await service.append_event(session, said("a secret word"))
    await service.delete_session(**ADA, session_id="s")

    assert await service.get_session(**ADA, session_id="s") is None
    assert (await service.list_sessions(app_name="app")).sessions == []
    assert all("secret" not in repr(each.data) for each in store.read("app/ada/s"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, said("Hello?"))
    anew = await service.create_session(**ADA, session_id="s")
    assert (anew.state, anew.events) == ({"user:u": 1}, [])
    await service.append_event(anew, said("Hello"))
    assert len((await read(service)).events) == 1


async def test_names_of_any_letters(service: EventStoreSessionService) -> None:
    """No two sessions are ever one."""
    names = [
        ("a/b", "c", "d"),
        ("a", "b/c", "d"),
        ("a", "b", "c/d"),
        ("a%2Fb", "c", "d"),
        ("é", "ü", "日"),
    ]
    for app, user, own in names:
        await service.create_session(
            app_name=app, user_id=user, session_id=own, state={"is": [app, user, own]}
        )
    for app, user, own in names:
        found = await service.get_session(app_name=app, user_id=user, session_id=own)
        assert found is not None
        assert found.state["is"] == [app, user, own]
    assert len((await service.list_sessions(app_name="a")).sessions) == 2


async def test_state_that_is_not_json(service: EventStoreSessionService) -> None:
    """It is kept as JSON has it, as the framework's own services do."""
    begun: dict[str, Any] = {"at": Path("a"), "call": print}
    session = await service.create_session(**ADA, session_id="s", state=begun)
    await service.append_event(session, changing(pair=(1, 2), call_too=print))

    state = (await read(service)).state
    told = repr(print)
    assert state == {"at": "a", "call": told, "pair": [1, 2], "call_too": told}


async def test_long_sessions_are_not_read_whole(
    store: EventStore, service: EventStoreSessionService
) -> None:
    """The state is written as a whole from time to time, so that it is found near the end."""
    session = await service.create_session(**ADA, session_id="s")
    for number in range(250):
        event = changing(**{f"k{number % 7}": number}) if number % 5 == 0 else said("x", "a")
        await service.append_event(session, event)

    snapshots = [each for each in store.read("app/ada/s") if isinstance(each.data, GoogleADKState)]
    assert len(snapshots) == 3
    anew = EventStoreSessionService(store)
    assert (await read(anew, num_recent_events=1)).state == session.state
    assert (await read(anew)).events == session.events


async def test_the_same_as_the_frameworks_own(
    service: EventStoreSessionService, tmp_path: Path
) -> None:
    """A story of sessions, events and state ends as with the services that ADK has."""
    told = []
    sqlite = SqliteSessionService(str(tmp_path / "adk.db"))
    events = [said("Hello"), changing(app__a=1, user__u=[2], own={"k": None}), said("Hi", "clerk")]
    for kept in (InMemorySessionService(), sqlite, service):
        session = await kept.create_session(**ADA, session_id="s", state={"own": 0, "user:w": 1})
        for event in events:
            await kept.append_event(session, event.model_copy(deep=True))
        await kept.create_session(app_name="app", user_id="bob", session_id="t")
        again = await kept.get_session(**ADA, session_id="s")
        assert again is not None
        recent = await read(kept, num_recent_events=1)
        listed = await kept.list_sessions(app_name="app", user_id="bob")
        others = [(each.id, each.state, each.events) for each in listed.sessions]
        told.append([again.state, again.events, again.last_update_time, recent.events, others])
    assert told[0] == told[1] == told[2]


async def test_tenants(store: EventStore) -> None:
    """The same session of two tenants is two sessions, with a state of their own."""
    ours, theirs = [
        EventStoreSessionService(store.for_owner(tenant_id=each)) for each in ("ours", "theirs")
    ]
    await ours.create_session(**ADA, session_id="s", state={"app:a": 1})

    assert await theirs.get_session(**ADA, session_id="s") is None
    assert (await theirs.list_sessions(app_name="app")).sessions == []
    assert (await theirs.create_session(**ADA, session_id="s")).state == {}


async def test_it_reads_as_a_recorded_conversation(
    store: EventStore, service: EventStoreSessionService
) -> None:
    """Timeline, tool audit, usage, errors, search and verification work on it."""
    session = await service.create_session(**ADA, session_id="s")
    call = types.Part.from_function_call(name="weather", args={"city": "Rome"})
    call.function_call.id = "c1"
    result = types.Part.from_function_response(name="weather", response={"result": "18 degrees"})
    result.function_response.id = "c1"
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=10, candidates_token_count=4, thoughts_token_count=2
    )
    thought = types.Part(text="Let me look.", thought=True)
    for event in (
        said("How warm is it?"),
        Event(
            author="clerk",
            content=types.Content(role="model", parts=[thought, call]),
            usage_metadata=usage,
        ),
        Event(author="clerk", content=types.Content(role="user", parts=[result])),
        said("It is 18 degrees.", "clerk"),
        Event(author="clerk", error_code="429", error_message="too many requests"),
    ):
        await service.append_event(session, event)

    views = Views(store)
    key = "app/ada/s"
    kinds = [each.kind for each in views.timeline(key) if each.kind != "own"]
    assert kinds == ["conversation", "user", "reasoning", "tool", "assistant", "error"]
    [audited] = views.tool_calls(conversation_id=key)
    assert (audited.name, audited.status) == ("weather", "success")
    [row] = views.usage(by="conversation", conversation_id=store.stream(key))
    assert (row.prompt_tokens, row.completion_tokens) == (10, 6)
    roles = [each["role"] for each in views.context(key, mode=None).messages]
    assert roles[:4] == ["user", "assistant", "tool", "assistant"]
    assert views.search("warm")
    assert store.verify(key).ok
    assert store.get(key).user_id == "ada"


async def test_a_session_in_memory(store: EventStore) -> None:
    """Read again, it is as fresh as a first read, whoever wrote or deleted meanwhile."""
    ours, theirs = EventStoreSessionService(store), EventStoreSessionService(store)
    session = await theirs.create_session(**ADA, session_id="s")
    for place in range(70):
        await theirs.append_event(session, said(f"{place}"))
        await theirs.append_event(session, changing(place=place))
        found = await read(ours)
        assert (found.events, found.state) == (session.events, session.state)
    found.events[0].author = "changed by a reader"
    assert (await read(ours)).events == session.events
    assert (await read(ours, num_recent_events=3)).events == session.events[-3:]
    since = session.events[100].timestamp
    assert (await read(ours, after_timestamp=since)).events == session.events[100:]

    await theirs.delete_session(**ADA, session_id="s")
    assert await ours.get_session(**ADA, session_id="s") is None
    session = await theirs.create_session(**ADA, session_id="s")
    await theirs.append_event(session, said("anew"))
    assert (await read(ours)).events == session.events
