"""A product with a loop of its own around Anthropic's SDK, and tools that it runs."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore import events as e
from tests.integration.replay_server import ReplayServer, Streamed
from tests.products import anthropic_program
from tests.products.harness import Scene, interrupted_everywhere, outcome
from tests.products.provider import said_in
from tests.warm import Programs, programs

ANSWERS: list[Any] = ["anthropic-tool-no-args", "anthropic-text"]


async def loop(scene: Scene) -> None:
    """Ask, show, run the tools, and ask again until the model wants no more of them."""
    async with scene.conversation.turn("How is the weather?") as turn:
        client = turn.client(scene.provider.client(AsyncAnthropic))
        messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
        while True:
            async with client.messages.stream(
                model="claude-test", max_tokens=100, messages=messages
            ) as stream:
                async for text in stream.text_stream:
                    scene.shown.append(text)
                answer = await stream.get_final_message()
            assert turn.last_call
            if not turn.last_call.tool_calls:
                return
            results = []
            for wanted in turn.last_call.tool_calls:
                async with turn.tool(wanted) as tool:
                    await tool.result("done")
                results.append(
                    {"type": "tool_result", "tool_use_id": wanted.provider_id, "content": "done"}
                )
            messages += [
                {"role": "assistant", "content": answer.content},
                {"role": "user", "content": results},
            ]


def test_cancelled_at_every_await(store: EventStore) -> None:
    """Wherever the task is cancelled, the log has what was shown and done, and how it ended."""

    def check(scene: Scene, finished: bool) -> None:
        if finished:
            assert "ok" == outcome(scene)
            assert "".join(map(said_in, ANSWERS)) == "".join(scene.shown)

    assert interrupted_everywhere(store, ANSWERS, loop, check) > 30


@pytest.fixture
def servers() -> Iterator[Programs]:
    """Give what starts processes that have imported the SDK."""
    with programs("anthropic") as found:
        yield found


def test_process_that_is_told_to_stop(
    store: EventStore, server: ReplayServer, servers: Programs
) -> None:
    """What a program of its own had printed is in the log, and that it was told to stop."""
    server.will(Streamed("anthropic-text", "stall", after=5))
    conversation = Conversation.start(store)
    program = (str(anthropic_program.__file__), store.url, str(conversation.id), server.url)
    with servers.start(*program, stdout=subprocess.PIPE) as process:
        assert process.stdout
        shown = process.stdout.read(3)
        process.send_signal(signal.SIGINT)
        process.wait(30)
        server.released.set()
    [error] = [r.data for r in store.read(conversation.id) if isinstance(r.data, e.LlmError)]
    [end] = [r.data for r in store.read(conversation.id) if isinstance(r.data, e.TurnEnd)]

    assert "cancelled" == error.kind
    assert error.partial_text.startswith(shown)
    assert ("cancelled", None) == (end.status, end.reason)
    assert store.verify(conversation.id).ok
