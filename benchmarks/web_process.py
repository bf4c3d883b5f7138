"""A small web backend, measured from within; see `benchmarks.first_hour`.

Imports nothing of this project at first, so that its memory is that of any web process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

__all__ = ["CONVERSATIONS", "IMPORTED", "USED", "WEB"]

WEB, IMPORTED, USED = "a web process: FastAPI, uvicorn", "+ import", "+ the first request"
_PIECES = ("It is ", "18 degrees ", "and sunny.")
_MB = 1e6
CONVERSATIONS = 5


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096 / _MB


async def _model() -> AsyncIterator[str]:
    for piece in _PIECES:
        yield piece


async def _measured(url: str, turns: int) -> dict[str, Any]:
    import httpx
    import uvicorn  # noqa: F401 - part of a web process
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    memory = {WEB: _resident_mb()}
    from agent_eventstore import AsyncConversation, AsyncEventStore

    memory[IMPORTED] = _resident_mb()
    store = await AsyncEventStore.open(url)
    app, first = FastAPI(), list[float]()

    @app.post("/bare")  # type: ignore[untyped-decorator]
    async def bare(message: dict[str, str]) -> StreamingResponse:
        return StreamingResponse(_model(), media_type="text/plain")

    @app.post("/ours")  # type: ignore[untyped-decorator]
    async def ours(message: dict[str, str]) -> StreamingResponse:
        async def answer() -> AsyncIterator[str]:
            opening = AsyncConversation.start(store, key=message["chat"], if_exists="open")
            async with await opening as conversation:
                async with conversation.turn(message["text"]) as turn:
                    began = time.perf_counter()
                    request = await turn.context(max_tokens=8_000, model="gpt-4o")
                    first.append(time.perf_counter() - began)
                    async with turn.llm_call(request) as call:
                        async for piece in _model():
                            await call.delta(piece)
                            yield piece

        return StreamingResponse(answer(), media_type="text/plain")

    transport = httpx.ASGITransport(app)
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for number in range(turns + CONVERSATIONS):
            for name, taken in times.items():
                chat = f"chat-{number % CONVERSATIONS}"
                message = {"chat": chat, "text": "How is the weather today?"}
                before = time.process_time()
                done = await client.post(f"/{name}", json=message)
                taken.append(time.process_time() - before)
                assert done.text == "".join(_PIECES)
            if not number:
                memory[USED] = _resident_mb()
    await store.close()
    # The first turns begin the conversations.
    return {"memory": memory, "first_context": first[0]} | {
        name: taken[CONVERSATIONS:] for name, taken in times.items()
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measured(sys.argv[1], int(sys.argv[2])))))
