"""A chat product's backend: STORE=sqlite:///... uvicorn --app-dir examples chat_backend:app."""

import asyncio
import json
import os
from contextlib import asynccontextmanager, suppress
from typing import Annotated
from uuid import UUID
from weakref import WeakValueDictionary

from fastapi import Body, Depends, FastAPI, Header, HTTPException
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from agent_eventstore import AsyncConversation, AsyncEventStore, AsyncTurn, AsyncViews, errors

PIECE_S = float(os.environ.get("PIECE_S", "0.03"))  # how long the simulated model takes for a piece
running: dict[UUID, tuple[asyncio.Task[None], AsyncTurn]] = {}  # the answers of this process
locks: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()  # those in use


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Keep one store open while the process lives; end answers before closing it."""
    async with await AsyncEventStore.open(os.environ["STORE"]) as store:
        app.state.views = AsyncViews(store)
        yield
        for _, turn in running.values():
            turn.stop("the server is shutting down")
        await asyncio.gather(*(task for task, _ in running.values()), return_exceptions=True)


async def refused(request, error):
    """Say what is wrong with a request, but hide the existence of other users' conversations."""
    if isinstance(error, wrong):
        return JSONResponse({"detail": str(error)}, 400)
    return JSONResponse({"detail": "the conversation or message does not exist"}, 404)


wrong = (errors.InvalidCursor, errors.InvalidEvent)
hides = (errors.OwnerMismatch, errors.ConversationNotFound, errors.BranchRefused)
hides = (*hides, errors.ForkRefused)
app = FastAPI(lifespan=lifespan, exception_handlers=dict.fromkeys(wrong + hides, refused))


def views_of(x_user: Annotated[str, Header()]) -> AsyncViews:
    """Return the requesting user's views and store; replace the header by your login."""
    return app.state.views.for_owner(user_id=x_user)


Views = Annotated[AsyncViews, Depends(views_of)]


async def own(views: Views, cid: UUID, x_user: Annotated[str, Header()]) -> UUID:
    """Return a conversation's id, also if it is named by the id that this user's browser chose."""
    found = await views.store.find(key=f"{x_user}:{cid}")
    return found.conversation_id if found else cid


