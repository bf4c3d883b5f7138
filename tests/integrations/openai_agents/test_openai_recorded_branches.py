"""Recorded runs on a branch of a session are events of that branch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.extensions.memory import AdvancedSQLiteSession
from agents.testing import ScriptedModel, assistant_message, function_call

from agent_eventstore.integrations.openai_agents.branching_session import BranchingSession
from agent_eventstore.integrations.openai_agents.recording import RecordedModel, RecordedRun
from eventstore import EventStore
from eventstore.events import AssistantMessage
from projections import Views
from tests.integrations.openai_agents.openai_samples import fresh_id


@pytest.fixture(autouse=True)
def no_tracing() -> None:
    """Have the SDK send nothing anywhere."""
    set_tracing_disabled(True)


@function_tool
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"sun in {city}"


async def ask(session: Any, *steps: Any) -> None:
    """Have a turn; it is recorded if the session is one of this project's."""
    model = RecordedModel(ScriptedModel([*steps]))
    agent = Agent(name="A", model=model, tools=[weather])
    if not isinstance(session, BranchingSession):
        await Runner.run(agent, "Hello.", session=session)
        return
    async with RecordedRun(session) as run:
        await Runner.run(agent, "Hello.", session=session, hooks=run)


async def branched(session: Any) -> list[Any]:
    """Have two turns on ``main`` and one with a tool on a branch; return what both have."""
    for text in ("One.", "Two."):
        await ask(session, [assistant_message(text)])
    await session.create_branch_from_turn(2, "b")
    call = function_call("weather", {"city": "Rome"}, call_id="c1")
    await ask(session, [call], [assistant_message("Sun.")])
    return [await session.get_items(branch_id=name) for name in ("main", "b")]


def test_both_branches_keep_their_own(store: EventStore) -> None:
    """What runs on a branch is no item of ``main``, as in the SDK's own session."""
    own = AdvancedSQLiteSession(session_id="own", create_tables=True)
    session = BranchingSession(fresh_id(), store)

    assert asyncio.run(branched(own)) == asyncio.run(branched(session))
    own.close()
    views, branch = Views(store), store.stream(f"{session.session_id}#b")
    [call] = views.tool_calls(conversation_id=branch)
    assert ("weather", "success") == (call.name, call.status)
    assert "Sun." not in str(views.context(session.session_id, mode=None).messages)


@pytest.mark.parametrize("cleared", [False, True])
def test_a_branch_that_was_deleted(store: EventStore, cleared: bool) -> None:
    """Nothing is recorded on it; if the session was cleared, the run is one of ``main``."""
    session = BranchingSession(fresh_id(), store)
    other = BranchingSession(session.session_id, store)

    async def told() -> list[Any]:
        await branched(session)
        if cleared:
            await other.clear_session()
            await ask(session, [assistant_message("Anew.")])
        else:
            await other.delete_branch("b")
            with pytest.raises(ValueError, match="'b' was deleted"):
                await ask(session, [assistant_message("Anew.")])
        return await other.get_items()

    items = asyncio.run(told())
    answers = [e for e in store.read(f"{session.session_id}#b") if e.type == AssistantMessage.type]
    assert 2 + 1 == len(answers)
    assert (2 if cleared else 4) == len(items)
    assert cleared == ("Anew." in str(items))
