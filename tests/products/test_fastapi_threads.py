"""A product of FastAPI whose answer is a plain generator: each of its steps runs in some thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi import Body, FastAPI
from fastapi.responses import StreamingResponse
from openai import OpenAI

from agent_eventstore.clients import UnrecordedCall, record
from agent_eventstore.conversation import Conversation
from eventstore import AsyncEventStore, EventStore
from eventstore import events as e
from tests.exhaustive import partly
from tests.integration.replay_server import ReplayServer, Streamed
from tests.products.asgi import chat, served
from tests.products.harness import (
    Scene,
    assert_truth,
    begin,
    interrupted_everywhere,
    left_everywhere,
    outcome,
    watched,
)
from tests.products.provider import said_in

TOOL, TEXT = "openai-chat-groq-tool-call", "openai-chat-azure-router"
ANSWERS: list[Any] = [TOOL, TEXT]


def answer(conversation: Conversation, model: OpenAI, said: str, bind: bool) -> Iterator[str]:
    """Show the answer piece by piece, run the tools, and ask again."""
    messages: list[Any] = [{"role": "user", "content": said}]
    with conversation.turn(said) as turn:
        client = turn.client(model) if bind else model
        for _ in range(2):
            for chunk in client.chat.completions.create(model="m", messages=messages, stream=True):
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content
            assert turn.last_call
            for wanted in turn.last_call.tool_calls:
                yield f"[{wanted.name}]"
                with turn.tool(wanted) as tool:
                    tool.result("18 degrees")
                call = {"name": wanted.name, "arguments": wanted.arguments_text}
                asked = {"id": wanted.provider_id, "type": "function", "function": call}
                messages += [
                    {"role": "assistant", "tool_calls": [asked]},
                    {"role": "tool", "tool_call_id": wanted.provider_id, "content": "18 degrees"},
                ]


def app_of(conversation: Conversation, model: OpenAI, *, bind: bool = True) -> FastAPI:
    """Return the product."""
    app = FastAPI()

    @app.post("/chat")
    def chat(said: str = Body(embed=True)) -> StreamingResponse:
        return StreamingResponse(answer(conversation, model, said, bind), media_type="text/plain")

    return app


async def product(scene: Scene) -> None:
    """Answer a request, as the server does it."""
    await chat(app_of(scene.session, scene.provider.client(OpenAI)), scene)


def check(scene: Scene, finished: bool) -> None:
    """A run that came to its end is recorded whole."""
    if finished:
        assert "ok" == outcome(scene)
        assert said_in(TEXT) == "".join(scene.shown)


@pytest.mark.parametrize("every", partly([3, 1]))
def test_cancelled_at_every_await(store: EventStore, every: int) -> None:
    """Wherever the server gives the request up, what was shown is in the log, and how it ended."""
    assert interrupted_everywhere(store, ANSWERS, product, check, every) > 10


@pytest.mark.parametrize("spec", ["2.3", "2.4"])
def test_client_that_leaves_after_every_piece(store: EventStore, spec: str) -> None:
    """However much of the answer a client has taken, the rest is cancelled, and that is told."""
    left_everywhere(store, ANSWERS, product, check, spec=spec)


def test_served(store: EventStore, server: ReplayServer) -> None:
    """The product is recorded whole over HTTP, each step in one of the server's threads."""
    server.will(Streamed(TOOL), Streamed(TEXT))
    conversation = Conversation.start(store)
    with (
        OpenAI(base_url=server.url, api_key="test") as model,
        served(lambda: app_of(conversation, model)) as url,
    ):
        shown = httpx2.post(f"{url}/chat", json={"said": "hello"}, timeout=30).text
    types = [event.type for event in store.read(conversation.id)]

    assert f"[weather]{said_in(TEXT)}" == shown
    assert [*("llm_request", "assistant_message", "tool_call", "tool_result")] * 2 == [
        *(kind for kind in types if kind.startswith(("llm", "assistant_message", "tool"))),
        *("tool_call", "tool_result"),
    ]
    assert_truth(store, conversation.id, said_in(TEXT))


def test_client_that_goes_away(store: EventStore, server: ReplayServer) -> None:
    """A client that closes its connection in mid-answer: the turn ends, and has what was shown."""
    server.will(Streamed("openai-chat-text", "pause", after=40))
    conversation = Conversation.start(store)
    with (
        OpenAI(base_url=server.url, api_key="test") as model,
        served(lambda: app_of(conversation, model)) as url,
    ):
        shown = ""
        with httpx2.stream("POST", f"{url}/chat", json={"said": "hello"}, timeout=30) as response:
            for piece in response.iter_text():
                shown += piece
                if len(shown) > 20:
                    break
        server.released.set()
        end = watched(store, conversation.id, e.TurnEnd)
    [error] = [r.data for r in store.read(conversation.id) if isinstance(r.data, e.LlmError)]

    assert "cancelled" == end.status
    assert "cancelled" == error.kind
    assert_truth(store, conversation.id, shown)


def test_product_that_does_not_bind(store: EventStore) -> None:
    """A client that looks for its turn in the context loses it between two steps, and says so."""

    async def main() -> Scene:
        async with await AsyncEventStore.open(store.url, migrate=False) as own:
            scene = await begin(own, ANSWERS)
            model = record(scene.provider.client(OpenAI))
            await chat(app_of(scene.session, model, bind=False), scene)
            return scene

    with pytest.warns(UnrecordedCall, match="turn.client"):
        scene = asyncio.run(main())
    assert said_in(TEXT) == "".join(scene.shown)
