"""useChat of Vercel's AI SDK on the log: STORE=... uvicorn --app-dir examples ai_sdk_chat:app."""

import asyncio
import os

from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from agent_eventstore import AsyncConversation, AsyncEventStore, AsyncViews, EventStore
from agent_eventstore.integrations.ai_sdk import HEADERS, astream_turn

app, answers = FastAPI(), set()
views = AsyncViews(AsyncEventStore(EventStore.open(os.environ["STORE"])))


@app.get("/api/chat/{chat}/stream")
async def resume(chat: str, turn: int | None = None):
    """Stream the running answer from its beginning; useChat({resume: true}) requests it."""
    stream = await astream_turn(views, chat, turn)
    return StreamingResponse(stream, 200, HEADERS) if stream else Response(None, 204)


@app.post("/api/chat")
async def say(body: dict):
    """Begin an answer that outlives the request, and stream it as it is recorded."""
    begun = asyncio.get_running_loop().create_future()
    answers.add(asyncio.create_task(answer(body["id"], body["messages"][-1], begun)))
    return await resume(body["id"], await begun)


async def answer(chat: str, message: dict, begun: asyncio.Future):
    """Record a turn; an echo replaces the model."""
    said = "".join(part.get("text", "") for part in message["parts"])
    conversation = await AsyncConversation.start(views.store, key=chat, if_exists="open")
    async with conversation, conversation.turn(said) as turn, turn.llm_call() as call:
        begun.set_result(turn.number)
        for word in f"You said: {said}".split():
            await call.delta(f"{word} ")
