"""The SDK's own runner on `EventStoreSession`: what its SQLite session keeps is kept, and more."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIResponsesCompactionSession,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import session as sdk
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.usage import Usage

from agent_eventstore.integrations.openai_agents.recording import RecordedModel, RecordedRun
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import EventStore
from projections import Views
from tests.integrations.openai_agents.openai_samples import TURN, fresh_id, said, turns
from tests.products.harness import Interrupted

ROOT = Path(__file__).parents[3]
USAGE = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)


@pytest.fixture(autouse=True)
def no_tracing() -> None:
    """Have the SDK send nothing anywhere."""
    set_tracing_disabled(True)


@pytest.fixture
def session(store: EventStore) -> EventStoreSession:
    """Give a session of its own."""
    return EventStoreSession(fresh_id(), store)


def script() -> ScriptedModel:
    """Return a model that calls two tools at once, answers, and answers again."""
    calls = [function_call("weather", {"city": city}, call_id=city) for city in ("Rome", "Oslo")]
    answers = [[assistant_message("Sunny.", item_id="m1")], [assistant_message("Bye.")]]
    return ScriptedModel([calls, *answers], default_usage=USAGE)


@function_tool
async def weather(city: str) -> str:
    """Tell the weather; of Rome last."""
    for _ in range(20 if city == "Rome" else 0):
        await asyncio.sleep(0)
    return f"sun in {city}"


async def talk(session: Any, *, streamed: bool, recorded: bool) -> None:
    """Have two turns with an agent."""
    model = script()
    for text in ("How is the weather?", "Thanks."):
        run = RecordedRun(session) if recorded else None
        async with run or nullcontext():
            agent = Agent(name="A", model=RecordedModel(model), tools=[weather])
            if streamed:
                result = Runner.run_streamed(agent, text, session=session, hooks=run)
                async for _ in result.stream_events():
                    pass
            else:
                await Runner.run(agent, text, session=session, hooks=run)


ways = pytest.mark.parametrize(
    ("streamed", "recorded"), [(False, False), (True, False), (False, True), (True, True)]
)


@ways
def test_the_items_of_a_run(session: EventStoreSession, streamed: bool, recorded: bool) -> None:
    """They are those that the SDK's own session has, in the same order."""
    own = SQLiteSession("own")
    asyncio.run(talk(own, streamed=streamed, recorded=False))
    asyncio.run(talk(session, streamed=streamed, recorded=recorded))

    assert asyncio.run(own.get_items()) == asyncio.run(session.get_items())
    own.close()


@ways
def test_the_views_of_a_run(
    session: EventStoreSession, store: EventStore, streamed: bool, recorded: bool
) -> None:
    """Timeline, usage, tool audit, messages[] and verification are those of any conversation."""
    asyncio.run(talk(session, streamed=streamed, recorded=recorded))
    views = Views(store)

    spoken = [i.text for i in views.timeline(session.id) if i.kind in ("user", "assistant")]
    assert ["How is the weather?", "Sunny.", "Thanks.", "Bye."] == spoken
    rows = views.tool_calls(conversation_id=session.id)
    assert {("Rome", "success"), ("Oslo", "success")} == {
        (row.provider_id, row.status) for row in rows
    }
    [used] = views.usage(by="conversation", conversation_id=session.id)
    assert (30, 15) == (used.prompt_tokens, used.completion_tokens)
    roles = [m["role"] for m in views.context(session.id, mode=None).messages]
    assert ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"] == roles
    assert store.verify(session.id).ok


async def approved(session: Any, *, recorded: bool) -> None:
    """Have a tool approved, and go on."""

    @function_tool(needs_approval=True)
    async def book(city: str) -> str:
        """Book a hotel."""
        return f"booked in {city}"

    call = function_call("book", {"city": "Rome"}, call_id="c1")
    model, state = ScriptedModel([[call], [assistant_message("Done.")]]), None
    for _ in range(2):
        run = RecordedRun(session) if recorded else None
        async with run or nullcontext():
            agent = Agent(name="A", model=RecordedModel(model), tools=[book])
            result = await Runner.run(agent, state or "Book.", session=session, hooks=run)
            if result.interruptions:
                state = result.to_state()
                state.approve(result.interruptions[0])
    assert "Done." == result.final_output


@pytest.mark.parametrize("recorded", [False, True])
def test_an_approval(session: EventStoreSession, store: EventStore, recorded: bool) -> None:
    """A run that waits for somebody goes on where it was, in a process of later."""
    own = SQLiteSession("own")
    asyncio.run(approved(own, recorded=False))
    asyncio.run(approved(session, recorded=recorded))

    assert asyncio.run(own.get_items()) == asyncio.run(session.get_items())
    [row] = Views(store).tool_calls(conversation_id=session.id)
    assert "success" == row.status
    own.close()


