"""A chat product's backend: streams that resume, tools, edit, regenerate, stop, search, delete.

STORE=postgresql+psycopg://... uvicorn --app-dir examples chat_backend:app --workers 2
"""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Body, Depends, FastAPI, Header, HTTPException
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, StreamingResponse

from agent_eventstore import AsyncConversation, AsyncEventStore, AsyncViews, errors, events

PIECE_S = float(os.environ.get("PIECE_S", "0.03"))  # how slowly the stand-in for a model speaks
running: dict[UUID, asyncio.Task[None]] = {}  # the answers that this process is giving
locks: dict[UUID, asyncio.Lock] = {}


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Keep one store open for as long as the process lives; end answers before it is closed."""
    async with await AsyncEventStore.open(os.environ["STORE"]) as store:
        app.state.views = AsyncViews(store)
        yield
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)


app = FastAPI(lifespan=lifespan)


@app.exception_handler(errors.OwnerMismatch)
@app.exception_handler(errors.ConversationNotFound)
async def hidden(request, error):
    """Let nobody see that the conversation of somebody else exists."""
    return JSONResponse({"detail": "there is no such conversation"}, 404)


def views_of(x_user: Annotated[str, Header()]) -> AsyncViews:
    """Return the views and the store of who asks: your login goes here, in place of a header."""
    return app.state.views.for_owner(user_id=x_user)


Views = Annotated[AsyncViews, Depends(views_of)]
After, Given = Annotated[int, Body()], Annotated[str | None, Body()]


@app.get("/conversations")
async def conversations(views: Views, after: str | None = None, limit: int = 50):
    """Return a page of the sidebar."""
    page = await views.conversations(after=after, limit=min(limit, 100))
    return {"conversations": page.entries, "next": page.cursor}


@app.get("/search")
async def search(views: Views, q: str):
    """Return the messages of the user's own conversations in which words stand."""
    return await views.search(q)


@app.get("/usage")
async def usage(views: Views, since: datetime | None = None):
    """Return what the user has spent, by model."""
    return await views.usage(since=since)


@app.put("/conversations/{cid}", status_code=201)
async def begin(views: Views, cid: UUID):
    """Begin a conversation under an id that the browser made, so that a double click is one."""
    try:
        await (await AsyncConversation.start(views.store, conversation_id=cid)).close()
    except errors.ConversationExists:
        pass
    return {"id": cid}


@app.get("/conversations/{cid}")
async def timeline(views: Views, cid: UUID):
    """Return what the screen shows first, and the version to follow from."""
    items = await views.timeline(cid)
    return {"items": items, "version": max((item.end_version for item in items), default=0)}


@app.get("/conversations/{cid}/stream")
async def stream(
    views: Views, cid: UUID, after: int = 0, last_event_id: Annotated[int | None, Header()] = None
):
    """Send what changes, as it is committed by any worker; a browser resumes by itself."""
    await views.store.get(cid)

    async def sent():
        async for update in views.follow(cid, after=last_event_id or after, heartbeat_s=9):
            told = json.dumps(jsonable_encoder(update.changes))
            yield f"id: {update.version}\ndata: {told}\n\n" if update.changes else ": alive\n\n"

    return StreamingResponse(sent(), media_type="text/event-stream")


@app.post("/conversations/{cid}/messages", status_code=202)
async def say(views: Views, cid: UUID, text: Annotated[str, Body()], after: After):
    """Begin the answer to a message; ``after`` is the version that the screen has seen."""
    async with locks.setdefault(cid, asyncio.Lock()):
        await unchanged(views, cid, after)
        return await answer(await opened(views, cid), text)