Cid = Annotated[UUID, Depends(own)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
Text = Annotated[str, Body()]
After = Annotated[Number, Body()]
Only = Annotated[Number, Body(embed=True)]
Seen = Annotated[Number, Header(alias="last-event-id")]


@app.get("/conversations")
async def conversations(views: Views, after: str | None = None, limit: Number = 50):
    """Return a page of the sidebar."""
    page = await views.conversations(after=after, limit=min(limit, 100))
    return {"conversations": page.entries, "next": page.cursor}


@app.get("/search")
async def search(views: Views, q: str):
    """Return the messages with these words in the user's own conversations."""
    return await views.search(q)


@app.get("/usage")
async def usage(views: Views):
    """Return the user's usage, by model."""
    return await views.usage()


@app.put("/conversations/{cid}", status_code=201)
async def begin(views: Views, cid: UUID, x_user: Annotated[str, Header()]):
    """Begin a conversation under the browser's own id, so that a double click creates only one.

    The id counts for this user alone: nobody learns from it which ids others have.
    """
    with suppress(errors.ConversationExists):
        await (await AsyncConversation.start(views.store, key=f"{x_user}:{cid}")).close()
    return {"id": await own(views, cid, x_user)}


@app.get("/conversations/{cid}")
async def timeline(views: Views, cid: Cid):
    """Return what the screen shows first, and the version from which to follow changes."""
    shown = {"items": await views.timeline(cid), "branches": await views.branches(cid)}
    return {**shown, "version": max((item.end_version for item in shown["items"]), default=0)}


@app.get("/conversations/{cid}/stream")
async def stream(views: Views, cid: Cid, after: Number = 0, seen: Seen = 0):
    """Stream changes as any worker commits them; a browser reconnects by itself."""
    await views.store.get(cid)

    async def sent():
        async for update in views.follow(cid, after=seen or after, heartbeat_s=9):
            told = json.dumps(jsonable_encoder(update.changes))
            yield f"id: {update.version}\ndata: {told}\n\n" if update.changes else ": alive\n\n"

    return StreamingResponse(sent(), media_type="text/event-stream")


@app.post("/conversations/{cid}/messages", status_code=202)
async def say(views: Views, cid: Cid, text: Text, after: After):
    """Begin the answer to a message; ``after`` is the last version that the screen has seen."""
    return await answer(views, cid, after, lambda conversation: conversation.turn(text))


@app.put("/conversations/{cid}/messages/{version}", status_code=202)
async def edit(views: Views, cid: Cid, version: Number, text: Text, after: After):
    """Edit a message; the old version remains as an alternative."""
    return await answer(views, cid, after, lambda conversation: conversation.edit(version, text))


@app.post("/conversations/{cid}/regenerate", status_code=202)
async def regenerate(views: Views, cid: Cid, after: Only):
    """Answer the last message again."""
    return await answer(views, cid, after, lambda conversation: conversation.regenerate())


@app.put("/conversations/{cid}/branch", status_code=204)
async def switch(views: Views, cid: Cid, version: Only):
    """Switch to an alternative: the arrows next to a message."""
    async with await opened(views, cid) as conversation:
        await conversation.switch_branch(version)


@app.post("/conversations/{cid}/fork", status_code=201)
async def fork(views: Views, cid: Cid, before: Only):
    """Continue from a message in a separate conversation."""
    async with await AsyncConversation.fork(views.store, cid, before=before) as conversation:
        return {"id": conversation.id}


@app.post("/conversations/{cid}/stop", status_code=204)
async def stop(views: Views, cid: Cid):
    """Stop the answer in any worker: opening a conversation fences its previous writer."""
    await (await opened(views, cid)).close("stopped")


@app.delete("/conversations/{cid}", status_code=204)
async def delete(views: Views, cid: Cid):
    """Erase the conversation's content for good; that it existed stays known."""
    await (await opened(views, cid)).close("deleted")
    await views.store.erase(cid, reason="the user deleted it")


async def opened(views: AsyncViews, cid: UUID) -> AsyncConversation:
    """Open a conversation for writing, and stop the answer that this process is giving, if any."""
    await views.store.get(cid)
    if found := running.get(cid):
        found[1].stop()
        await asyncio.wait({found[0]})
    return await AsyncConversation.open(views.store, cid, if_busy="take_over")


async def answer(views: AsyncViews, cid: UUID, after: int, turn_of):
    """Begin a turn in a task that outlives the request; reject what a screen sends twice."""
    async with locks.setdefault(cid, asyncio.Lock()):
        news = await views.timeline(cid, after=after)
        if any(item.version > after and item.kind in ("turn", "branch") for item in news):
            raise HTTPException(409, "another message was sent in the meantime")
        conversation = await opened(views, cid)
        turn, said = turn_of(conversation), asyncio.get_running_loop().create_future()
        task = asyncio.create_task(converse(conversation, turn, said))
        running[cid] = task, turn
        task.add_done_callback(lambda done: running[cid][0] is done and running.pop(cid))
        await asyncio.wait({task, said}, return_when="FIRST_COMPLETED")
        return {"version": said.result() if said.done() else await task}


async def converse(conversation: AsyncConversation, turn: AsyncTurn, said) -> None:
    """Run one turn: call the model, run its tools, and repeat until it calls none."""
    async with conversation, turn:
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
    """Have an external effect; your service must execute it once for each key."""
    print("paid", key, flush=True)  # noqa: T201
    await asyncio.sleep(10 * PIECE_S)
    return f"{amount} paid"


async def model(messages: list[dict]):
    """Replace a model: stream an answer in chunks of OpenAI's chat format."""
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
