"""The recorder on an event loop: it blocks nobody, and a cancelled task leaves nothing open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.aio import AsyncConversation
from eventstore import AsyncEventStore, EventStore
from eventstore.threads import finish
from tests.crash.stand_in import answer

PATIENCE_S = 30.0


@pytest.fixture
def store(sqlite_url: str) -> Iterator[EventStore]:
    """Give a store on a file of the test's own."""
    with EventStore.open(sqlite_url, synchronous="NORMAL", pool_size=2) as found:
        yield found


def test_stalled_batch_is_written_by_the_loop(store: EventStore) -> None:
    """The loop's own timer writes what waits, without a thread."""

    async def main() -> UUID:
        conversation = await AsyncConversation.start(AsyncEventStore(store))
        async with conversation.turn("hello") as turn, turn.llm_call() as call:
            chunks = answer(["first", "second"])
            for _ in range(3):
                await call.feed(next(chunks))
            written = conversation.version
            async with asyncio.timeout(PATIENCE_S):
                while conversation.version == written:  # noqa: ASYNC110 - the timer tells nobody
                    await asyncio.sleep(0.01)
            for chunk in chunks:
                await call.feed(chunk)
        return conversation.id

    data = [e.data for e in store.read(asyncio.run(main())) if e.type == "assistant_chunk"]
    assert ["first", "second"] == [each.text for each in data]  # type: ignore[union-attr]


def test_loop_goes_on_while_the_store_is_busy(store: EventStore) -> None:
    """Another writer's lock holds up the task that records, and no other."""

    async def main() -> list[str]:
        twin, order = AsyncEventStore(store), list[str]()
        conversation = await AsyncConversation.start(twin)
        with store.writing():
            task = asyncio.create_task(recorded(conversation, order))
            for _ in range(20):
                await asyncio.sleep(0)
            order.append("others")
        await task
        return order

    async def recorded(conversation: AsyncConversation, order: list[str]) -> None:
        async with conversation.turn("hello"):
            order.append("recorder")

    assert ["others", "recorder"] == asyncio.run(main())


@pytest.mark.parametrize("again", [False, True], ids=["once", "and again"])
def test_cancelled_task_records_its_end(store: EventStore, again: bool) -> None:
    """Cancelled in mid-stream, even while it writes that down, it leaves nothing open."""

    async def stream(conversation: AsyncConversation, begun: asyncio.Event) -> None:
        async with conversation, conversation.turn("hello") as turn, turn.llm_call() as call:
            for chunk in answer(["first", "second"], finish=False):
                await call.feed(chunk)
            begun.set()
            await asyncio.Event().wait()

    async def main() -> UUID:
        conversation = await AsyncConversation.start(AsyncEventStore(store))
        begun = asyncio.Event()
        task = asyncio.create_task(stream(conversation, begun))
        await begun.wait()
        task.cancel()
        if again:
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return conversation.id

    events = list(store.read(asyncio.run(main())))
    assert ["llm_error", "turn_end", "session_end"] == [event.type for event in events[-3:]]
    error: Any = events[-3].data
    assert ("cancelled", "firstsecond") == (error.kind, error.partial_text)
    end: Any = events[-2].data
    assert ("cancelled", None) == (end.status, end.reason)


def test_cancelled_task_does_not_run_ahead_of_its_record(store: EventStore) -> None:
    """However often it is cancelled, it leaves its blocks only once that is written."""

    async def stream(conversation: AsyncConversation, begun: asyncio.Event) -> None:
        async with conversation, conversation.turn("hello"):
            begun.set()
            await asyncio.Event().wait()

    async def main() -> UUID:
        conversation = await AsyncConversation.start(AsyncEventStore(store))
        begun = asyncio.Event()
        task = asyncio.create_task(stream(conversation, begun))
        await begun.wait()
        with store.writing():
            for _ in range(10):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done()
        with pytest.raises(asyncio.CancelledError):
            await task
        return conversation.id

    types = [event.type for event in store.read(asyncio.run(main()))]
    assert ["turn_end", "session_end"] == types[-2:]


def test_cancelled_result_is_still_recorded(store: EventStore) -> None:
    """A task that is cancelled while its tool's result is written has written it."""

    async def use(conversation: AsyncConversation, begun: asyncio.Event) -> None:
        async with conversation.turn("hello") as turn:
            async with turn.llm_call() as call:
                for chunk in answer((), [("save", {})]):
                    await call.feed(chunk)
            async with turn.tool(call.tool_calls[0]) as tool:
                begun.set()
                await tool.result("saved")

    async def main() -> UUID:
        conversation = await AsyncConversation.start(AsyncEventStore(store))
        begun = asyncio.Event()
        task = asyncio.create_task(use(conversation, begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return conversation.id

    results = [e.data for e in store.read(asyncio.run(main())) if e.type == "tool_result"]
    assert ["success"] == [each.status for each in results]  # type: ignore[union-attr]


def test_finish_passes_errors_on() -> None:
    """Without a cancellation it is as if the work were awaited."""

    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(finish(fail()))
