"""Kill runs of the OpenAI Agents SDK with ``kill -9``, and print what each session still has.

``python scripts/openai_agents_kills.py`` prints the table of docs/integrations.md. Each run is its
own process, forked from this one, with the SDK's runner, tools and session; only the model is
scripted.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from killed import chosen, die, until_killed, where
from openai.types.responses import ResponseTextDeltaEvent

from agent_eventstore import EventStore
from agent_eventstore.integrations.openai_agents.recording import RecordedModel, RecordedRun
from agent_eventstore.integrations.openai_agents.session import EventStoreSession

PLACES = {
    "tool": "in the second of two parallel tools; the first has returned",
    "stream": 'in the stream of the answer, after "It is "',
    "approval": "while a tool waits for approval",
}
STORES = ("SQLiteSession", "EventStoreSession with RecordedRun")


def _delta(text: str) -> Any:
    return ResponseTextDeltaEvent(
        type="response.output_text.delta",
        item_id="msg_1",
        output_index=0,
        content_index=0,
        delta=text,
        logprobs=[],
        sequence_number=0,
    )


async def _broken(_: Any) -> AsyncIterator[Any]:
    yield _delta("It is ")
    die("stream")


def _steps(place: str) -> list[Any]:
    if place == "stream":
        return [ModelStep.stream(_broken)]
    calls = [function_call("book", {"city": city}, call_id=city) for city in ("Rome", "Oslo")]
    return [calls if place == "tool" else calls[:1], [assistant_message("Booked.")]]


def _agent(place: str, model: Any) -> Agent[Any]:
    @function_tool(needs_approval=place == "approval")
    async def book(city: str) -> str:
        """Book a hotel."""
        if city == "Oslo":
            await asyncio.sleep(0.3)  # the other one has returned by then
            die("tool")
        return f"booked in {city}"

    return Agent(name="Clerk", model=model, tools=[book])


def session_of(store: str, folder: str) -> Any:
    """Return a session of the given store."""
    if store == "SQLiteSession":
        return SQLiteSession("ada", f"{folder}/sdk.db")
    return EventStoreSession("ada", EventStore.open(f"sqlite:///{folder}/ours.db"))


async def run(store: str, folder: str) -> None:
    """Run the agent until it is killed."""
    set_tracing_disabled(True)
    place = where()
    session, model = session_of(store, folder), ScriptedModel(_steps(place))
    recorded = RecordedRun(session) if store == "EventStoreSession with RecordedRun" else None
    async with recorded or nullcontext():
        agent = _agent(place, RecordedModel(model))
        result = Runner.run_streamed(agent, "Book it.", session=session, hooks=recorded)
        async for _ in result.stream_events():
            pass
    die("approval")


async def left(store: str, folder: str) -> list[str]:
    """Return what a new process finds in the session, after recovery if it uses `RecordedRun`."""
    session = session_of(store, folder)
    if store == "EventStoreSession with RecordedRun":
        async with RecordedRun(session, if_busy="take_over"):
            pass
    return [_words(item) for item in await session.get_items()]


def _words(item: Any) -> str:
    if item.get("role"):
        said = item["content"]
        return f"{item['role']}: {said if isinstance(said, str) else said[0]['text']}"
    if item["type"] == "function_call":
        return f"call {item['call_id']}"
    told = str(item["output"])
    if len(told) > 30:  # text from recovery
        told = "never started" if "never started" in told else "outcome unknown"
    return f"result {item['call_id']}: {told}"


def table() -> str:
    """Kill a run at each place with each store, and return the table."""
    lines = ["| killed | " + " | ".join(STORES) + " |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        places = {
            (place, store): f"{folder}/{place}-{number}"
            for place in chosen(PLACES)
            for number, store in enumerate(STORES)
        }
        for (place, store), found in places.items():
            Path(found).mkdir()
            until_killed(place, run, store, found)
        for place, words in chosen(PLACES).items():
            kept = [asyncio.run(left(store, places[place, store])) for store in STORES]
            cells = ["; ".join(each) or "nothing" for each in kept]
            lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    set_tracing_disabled(True)
    sys.stdout.write(table() + "\n")