def test_a_handoff(session: EventStoreSession, store: EventStore) -> None:
    """Who hands over to whom is told."""

    async def handed() -> None:
        async with RecordedRun(session) as run:
            other = Agent(name="B", model=RecordedModel(ScriptedModel([[assistant_message("B.")]])))
            call = function_call("transfer_to_b", {}, call_id="c1")
            agent = Agent(name="A", model=RecordedModel(ScriptedModel([[call]])), handoffs=[other])
            await Runner.run(agent, "Hello.", session=session, hooks=run)

    asyncio.run(handed())
    [told] = [e.data for e in store.read(session.id) if e.type == "openai_agents.handoff"]
    assert ("A", "B") == (getattr(told, "from_agent", 0), getattr(told, "to_agent", 0))


class Client:
    """Stands in for OpenAI's compaction."""

    def __init__(self) -> None:
        self.responses = self

    async def compact(self, **_: Any) -> Any:
        """Answer with one compaction item."""
        item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
        return SimpleNamespace(output=[item], usage=None)


of_a_part = pytest.mark.skipif(
    not hasattr(sdk, "_CompactionSnapshot"), reason="openai-agents 0.23 is the first to ask for it"
)


class TestCompaction:
    """The SDK's compaction works on top."""

    def test_of_all(self, session: EventStoreSession) -> None:
        """All items give way to the compaction, in one transaction."""
        compacting = OpenAIResponsesCompactionSession("x", session, client=Client())

        async def compacted() -> Any:
            await session.add_items(TURN)
            await compacting.run_compaction({"force": True, "compaction_mode": "input"})
            return await session.get_items()

        assert ["compaction"] == [item["type"] for item in asyncio.run(compacted())]

    def test_through_the_methods_of_a_subclass(self, store: EventStore) -> None:
        """A product that changes what is stored sees the compaction, too: nothing goes past it."""

        class Marking(EventStoreSession):
            async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
                marked = [{**item, "content": f"{item['content']}!"} for item in items]
                await super().add_items(marked, wrapper=wrapper)

        async def replaced() -> Any:
            session = Marking(fresh_id(), store)
            await session.add_items([said("a")])
            assert not await session._atomic_replace_items([said("b")])
            assert await session._get_compaction_snapshot(10) is None
            return [item["content"] for item in await session.get_items()]

        assert ["a!"] == asyncio.run(replaced())

    @of_a_part
    def test_of_the_newest(self, session: EventStoreSession) -> None:
        """A suffix gives way, and what stands before it stays."""

        async def replaced() -> Any:
            await session.add_items([*turns(2), *TURN])
            snapshot = await session._get_compaction_snapshot(len(TURN))
            assert (TURN, False) == (snapshot.items, snapshot.complete)
            assert await snapshot.replace_suffix(3, [said("short", "assistant")])
            return await session.get_items()

        assert [*turns(2), *TURN[:3], said("short", "assistant")] == asyncio.run(replaced())

    @of_a_part
    def test_of_nothing(self, session: EventStoreSession) -> None:
        """A snapshot of no items has none, and says that there are more."""

        async def none() -> Any:
            await session.add_items(TURN)
            snapshot = await session._get_compaction_snapshot(0)
            return snapshot.items, snapshot.complete

        assert ([], False) == asyncio.run(none())

    @of_a_part
    def test_of_what_has_changed(self, session: EventStoreSession) -> None:
        """Where somebody has added meanwhile, nothing is replaced."""

        async def refused() -> Any:
            await session.add_items(TURN)
            snapshot = await session._get_compaction_snapshot(100)
            assert snapshot.complete
            await session.add_items([said("more")])
            assert not await snapshot.replace_suffix(0, [])
            return await session.get_items()

        assert [*TURN, said("more")] == asyncio.run(refused())

    @of_a_part
    def test_with_what_is_outdated(self, session: EventStoreSession) -> None:
        """The oldest items may go along, as far as they are whole events."""

        async def pruned() -> Any:
            await session.add_items([*turns(2), *TURN])
            snapshot = await session._get_compaction_snapshot(
                1, prune_prefix=lambda item: "0" in str(item.get("content"))
            )
            assert await snapshot.replace_suffix(0, [said("short", "assistant")])
            return await session.get_items()

        kept = [*turns(2)[2:], *TURN[:-1], said("short", "assistant")]
        assert kept == asyncio.run(pruned())


def test_recorded_run_that_is_cancelled_at_each_await(session: EventStoreSession) -> None:
    """Also while it is entered, when its block cannot leave it: the next run is not refused."""

    async def run() -> None:
        async with RecordedRun(session) as recorded:
            async with recorded.turn.llm_call(provider="acme", model="m") as call:
                await call.message("", tool_calls=[{"id": "c", "name": "look", "arguments": "{}"}])
            recorded.answered(call)
            recorded._running["c"] = tool = recorded.turn.tool(call.tool_calls[0])
            await tool.__aenter__()
            raise LookupError

    async def go() -> None:
        at, awaits = 0, 1
        while awaits >= at:
            at += 1
            running = Interrupted(run(), at)
            task = asyncio.get_running_loop().create_task(running)
            await asyncio.wait({task})
            with suppress(asyncio.CancelledError, LookupError):
                task.result()
            awaits = running.awaits
            assert session.store.stream(session.session_id)
            assert session.store.writer(session.session_id) is None, at
            assert session._settling is None, at

    asyncio.run(go())
