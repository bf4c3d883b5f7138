"""The work of a session grows with what is new or asked for, not with its square."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent_eventstore.integrations.openai_agents.branching_session import BranchingSession
from agent_eventstore.integrations.openai_agents.history import live_items
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import EventStore
from eventstore.events import ToolResult
from tests.growth.steps import assert_linear, steps_of
from tests.integrations.openai_agents.openai_samples import fresh_id, said, turns


def with_branches(store: EventStore, number: int) -> BranchingSession:
    """Return a session on ``main`` that has so many branches, which no object has read yet."""
    session = BranchingSession(fresh_id(), store)

    async def branched() -> None:
        await session.add_items([said("user 0")])
        for _ in range(number):
            await session.create_branch_from_turn(1)
            await session.switch_to_branch("main")

    asyncio.run(branched())
    return BranchingSession(session.session_id, store)


def test_usage_of_many_branches(sqlite_store: EventStore) -> None:
    """The names of the branches are read once, not once for each branch."""

    def work(number: int) -> Callable[[], object]:
        session = with_branches(sqlite_store, number)
        asyncio.run(session.add_items(turns(10 * number)))
        return lambda: session._usages(None)

    assert_linear(work, 10)


def test_a_branch_of_a_long_conversation(sqlite_store: EventStore) -> None:
    """Whether a branch exists is known without reading the conversation again."""

    def steps(length: int) -> int:
        session = with_branches(sqlite_store, 1)
        asyncio.run(session.add_items(turns(length)))
        [_, branch] = session._branches()
        return steps_of(lambda: session._switch(branch))

    steps(1)
    assert steps(2) == steps(200)


def with_placeholders(store: EventStore, number: int) -> EventStoreSession:
    """Return a session in which recovery answered each call before its real result came."""
    session = EventStoreSession(fresh_id(), store)
    calls = [
        {"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"}
        for n in range(number)
    ]
    asyncio.run(session.add_items([said("user 0"), *calls]))
    for status in ("outcome_unknown", "success"):
        results = [
            ToolResult(call_id=f"3.{n}", status=status, provider_id=f"c{n}", content=status)
            for n in range(number)
        ]
        store.append(session.session_id, results)
    return session


def test_many_placeholder_results(sqlite_store: EventStore) -> None:
    """A first read does not read the later events again for each placeholder."""

    def work(number: int) -> Callable[[], object]:
        session = with_placeholders(sqlite_store, number)
        return lambda: live_items(sqlite_store, session.id)

    assert_linear(work, 20)


def test_a_placeholder_before_a_cleared_result(store: EventStore) -> None:
    """It does not come back, although a reader skips the real result, which was cleared."""
    session = with_placeholders(store, 1)
    asyncio.run(session.add_items(turns(40)))
    before = asyncio.run(session.get_items())
    asyncio.run(session.clear_session())

    assert ["success"] == [each["output"] for each in before if "output" in each]
    assert [] == [each.item for each in live_items(store, session.id, 1)]
