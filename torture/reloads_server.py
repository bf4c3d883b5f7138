"""The product of the scenario `reloads`: a chat behind uvicorn that streams from the request.

Run as ``python -m torture.reloads_server URL SOCKET`` with the database and the
listening socket's number. Each answer is a generator that the server drops when its client leaves.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncTurn
from eventstore import AsyncEventStore, EventStore
from eventstore.errors import ConversationInUse, EventStoreError
from torture.plan import TENANT

__all__ = ["PIECES", "application"]

PIECES = 8
_PAUSE_S = 0.02
_TOOL_S = 0.1
_WAIT_S = 10.0
_CALL = {"id": "c", "name": "look", "arguments": "{}"}


def application(store: AsyncEventStore) -> Starlette:
    """Return the application: ``POST /async``, ``/sync``, ``/tools`` and ``/sse``."""

    async def post(request: Request) -> Response:
        body = await request.json()
        kind = request.url.path.strip("/")
        try:
            if kind == "sync":
                return await run_in_threadpool(_sync_answer, store.store, body)
            conversation = await AsyncConversation.start(store, **_options(body))
            turn = conversation.turn(body["said"], message_id=body["id"])
            try:
                await turn.begin()
            except BaseException as error:
                await conversation.__aexit__(type(error), error, None)
                raise
        except ConversationInUse as error:
            return PlainTextResponse(str(error), 409)
        except EventStoreError as error:
            return PlainTextResponse(str(error), 503)
        media = "text/event-stream" if kind == "sse" else "text/plain"
        return StreamingResponse(_answer(conversation, turn, kind), media_type=media)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with store:
            yield

    names = ("async", "sync", "tools", "sse")
    routes = [Route(f"/{name}", post, methods=["POST"]) for name in names]
    return Starlette(routes=routes, lifespan=lifespan)


def _options(body: dict[str, Any]) -> Any:
    return {
        "tenant_id": TENANT,
        "key": body["user"],
        "if_exists": "open",
        "if_busy": "wait",
        "wait_s": _WAIT_S,
    }


async def _answer(
    conversation: AsyncConversation, turn: AsyncTurn, kind: str
) -> AsyncIterator[str]:
    async with conversation, turn:
        if turn.outcome is not None:
            yield f"{turn.outcome.text}[again]"
            return
        if kind == "tools":
            async with turn.llm_call(provider="acme", model="m") as call:
                await call.message("", tool_calls=[_CALL])
            for wanted in call.tool_calls:
                async with turn.tool(wanted) as tool:
                    await asyncio.sleep(_TOOL_S)
                    await tool.result("found")
        async with turn.llm_call(provider="acme", model="m") as call:
            for number in range(PIECES):
                await call.delta(f"w{number} ")
                yield f"data: w{number} \n\n" if kind == "sse" else f"w{number} "
                await asyncio.sleep(_PAUSE_S)
    yield "[done]"


def _sync_answer(store: EventStore, body: dict[str, Any]) -> Response:
    conversation = Conversation.start(store, **_options(body))
    turn = conversation.turn(body["said"], message_id=body["id"])
    try:
        turn.begin()
    except BaseException as error:
        conversation.__exit__(type(error), error, None)
        raise
    return StreamingResponse(_sync_pieces(conversation, turn), media_type="text/plain")


def _sync_pieces(conversation: Conversation, turn: Turn) -> Iterator[str]:
    with conversation, turn:
        if turn.outcome is not None:
            yield f"{turn.outcome.text}[again]"
            return
        with turn.llm_call(provider="acme", model="m") as call:
            for number in range(PIECES):
                call.delta(f"w{number} ")
                yield f"w{number} "
                time.sleep(_PAUSE_S)
    yield "[done]"


def main(url: str, number: int) -> None:
    """Serve until the process is asked to end."""
    logging.basicConfig(level=logging.ERROR)
    store = asyncio.run(AsyncEventStore.open(url, pool_size=10))
    config = uvicorn.Config(application(store), log_level="error", timeout_graceful_shutdown=20)
    with socket.socket(fileno=number) as listening:
        uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
