"""A product of the OpenAI Agents SDK: its runner streams the Responses API and runs the tools."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from eventstore import EventStore
from eventstore import events as e
from tests.exhaustive import partly
from tests.products.harness import Scene, interrupted_everywhere, outcome
from tests.products.provider import FUNCTION_CALL, TWO_MESSAGES
from tests.unit.streams.recorded import fed, text_of

ANSWERS: list[Any] = [FUNCTION_CALL, TWO_MESSAGES]


@function_tool
def write_sql(sql: str) -> str:
    """Run a query."""
    return "3 rows"


async def product(scene: Scene) -> None:
    """Let the runner do it all, and show what the model says."""
    async with scene.conversation.turn("hello") as turn:
        client = turn.client(scene.provider.client(AsyncOpenAI))
        model = OpenAIResponsesModel(model="m", openai_client=client)
        agent = Agent(name="assistant", model=model, tools=[write_sql])
        result = Runner.run_streamed(agent, "hello", run_config=RunConfig(tracing_disabled=True))
        async for event in result.stream_events():
            if (
                event.type == "raw_response_event"
                and event.data.type == "response.output_text.delta"
            ):
                scene.shown.append(event.data.delta)


@pytest.mark.parametrize("every", partly([3, 1]))
def test_cancelled_at_every_await(store: EventStore, every: int) -> None:
    """Wherever the task is cancelled, the log has what was shown and done, and how it ended."""

    def check(scene: Scene, finished: bool) -> None:
        if finished:
            events = [event.data for event in store.read(scene.conversation.id)]
            [result] = [data for data in events if isinstance(data, e.ToolResult)]
            assert ("ok", "success") == (outcome(scene), result.status)
            assert text_of(fed(TWO_MESSAGES)) == "".join(scene.shown)
            assert 2 == len(scene.provider.asked)

    assert interrupted_everywhere(store, ANSWERS, product, check, every) > 5
