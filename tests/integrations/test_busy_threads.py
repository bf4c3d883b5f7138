"""An event loop whose own threads are all busy, as with a product's tools, holds up no writing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from google.adk.events import Event
from langgraph.checkpoint.base import empty_checkpoint
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelRequest, UserPromptPart

from agent_eventstore import AsyncConversation, AsyncEventStore, AsyncViews
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from agent_eventstore.integrations.langgraph.store import EventStoreStore
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations
from tests.crash.stand_in import answer

PATIENCE_S = 60.0


@contextmanager
def busy_threads() -> Iterator[None]:
    """Keep the threads of the running event loop busy."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as only:
        asyncio.get_running_loop().set_default_executor(only)
        working = only.submit(over.wait)
        try:
            yield
        finally:
            assert not working.done()
            over.set()


async def recorded(store: AsyncEventStore) -> Any:
    """Hold a turn with a stream and a tool, and read it."""
    conversation = await AsyncConversation.start(store)
    async with conversation, conversation.turn("hello") as turn:
        await turn.context(format="openai_chat", max_tokens=1_000)
        async with turn.llm_call(model="gpt-4o", provider="openai") as call:
            for chunk in answer(["Half"]):
                await call.feed(chunk)
    timeline = await AsyncViews(store).timeline(conversation.id)
    again = await AsyncConversation.open(store, conversation.id)
    await again.close()
    return [each.text for each in timeline if each.kind == "assistant"]


async def of_openai_agents(store: AsyncEventStore) -> Any:
    """Add an item, and read it."""
    session = EventStoreSession("s", store)
    await session.add_items([{"role": "user", "content": "Half"}])
    return [each["content"] for each in await session.get_items()]


async def of_langgraph(store: AsyncEventStore) -> Any:
    """Put a checkpoint, writes and an item, and read them."""
    saver, items = EventStoreSaver(store), EventStoreStore(store)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    named = await saver.aput(config, empty_checkpoint(), {}, {})
    await saver.aput_writes(named, [("said", "Half")], "task")
    await items.aput(("a",), "key", {"said": "Half"})
    found, item = await saver.aget_tuple(named), await items.aget(("a",), "key")
    assert found is not None
    assert item is not None
    assert item.value == {"said": "Half"}
    return [value for _, _, value in found.pending_writes or ()]


async def of_google_adk(store: AsyncEventStore) -> Any:
    """Append an event, and read it."""
    sessions = EventStoreSessionService(store)
    owned_by: Any = {"app_name": "app", "user_id": "ada"}
    session = await sessions.create_session(**owned_by, session_id="s")
    await sessions.append_event(session, Event(author="Half"))
    found = await sessions.get_session(**owned_by, session_id="s")
    return [each.author for each in found.events] if found else None


async def of_pydantic_ai(store: AsyncEventStore) -> Any:
    """Save a conversation, and load it."""
    conversations = EventStoreConversations(store)
    said = [ModelRequest(parts=[UserPromptPart("Half")])]
    await conversations.save(Conversation(conversation_id="c", messages=said))
    found = await conversations.load("c")
    return [each.parts[0].content for each in found.messages] if found else None


@pytest.mark.parametrize(
    "work", [recorded, of_openai_agents, of_langgraph, of_google_adk, of_pydantic_ai]
)
def test_nothing_waits_for_the_threads_of_a_product(
    database_url: str, work: Callable[[AsyncEventStore], Awaitable[Any]]
) -> None:
    """Opening, writing and reading go on while every thread of the event loop is taken."""

    async def run() -> Any:
        with busy_threads():
            async with asyncio.timeout(PATIENCE_S):
                async with await AsyncEventStore.open(database_url, synchronous="OFF") as store:
                    return await work(store)

    assert ["Half"] == asyncio.run(run())
