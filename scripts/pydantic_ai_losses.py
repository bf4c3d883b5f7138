"""Kill runs of Pydantic AI with ``kill -9``, and print which messages the next process loads.

``python scripts/pydantic_ai_losses.py`` prints the table of docs/integrations.md. Each run is its
own process, forked from this one, with the framework's agent and tools; only the model is scripted.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from killed import chosen, die, until_killed, where
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.conversation_events import seal_streams
from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations
from agent_eventstore.integrations.pydantic_ai.saving import SavedRun, StreamedRun

PLACES = {
    "tool": "in one of two parallel tools",
    "second": "in the second step's tool",
    "stream": "in the stream of the answer",
    "approval": "while a tool waits for approval",
}
WAYS = {
    "end": "`save(result)` after the run",
    "live": "with `SavedRun`",
    "streamed": "with `StreamedRun`",
}


def _calls(messages: list[Any]) -> list[str]:
    """Return the tools that the model asks for next; none once it answers."""
    results = sum(isinstance(part, ToolReturnPart) for each in messages for part in each.parts)
    return {0: ["warm", "cold"], 2: ["last"]}.get(results, [])


def _answer(messages: list[Any], info: Any) -> ModelResponse:
    calls = [ToolCallPart(name, {}) for name in _calls(messages)]
    return ModelResponse(parts=calls or [TextPart("It is 18 degrees.")])


async def _stream(messages: list[Any], info: Any) -> AsyncIterator[Any]:
    calls = _calls(messages)
    if calls:
        yield {place: DeltaToolCall(name, "{}") for place, name in enumerate(calls)}
        return
    yield "It is "
    die("stream")
    yield "18 degrees."


def _agent(kept: EventStoreConversations, way: str) -> Agent[None, Any]:
    chosen = {"live": [SavedRun(kept)], "streamed": [StreamedRun(kept)]}
    capabilities: list[Any] = chosen.get(way, [])
    model = FunctionModel(_answer, stream_function=_stream)
    agent = Agent(model, output_type=[str, DeferredToolRequests], capabilities=capabilities)

    @agent.tool_plain
    def warm() -> str:
        return "18 degrees"

    @agent.tool_plain
    def cold() -> str:
        die("tool")
        return "-3 degrees"

    @agent.tool_plain(requires_approval=where() == "approval")
    def last() -> str:
        die("second")
        return "done"

    return agent


async def _run(way: str, url: str) -> None:
    with EventStore.open(url) as store:
        kept = EventStoreConversations(store)
        agent = _agent(kept, way)
        conversation = Conversation(conversation_id="c")
        async with agent.run_stream("How warm?", conversation=conversation) as result:
            async for _ in result.stream_output():
                pass
            die("approval")


async def _look(way: str, url: str) -> tuple[int, str, str, int, str]:
    """Return what the next process finds, and whether it can still answer the question."""
    with EventStore.open(url) as store:
        kept = EventStoreConversations(store)
        loaded = await kept.load("c")
        found = len(loaded.messages) if loaded else 0
        said = "yes" if loaded and Views(store).search("warm") else "no"
        audited = len(Views(store).tool_calls(conversation_id="c")) if loaded else 0
        if loaded is None:
            return found, said, "-", audited, "no"
        seal_streams(store, "c")
        timeline = Views(store).timeline("c")
        cut = [each for each in timeline if each.status == "interrupted"]
        arrived = next((f'"{each.text}"' for each in cut if each.kind == "assistant"), "-")
        waiting = loaded.deferred_tool_requests
        answers = waiting.build_results(approve_all=True) if waiting else None
        done = await _agent(kept, way).run(conversation=loaded, deferred_tool_results=answers)
        return found, said, arrived, audited, "yes" if done.output == "It is 18 degrees." else "no"


def main() -> None:
    """Print the table."""
    columns = ["killed", "saved", "messages loaded", "found by search", "text of the answer"]
    columns += ["calls in the audit"]
    print(f"| {' | '.join([*columns, 'continues to the answer'])} |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            (place, way, f"sqlite:///{Path(folder) / f'{place}-{way}.db'}")
            for place in chosen(PLACES)
            for way in WAYS
        ]
        for place, *run in runs:
            until_killed(place, _run, *run)
        for place, way, url in runs:
            found = asyncio.run(_look(way, url))
            print(f"| {PLACES[place]} | {WAYS[way]} | {' | '.join(map(str, found))} |")


if __name__ == "__main__":
    main()

# ruff: noqa: T201
