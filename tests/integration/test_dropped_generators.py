"""Turns of generators that nobody closes, until Python's collector comes to them where it may.

A generator that a web framework had dropped was closed within another append of the same thread,
which then waited for itself, and all writers with it, until the lock timed out: for a minute.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from agent_eventstore import batching, journal
from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from eventstore import AsyncEventStore, EventStore
from eventstore import events as e
from eventstore.sql.append import AppendGroup
from tests.crash.stand_in import answer
from tests.products.provider import Provider


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Let the collector run when a test says so."""
    gc.disable()
    yield
    gc.enable()


def drop_a_turn(conversation: Conversation) -> None:
    """Leave a turn in the midst of its answer, where only the collector can find it."""

    def steps() -> Iterator[None]:
        with conversation.turn("hello") as turn, turn.llm_call(model="m") as call:
            for chunk in answer(["Hello", " there"]):
                call.feed(chunk)
                yield

    generator = steps()
    next(generator)
    cycle: list[Any] = [generator]
    cycle.append(cycle)


@pytest.mark.parametrize("same", [False, True], ids=["another", "the same"])
def test_closed_within_an_append(
    common: EventStore, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """What is closed within a transaction is recorded, and does not wait for its own thread."""
    left = Conversation.start(common)
    other = left if same else Conversation.start(common)
    drop_a_turn(left)
    saved, later, write = threading.Event(), batching.run_in_background, AppendGroup.write
    collections: list[Callable[[], int]] = [gc.collect]

    def collecting(group: AppendGroup, connection: Any, **options: Any) -> Any:
        while collections:
            collections.pop()()
        return write(group, connection, **options)

    def noted(work: Callable[[], None]) -> None:
        def do() -> None:
            work()
            saved.set()

        later(do)

    monkeypatch.setattr(AppendGroup, "write", collecting)
    monkeypatch.setattr(journal, "run_in_background", noted)
    other.switch_mode("agent")
    if same or common.engine.dialect.name == "sqlite":
        assert saved.wait(30)
    error, end = (
        event.data for event in common.read(left.id) if event.type in ("llm_error", "turn_end")
    )

    assert isinstance(error, e.LlmError)
    assert isinstance(end, e.TurnEnd)
    assert ("cancelled", "cancelled") == (error.kind, end.status)
    assert "agent" == other.mode


async def cancelled_request(conversation: AsyncConversation) -> asyncio.Task[None]:
    """Cancel a request while a piece of its answer is sent; whoever has its task has all of it."""
    model, sending = Provider("openai-chat-text").client(AsyncOpenAI), asyncio.Event()

    async def steps() -> AsyncIterator[Any]:
        async with conversation.turn("hello") as turn:
            asking = turn.client(model).chat.completions.create(model="m", messages=[], stream=True)
            async for chunk in await asking:
                yield chunk

    async def request() -> None:
        body = steps()  # which a response has as well
        async for _ in body:
            sending.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(request())
    await sending.wait()
    task.cancel()
    await asyncio.wait({task})
    return task


def test_of_a_cancelled_request(common: EventStore) -> None:
    """Its turn is closed by the collector: the recorder keeps nothing that keeps the generator."""

    async def main() -> None:
        conversation = await AsyncConversation.start(AsyncEventStore(common))
        before = asyncio.all_tasks()
        await cancelled_request(conversation)
        gc.collect()
        await asyncio.sleep(0)
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)
        assert ["llm_error", "turn_end"] == ends(common, conversation)

    asyncio.run(main())


def test_closed_with_the_event_loop(common: EventStore) -> None:
    """One that the collector has not come to is closed, and recorded, as the event loop ends."""

    async def main() -> tuple[AsyncConversation, object]:
        conversation = await AsyncConversation.start(AsyncEventStore(common))
        kept = await cancelled_request(conversation)
        assert [] == ends(common, conversation)
        return conversation, kept

    conversation, _ = asyncio.run(main())
    assert ["llm_error", "turn_end"] == ends(common, conversation)


def test_being_closed_as_the_event_loop_ends(common: EventStore) -> None:
    """The loop cancels whoever closes it; what was begun is recorded all the same."""

    async def main() -> AsyncConversation:
        conversation = await AsyncConversation.start(AsyncEventStore(common))
        await cancelled_request(conversation)
        gc.collect()
        await asyncio.sleep(0)
        return conversation

    conversation = asyncio.run(main())
    assert ["llm_error", "turn_end"] == ends(common, conversation)


def test_closed_after_the_store(recorded_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be written any more that is said, and whoever opens it next seals it."""

    async def main() -> tuple[AsyncConversation, object]:
        async with await AsyncEventStore.open(recorded_url, migrate=False) as store:
            conversation = await AsyncConversation.start(store)
            return conversation, await cancelled_request(conversation)

    with caplog.at_level(logging.ERROR):
        conversation, _ = asyncio.run(main())
    assert "closing of asynchronous generator" in caplog.text
    with EventStore.open(recorded_url, migrate=False) as store:
        assert [] == ends(store, conversation)
        recovery = Conversation.open(store, conversation.id, if_busy="take_over").recovery
        assert recovery
        sealed = [event.data.type for event in recovery.sealed]
        assert ["llm_error", "turn_end", "session_end"] == sealed


def ends(store: EventStore, conversation: AsyncConversation) -> list[str]:
    """Return which ends a conversation's log has."""
    types = [event.type for event in store.read(conversation.id)]
    return [each for each in types if each in ("llm_error", "turn_end")]