@app.put("/conversations/{cid}/messages/{version}", status_code=202)
async def say_anew(views: Views, cid: UUID, version: int, after: After, text: Given = None):
    """Edit a message, and withdraw what came of it; without a text regenerate the answer."""
    async with locks.setdefault(cid, asyncio.Lock()):
        items = await unchanged(views, cid, after)
        said = [i for i in items if (i.version, i.kind) == (version, "user")]
        if not said or said[0].status == "withdrawn":
            raise HTTPException(404, "there is no such message")
        conversation = await opened(views, cid)
        gone = events.VersionRange(first=version, last=conversation.version)
        await conversation.append(events.Retraction(versions=(gone,), reason="said anew"))
        return await answer(conversation, text or said[0].text)


@app.post("/conversations/{cid}/stop", status_code=204)
async def stop(views: Views, cid: UUID):
    """End the answer, whichever worker gives it: who opens a conversation fences its writer."""
    await (await opened(views, cid)).close("stopped")


@app.delete("/conversations/{cid}", status_code=204)
async def delete(views: Views, cid: UUID):
    """Erase what was said, for good; that there was a conversation stays known."""
    async with await opened(views, cid) as conversation:
        await conversation.append(events.ConversationEnd(reason="destroyed"))
    await views.store.erase(cid, reason="the user deleted it")


async def unchanged(views: AsyncViews, cid: UUID, after: int):
    """Refuse what was sent twice, or from a screen that has missed something; return the items."""
    items = await views.timeline(cid)
    if any(item.version > after and item.kind == "user" for item in items):
        raise HTTPException(409, "something else was said meanwhile")
    return items


async def opened(views: AsyncViews, cid: UUID) -> AsyncConversation:
    """Open a conversation to write to it, and end the answer that is being given here, if any."""
    if task := running.get(cid):
        task.cancel()
        await asyncio.wait({task})
    return await AsyncConversation.open(views.store, cid, if_busy="take_over")


async def answer(conversation: AsyncConversation, text: str):
    """Begin the answer in a task that outlives the request; return once the message is durable."""
    said = asyncio.get_running_loop().create_future()
    task = running[conversation.id] = asyncio.create_task(converse(conversation, text, said))
    await asyncio.wait({task, said}, return_when="FIRST_COMPLETED")
    return {"version": said.result() if said.done() else await task}


async def converse(conversation: AsyncConversation, text: str, said: asyncio.Future[int]) -> None:
    """Have one turn: ask the model, run its tools, and ask again until it calls none."""
    async with conversation, conversation.turn(text) as turn:
        said.set_result(conversation.version)
        while turn.last_call is None or turn.last_call.tool_calls:
            request = await turn.context(max_tokens=8_000, model="gpt-4o")
            async with turn.llm_call(request, model="gpt-4o") as call:
                async for piece in model(request.messages):
                    await call.feed(piece)
            for wanted in call.tool_calls:
                async with turn.tool(wanted) as tool:
                    await tool.result(await pay(wanted.arguments["amount"], tool.idempotency_key))


async def pay(amount: int, key: str) -> str:
    """Do something in the world; yours asks a service that does it once for each key."""
    print("paid", key, flush=True)  # noqa: T201
    await asyncio.sleep(10 * PIECE_S)
    return f"{amount} paid"


async def model(messages: list[dict]):
    """Speak in place of a model, in the pieces of OpenAI's chat format."""
    last, finish = messages[-1], "stop"
    if last["role"] == "user" and last["content"].startswith("pay "):
        function = {"name": "pay", "arguments": json.dumps({"amount": int(last["content"][4:])})}
        wish = {"index": 0, "id": "call_1", "type": "function", "function": function}
        deltas, finish = [{"role": "assistant", "tool_calls": [wish]}], "tool_calls"
    else:
        deltas = [{"content": f"{word} "} for word in f"You said: {last['content']}".split()]
    for delta in [*deltas, {}]:
        await asyncio.sleep(PIECE_S)
        choice = {"index": 0, "delta": delta, "finish_reason": None if delta else finish}
        yield {"object": "chat.completion.chunk", "model": "gpt-4o", "choices": [choice]}
