"""A product of FastAPI with an event loop: a task for each chunk, and heartbeats in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import Body, FastAPI
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from eventstore import AsyncEventStore, EventStore
from eventstore import events as e
from tests.exhaustive import partly
from tests.integration.replay_server import ReplayServer, Streamed
from tests.products.asgi import chat, served
from tests.products.harness import (
    Scene,
    assert_truth,
    interrupted_everywhere,
    left_everywhere,
    outcome,
    watched,
)
from tests.products.provider import said_in

TOOL, TEXT = "openai-chat-groq-tool-call", "openai-chat-azure-router"
ANSWERS: list[Any] = [TOOL, TEXT]
HEARTBEAT = ": still here\n\n"


async def with_heartbeats(stream: Any, every_s: float) -> AsyncIterator[Any]:
    """Pass a stream on, and None whenever nothing has come for a while."""

    async def next_chunk() -> Any:
        return await anext(stream, None)

    step: asyncio.Task[Any] | None = None
    try:
        while True:
            step = step or asyncio.create_task(next_chunk())
            done, _ = await asyncio.wait({step}, timeout=every_s)
            if not done:
                yield None
                continue
            chunk, step = step.result(), None
            if chunk is None:
                return
            yield chunk
    finally:
        if step is not None:
            step.cancel()


async def answer(
    conversation: AsyncConversation, model: AsyncOpenAI, said: str, every_s: float
) -> AsyncIterator[str]:
    """Show the answer piece by piece, run the tools, and ask again."""
    messages: list[Any] = [{"role": "user", "content": said}]
    async with conversation.turn(said) as turn:
        client = turn.client(model)
        for _ in range(2):
            asking = client.chat.completions.create(model="m", messages=messages, stream=True)
            async for chunk in with_heartbeats(await asyncio.wait_for(asking, 30), every_s):
                if chunk is None:
                    yield HEARTBEAT
                elif chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content
            assert turn.last_call
            for wanted in turn.last_call.tool_calls:
                yield f"[{wanted.name}]"
                async with turn.tool(wanted) as tool:
                    await tool.result("18 degrees")
                call = {"name": wanted.name, "arguments": wanted.arguments_text}
                asked = {"id": wanted.provider_id, "type": "function", "function": call}
                messages += [
                    {"role": "assistant", "tool_calls": [asked]},
                    {"role": "tool", "tool_call_id": wanted.provider_id, "content": "18 degrees"},
                ]


def app_of(
    conversation: AsyncConversation, model: AsyncOpenAI, every_s: float = 30, **options: Any
) -> FastAPI:
    """Return the product."""
    app = FastAPI(**options)

    @app.post("/chat")
    async def chat(said: str = Body(embed=True)) -> StreamingResponse:
        steps = answer(conversation, model, said, every_s)
        return StreamingResponse(steps, media_type="text/plain")

    return app


async def product(scene: Scene) -> None:
    """Answer a request, as the server does it."""
    await chat(app_of(scene.conversation, scene.provider.client(AsyncOpenAI)), scene)


def check(scene: Scene, finished: bool) -> None:
    """A run that came to its end is recorded whole."""
    if finished:
        assert "ok" == outcome(scene)
        assert said_in(TEXT) == "".join(scene.shown)


@pytest.mark.parametrize("every", partly([3, 1]))
def test_cancelled_at_every_await(store: EventStore, every: int) -> None:
    """Wherever the server gives the request up, what was shown is in the log, and how it ended."""
    assert interrupted_everywhere(store, ANSWERS, product, check, every) > 20


@pytest.mark.parametrize("spec", ["2.3", "2.4"])
def test_client_that_leaves_after_every_piece(store: EventStore, spec: str) -> None:
    """However much of the answer a client has taken, the rest is cancelled, and that is told."""
    left_everywhere(store, ANSWERS, product, check, spec=spec)


def served_app(store: EventStore, session: Conversation, url: str, every_s: float) -> FastAPI:
    """Return the product with a store and a model of the event loop that serves it."""
    model = AsyncOpenAI(base_url=url, api_key="test")
    own = AsyncEventStore(store)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with model:
            yield

    return app_of(AsyncConversation(own, session._session), model, every_s, lifespan=lifespan)


def test_served(store: EventStore, server: ReplayServer) -> None:
    """The product is recorded whole over HTTP, each chunk in a task of its own."""
    server.will(Streamed(TOOL), Streamed(TEXT))
    session = Conversation.start(store)
    with served(lambda: served_app(store, session, server.url, 30)) as url:
        shown = httpx2.post(f"{url}/chat", json={"said": "hello"}, timeout=30).text
    messages = [r.data for r in store.read(session.id) if isinstance(r.data, e.AssistantMessage)]

    assert f"[weather]{said_in(TEXT)}" == shown
    assert 2 == len(messages)
    assert_truth(store, session.id, said_in(TEXT))


def test_client_that_goes_away(store: EventStore, server: ReplayServer) -> None:
    """A client that closes its connection between two heartbeats: the call is cancelled."""
    server.will(Streamed("openai-chat-text", "stall", after=40))
    session = Conversation.start(store)
    with served(lambda: served_app(store, session, server.url, 0.02)) as url:
        shown = ""
        with httpx2.stream("POST", f"{url}/chat", json={"said": "hello"}, timeout=30) as response:
            for piece in response.iter_text():
                shown += piece
                if HEARTBEAT in shown:
                    break
        end = watched(store, session.id, e.TurnEnd)
        server.released.set()
    [error] = [r.data for r in store.read(session.id) if isinstance(r.data, e.LlmError)]

    assert "cancelled" == end.status
    assert "cancelled" == error.kind
    assert shown.replace(HEARTBEAT, "") == error.partial_text
    assert_truth(store, session.id, error.partial_text)
