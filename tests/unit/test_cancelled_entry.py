"""Blocks that are cancelled while their beginning is written: they never run, and the log says so.

Without that a tool that never ran would be told, for ever, as one that may have taken effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import anyio
import pytest

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from eventstore import Appended, AsyncEventStore, EventStore, new_id
from projections import Views
from tests.crash.stand_in import answer
from tests.gated_store import GatedStore, run_gated

Work = Coroutine[Any, Any, None]
Way = Callable[[GatedStore, Work, asyncio.Event], Awaitable[None]]

REST = 50
"""Rounds of the event loop that a wait may take; whoever spins takes thousands."""


@pytest.fixture
def store(sqlite_url: str) -> Iterator[GatedStore]:
    """Give a store whose commits can be held up."""
    with GatedStore.open(sqlite_url, synchronous="NORMAL", pool_size=2) as found:
        yield found


# Ways of cancelling


async def by_cancel(store: GatedStore, work: Work, reached: asyncio.Event) -> None:
    """Cancel the task."""
    task = asyncio.ensure_future(work)
    await reached.wait()
    task.cancel()
    store.arm()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 1 == task.cancelling()


async def by_many_cancels(store: GatedStore, work: Work, reached: asyncio.Event) -> None:
    """Cancel the task again and again; each counts."""
    task = asyncio.ensure_future(work)
    await reached.wait()
    for _ in range(20):
        task.cancel()
        await asyncio.sleep(0)
    store.arm()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 20 == task.cancelling()


async def by_timeout(store: GatedStore, work: Work, reached: asyncio.Event) -> None:
    """Let a time run out; whoever waits is told of a timeout, and is not cancelled."""
    hurry = asyncio.ensure_future(reached.wait())
    hurry.add_done_callback(lambda _: store.arm())
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            hurry.add_done_callback(lambda _: limit.reschedule(0.0))
            await work
    assert limit.expired()
    current = asyncio.current_task()
    assert current is not None
    assert 0 == current.cancelling()


async def by_wait_for(store: GatedStore, work: Work, reached: asyncio.Event) -> None:
    """Wait for a while only."""
    task = asyncio.ensure_future(work)
    await reached.wait()
    store.arm()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 0.001)


async def by_task_group(store: GatedStore, work: Work, reached: asyncio.Event) -> None:
    """Have a neighbour in a group of tasks fail."""

    async def fail() -> None:
        await reached.wait()
        store.arm()
        raise ZeroDivisionError

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            cancelled = group.create_task(work)
            group.create_task(fail())
    assert cancelled.cancelled()


async def by_scope(store: GatedStore, work: Work, reached: asyncio.Event) -> None:
    """Cancel the scope, as a web framework does when its client goes away."""
    async with anyio.create_task_group() as group:

        async def disconnect() -> None:
            await reached.wait()
            group.cancel_scope.cancel()
            store.arm()

        group.start_soon(disconnect)
        group.start_soon(lambda: work)


async def by_move_on(store: GatedStore, work: Work, reached: asyncio.Event) -> None:
    """Let the time of a scope run out."""
    hurry = asyncio.ensure_future(reached.wait())
    hurry.add_done_callback(lambda _: store.arm())
    with anyio.move_on_after(3600) as scope:
        hurry.add_done_callback(lambda _: setattr(scope, "deadline", 0.0))
        await work
    assert scope.cancelled_caught


WAYS: list[Way] = [
    *(by_cancel, by_many_cancels, by_timeout, by_wait_for, by_task_group, by_scope, by_move_on),
]


# Blocks


async def enter_turn(conversation: AsyncConversation, shut: Callable[[], object]) -> None:
    """Enter a turn."""
    shut()
    async with conversation.turn("hello"):
        raise AssertionError("the block ran")


async def enter_call(conversation: AsyncConversation, shut: Callable[[], object]) -> None:
    """Enter a model call."""
    async with conversation.turn("hello") as turn:
        shut()
        async with turn.llm_call():
            raise AssertionError("the block ran")


async def enter_tool(conversation: AsyncConversation, shut: Callable[[], object]) -> None:
    """Enter a tool call."""
    async with conversation.turn("hello") as turn:
        async with turn.llm_call() as call:
            for chunk in answer((), [("save", {})]):
                await call.feed(chunk)
        shut()
        async with turn.tool(call.tool_calls[0]):
            raise AssertionError("the block ran")


async def enter_step(conversation: AsyncConversation, shut: Callable[[], object]) -> None:
    """Enter a step of a run."""
    async with await conversation.start_run("report") as run:
        shut()
        async with run.step("write"):
            raise AssertionError("the block ran")


ENDS = {
    "turn": (enter_turn, ["turn_start", "user_message", "turn_end"], ("cancelled", None)),
    "call": (enter_call, ["llm_request", "llm_error", "turn_end"], ("cancelled", False)),
    "tool": (enter_tool, ["tool_call", "tool_result", "turn_end"], ("not_started", None)),
    "step": (enter_step, ["run_step_start", "run_step_end"], ("cancelled", None)),
}


def told(data: Any) -> tuple[Any, Any]:
    """Return what an end says of how it came about."""
    match data.type:
        case "turn_end":
            return data.status, data.reason
        case "llm_error":
            return data.kind, data.retryable
        case "tool_result":
            return data.status, data.duration_ms
    return data.status, None


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("block", ENDS)
def test_block_that_is_cancelled_at_its_entry(store: GatedStore, block: str, way: Way) -> None:
    """It never runs, which is written before the cancellation goes on; nobody spins meanwhile."""
    enter, kinds, expected = ENDS[block]

    async def main() -> UUID:
        twin = AsyncEventStore(store)
        conversation = await AsyncConversation.start(twin)
        reached = asyncio.Event()

        def shut() -> None:
            opening = store.shut()
            asyncio.ensure_future(opening.wait()).add_done_callback(lambda _: reached.set())

        await way(store, enter(conversation, shut), reached)
        return conversation.id

    conversation_id = run_gated(store, main())
    events = list(store.read(conversation_id))
    assert kinds == [event.type for event in events][-len(kinds) :]
    (end,) = [e.data for e in events if e.type == kinds[-2 if block in ("call", "tool") else -1]]
    assert expected == told(end)
    assert store.turns < REST
    assert 0 == open_count(store, conversation_id)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("block", ["turn", "call", "tool", "step"])
def test_block_that_is_interrupted_at_its_entry(sqlite_url: str, block: str, when: str) -> None:
    """Ctrl-C while the beginning is written: whether it was or not, the log says that it ended."""
    _, kinds, expected = ENDS[block]
    with Interrupted.open(sqlite_url, synchronous="NORMAL") as store:
        conversation_id = new_id()
        with suppress(KeyboardInterrupt):
            enter(store, Conversation.start(store, conversation_id=conversation_id), block, when)
        events = list(store.read(conversation_id))
        assert kinds == [event.type for event in events][-len(kinds) :]
        (end,) = [
            e.data for e in events if e.type == kinds[-2 if block in ("call", "tool") else -1]
        ]
        assert expected == told(end)
        assert 0 == open_count(store, conversation_id)


class Interrupted(EventStore):
    """A store in whose next append somebody presses Ctrl-C, before or after its commit."""

    at: str | None = None

    def append(self, *args: Any, **kwargs: Any) -> Appended:
        """Append, with an interruption."""
        at, self.at = self.at, None
        if at == "before":
            raise KeyboardInterrupt
        done = super().append(*args, **kwargs)
        if at == "after":
            raise KeyboardInterrupt
        return done


def enter(store: Interrupted, conversation: Conversation, block: str, when: str) -> None:
    """Enter a block whose beginning is interrupted."""
    if block == "step":
        with conversation.start_run("report") as run:
            store.at = when
            with run.step("write"):
                raise AssertionError("the block ran")
    if block == "turn":
        store.at = when
    with conversation.turn("hello") as turn:
        if block == "call":
            store.at = when
        with turn.llm_call() as call:
            for chunk in answer((), [("save", {})]):
                call.feed(chunk)
        store.at = when
        with turn.tool(call.tool_calls[0]):
            raise AssertionError("the block ran")


def open_count(store: EventStore, conversation_id: UUID) -> int:
    """Return how much recovery would have to end."""
    return Views(store).open_work(conversation_id).open_count
