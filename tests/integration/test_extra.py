"""What a product keeps with sessions, turns and conversations, through the recorder."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_eventstore import AsyncConversation, AsyncEventStore, Conversation, EventStore, Views
from eventstore.errors import InvalidEvent

SESSION, TURN = {"device": "phone", "n": 1}, {"request": "r-1", "n": 2}


@pytest.fixture
def url(database_url: str) -> str:
    """Give a database with the schema."""
    EventStore.open(database_url).close()
    return database_url


def test_all_events_of_session_and_turn_keep_it(url: str) -> None:
    """Those of the turn with both, of which the turn's comes first; so does the timeline."""
    with EventStore.open(url) as store:
        with Conversation.start(store, extra=SESSION, metadata={"channel": "web"}) as conversation:
            with conversation.turn("hi", extra=TURN) as turn, turn.llm_call(model="m") as call:
                call.text("hello")
        found = {event.type: event.meta.extra for event in store.read(conversation.id)}
        both = {"device": "phone", "request": "r-1", "n": 2}
        assert [SESSION] * 3 == [
            found.pop(name) for name in ("conversation_start", "session_start", "session_end")
        ]
        assert {"turn_start", "user_message", "llm_request", "assistant_message"} <= found.keys()
        assert [both] * len(found) == [*found.values()]
        items = Views(store).timeline(conversation.id)
        assert {"user": both, "session": SESSION} == {
            item.kind: item.extra for item in items if item.kind in ("user", "session")
        }
        with Conversation.open(store, conversation.id, extra={"device": "desk"}) as again:
            again.set_metadata({"channel": "desk"})
        assert {"device": "desk"} == list(store.read(conversation.id))[-1].meta.extra
        (entry,) = Views(store).conversations()
        assert {"channel": "desk"} == entry.metadata


LARGE = {"a": "x" * 2_048}


def test_what_is_too_large_is_refused(url: str) -> None:
    """With the limit, ahead of anything else: nothing is written, and no number is used up."""
    with EventStore.open(url) as store:
        refused: list[Any] = [
            lambda: Conversation.start(store, extra=LARGE),
            lambda: Conversation.start(store, metadata={"a": "x" * 16_384}),
            lambda: Conversation.start(store, extra={"a": object()}),
            lambda: Conversation.start(store, extra=[1]),  # type: ignore[arg-type]
        ]
        with Conversation.start(store, extra={"b": "y" * 1_500}) as conversation:
            version = conversation.version
            refused += [
                lambda: conversation.turn("hi", extra=LARGE),
                lambda: conversation.turn("hi", extra={"a": "x" * 600}),
                lambda: conversation.set_metadata({"a": "x" * 16_384}),
                lambda: Conversation.open(store, conversation.id, extra=LARGE),
            ]
            limits = []
            for each in refused:
                with pytest.raises(InvalidEvent) as caught:
                    each()
                limits.append(caught.value.limit)
            small, large = "2,048 bytes", "16,384 bytes"
            assert [small, large, None, None, small, small, large, small] == limits
            assert version == conversation.version
            with conversation.turn("hi") as turn:
                assert 1 == turn.number
        assert 1 == len(Views(store).conversations())


def test_on_an_event_loop_too(url: str) -> None:
    """With the same names."""

    async def talk() -> Any:
        async with await AsyncEventStore.open(url) as store:
            start = AsyncConversation.start(store, extra=SESSION, metadata={"a": 1})
            async with await start as conversation:
                async with conversation.turn("hi", extra=TURN):
                    pass
                await conversation.set_metadata({"a": 2})
            found = {event.type: event.meta.extra async for event in store.read(conversation.id)}
            (entry,) = Views(store.store).conversations()
            return found["session_start"], found["user_message"], entry.metadata

    assert (SESSION, SESSION | TURN, {"a": 2}) == asyncio.run(talk())
