"""Logs at the level DEBUG: what operators need, and never payloads or passwords."""

from __future__ import annotations

import asyncio
import logging

import pytest
from sqlalchemy import make_url

from agent_eventstore import Conversation
from agent_eventstore.recovery import recover
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent, events, new_id
from eventstore.errors import EventStoreError
from projections import Views, worker
from projections.errors import ProjectionFailed
from projections.upkeep import rebuild
from tests.contract.plain import PlainClient

SECRET = "hunter2-of-the-user"
STORY = (
    "store opened",
    "append",
    "catch_up",
    "caught up",
    "rebuild begun",
    "rebuild_page",
    "cut_over",
    "rebuild",
    "recovered",
    "set aside",
    "erase",
)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Take down all that the library tells."""
    for name in ("eventstore", "projections", "agent_eventstore"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


def record(store: EventStore) -> Conversation:
    """Record a turn with a model call and a tool call that nobody ends."""
    conversation = Conversation.start(store, title=SECRET, base_instructions=SECRET)
    turn = conversation.turn(SECRET)
    turn.__enter__()
    with turn.llm_call(model="m", prompt=[{"role": "user", "content": SECRET}]) as call:
        function = {"name": "search", "arguments": f'{{"q": "{SECRET}"}}'}
        wanted = [{"id": "1", "type": "function", "function": function}]
        message = {"role": "assistant", "content": SECRET, "tool_calls": wanted}
        call.response({"object": "chat.completion", "choices": [{"message": message}]})
    turn.tool(call.tool_calls[0]).__enter__()
    return conversation


def fail(store: EventStore) -> None:
    """Have appends refused in every way in which one can be."""
    cid, event = new_id(), NewEvent(events.UserMessage.text(SECRET), event_id=new_id())
    store.append(cid, [event])
    other = NewEvent(events.UserMessage.text(SECRET), event_id=new_id())
    for refused, expected in (([event, other], NO_STREAM), ([other], 7), ([other, event], 1)):
        with pytest.raises(EventStoreError):
            store.append(cid, refused, expected_version=expected)


async def fail_in_a_group(url: str) -> None:
    """Append beside each other what succeeds and what is refused."""
    async with await AsyncEventStore.open(url) as store:
        event = NewEvent(events.UserMessage.text(SECRET), event_id=new_id())
        cid = new_id()
        await store.append(cid, [event])
        tries = [store.append(cid, [NewEvent(event.data, event_id=event.event_id)]) for _ in "ab"]
        await asyncio.gather(
            *tries, store.append(cid, [event], expected_version=9), return_exceptions=True
        )


def break_one(store: EventStore, url: str) -> None:
    """Damage the payload of an event, so that a fold of it fails and quotes it."""
    cid = new_id()
    store.append(cid, [events.UserMessage.text(SECRET), events.UserMessage.text(SECRET * 9_000)])
    with PlainClient(url) as client:
        client.execute("UPDATE blobs SET content = substr(content, 1, 8)")
    with pytest.raises(ProjectionFailed):
        Views(store).timeline(cid)


def test_no_payload_is_logged(database_url: str, log: pytest.LogCaptureFixture) -> None:
    """From recording to erasure, with all that goes wrong, all is told but what was said."""
    with EventStore.open(database_url) as store:
        conversation = record(store)
        fail(store)
        asyncio.run(fail_in_a_group(database_url))
        Views(store).context(conversation.id, model="gpt-4o")
        recover(store, Views(store), conversation.id, take_over=True)
        break_one(store, database_url)
        worker.run(store, once=True)
        rebuild(store, skip_broken=True)
        store.erase(conversation.id, reason=SECRET)
    assert [] == [line for line in log.messages if SECRET in line]
    told = {name for name in STORY if any(f"event='{name}'" in line for line in log.messages)}
    assert set(STORY) == told


def test_no_password_is_logged(postgres_url: str, log: pytest.LogCaptureFixture) -> None:
    """Not the right one of a store that is used, and not a wrong one, in no error either."""
    password = make_url(postgres_url).password
    assert isinstance(password, str)
    with EventStore.open(postgres_url) as store:
        store.append(new_id(), [events.UserMessage.text("hello")])
        worker.run(store, once=True)
    wrong = make_url(postgres_url).set(password=SECRET)
    with pytest.raises(EventStoreError) as caught:
        EventStore.open(wrong)
    assert log.messages
    said = [*log.messages, str(caught.value)]
    assert [] == [line for line in said if SECRET in line or password in line]
