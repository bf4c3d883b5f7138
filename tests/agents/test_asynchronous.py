"""An agent's session in an event loop: the same loop, with models and tools that are awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from agent_eventstore import (
    AsyncAgentSession,
    AsyncEventStore,
    EventStore,
    ModelRequest,
    Views,
    errors,
)
from agent_eventstore.agents import TurnResult
from eventstore.events import LlmError, TurnEnd
from tests.agents.scripted import Scripted, Wanted, reply
from tests.integration.replay_server import ReplayServer, Spoken


async def fetch(url: str) -> str:
    """Fetch a page."""
    await asyncio.sleep(0)
    return f"the page {url}"


def test_models_and_tools_may_be_awaited(store: EventStore) -> None:
    """Tools that are coroutines run in the loop, and the listener is called there."""
    heard: list[str] = []

    async def talk() -> Any:
        loop = asyncio.get_running_loop()

        def listen(kind: str, text: str) -> None:
            assert asyncio.get_running_loop() is loop
            heard.append(kind)

        model = Scripted(reply("", Wanted("fetch", url="x")), "Done.")
        async with await AsyncAgentSession.create(
            store, model=model, tools=[fetch], listener=listen
        ) as session:
            return await session.run_turn("Fetch x.")

    result = asyncio.run(talk())

    assert ("Done.", "the page x") == (result.final_text, result.steps[0].observation)
    assert ["call", "result"] == [kind for kind in heard if kind in ("call", "result")]


def test_an_asynchronous_client_is_streamed(database_url: str) -> None:
    """One of OpenAI's, on a store for event loops, and opened again."""

    async def talk(url: str) -> list[str | None]:
        async with (
            await AsyncEventStore.open(database_url) as store,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client,
        ):
            async with await AsyncAgentSession.create(store, model=client) as first:
                one = await first.run_turn("One?")
            async with await AsyncAgentSession.open(store, first.id, model=client) as second:
                two = await second.run_turn("Two?")
                assert await second.go_on() is None
            return [one.final_text, two.final_text]

    with ReplayServer() as server:
        server.will(Spoken("It is one."), Spoken("It is two."))
        assert ["It is one.", "It is two."] == asyncio.run(talk(server.url))


def test_a_task_that_is_cancelled_stops_its_turn(store: EventStore) -> None:
    """What was said is kept, and the next turn goes on."""

    async def talk() -> AsyncAgentSession:
        said = asyncio.Event()

        async def endless() -> AsyncIterator[str]:
            yield "It is "
            said.set()
            await asyncio.Event().wait()

        def model(request: ModelRequest) -> Any:
            return endless() if not said.is_set() else "Again."

        async with await AsyncAgentSession.create(store, model=model) as session:
            task = asyncio.create_task(session.run_turn("How is it?"))
            await said.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            result = await session.go_on()
            assert result is not None
            assert "Again." == result.final_text
            return session

    session = asyncio.run(talk())

    events = list(store.read(session.id))
    assert ["It is "] == [e.data.partial_text for e in events if isinstance(e.data, LlmError)]
    assert ["cancelled", "ok"] == [e.data.status for e in events if isinstance(e.data, TurnEnd)]


def test_calls_after_a_tool_that_is_cancelled_have_not_run(store: EventStore) -> None:
    """The one that ran may have had its effect; the model is told the truth of each."""

    async def talk() -> list[str | None]:
        began = asyncio.Event()

        async def wait() -> None:
            began.set()
            await asyncio.Event().wait()

        model = Scripted(reply("", Wanted("wait"), Wanted("wait")))
        async with await AsyncAgentSession.create(store, model=model, tools=[wait]) as session:
            task = asyncio.create_task(session.run_turn("Go."))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            rows = Views(store).tool_calls(conversation_id=session.id)
            return [row.status for row in sorted(rows, key=lambda row: row.call_id)]

    assert ["outcome_unknown", "skipped"] == asyncio.run(talk())


def test_a_stream_is_closed_by_a_cancellation_between_its_pieces(database_url: str) -> None:
    """The model would go on talking, to nobody, as long as anything holds the stream."""
    recording, go_on = threading.Event(), threading.Event()

    def redact(path: tuple[str | int, ...], value: Any) -> Any:
        if value == "It is\n":
            recording.set()
            go_on.wait()
        return value

    class Endless:
        def __init__(self) -> None:
            self.closed = asyncio.Event()

        async def __anext__(self) -> str:
            return "It is\n"

        async def close(self) -> None:
            self.closed.set()

    async def talk(store: EventStore) -> None:
        stream = Endless()
        async with await AsyncAgentSession.create(store, model=lambda request: stream) as session:
            task = asyncio.create_task(session.run_turn("How is it?"))
            await asyncio.to_thread(recording.wait)
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(stream.closed.wait(), 10)

    with EventStore.open(database_url, redact=redact) as store:
        asyncio.run(talk(store))


def test_a_task_that_is_cancelled_twice_waits_for_its_turn(store: EventStore) -> None:
    """Its thread would otherwise go on writing after the session has been closed."""
    began, go_on = threading.Event(), threading.Event()

    def wait() -> str:
        """Wait."""
        began.set()
        go_on.wait()
        return "done"

    async def talk() -> AsyncAgentSession:
        model = Scripted(reply("", Wanted("wait")))
        async with await AsyncAgentSession.create(store, model=model, tools=[wait]) as session:
            task = asyncio.create_task(session.run_turn("Go."))
            await asyncio.to_thread(began.wait)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            left = task.done()
            go_on.set()
            assert not left
            with pytest.raises(asyncio.CancelledError):
                await task
            return session

    session = asyncio.run(talk())

    ended = [e.data.status for e in store.read(session.id) if isinstance(e.data, TurnEnd)]
    assert ["cancelled"] == ended


def test_cancelling_a_refused_turn_leaves_the_running_one_alone(store: EventStore) -> None:
    """A session takes one turn at a time; the first one can still be aborted too."""

    async def talk(abort: bool) -> Any:
        waiting, answered = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[str]:
            yield "It is "
            waiting.set()
            await answered.wait()
            yield "fine."

        async with await AsyncAgentSession.create(store, model=lambda request: slow()) as session:
            first = asyncio.create_task(session.run_turn("How is it?"))
            await waiting.wait()
            second = asyncio.create_task(session.run_turn("And now?"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            with pytest.raises(errors.TurnStillOpen):
                await session.run_turn("And now?")
            if abort:
                session._session.abort("interrupted")
            answered.set()
            return await first

    assert ("ok", "It is fine.") == _told(asyncio.run(talk(abort=False)))
    assert ("aborted", None) == _told(asyncio.run(talk(abort=True)))


def _told(result: TurnResult) -> tuple[str, str | None]:
    return result.status, result.final_text
