"""Pydantic AI on the event store: two turns, as if in two processes; no key is needed."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.test import TestModel

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.pydantic_ai import EventStoreConversations

agent = Agent(TestModel(), instructions="Be brief.")


@agent.tool_plain
def temperature(city: str) -> str:
    """Tell how warm it is."""
    return "18 degrees"


async def turn(url: str, said: str) -> None:
    """Load the conversation, run the agent, and save the new messages."""
    with EventStore.open(url) as store:
        conversations = EventStoreConversations(store)
        conversation = await conversations.load("ada-1")
        conversation = conversation or Conversation(conversation_id="ada-1")
        result = await agent.run(said, conversation=conversation)
        entries = await conversations.save(result)
        print(f"{len(entries)} new messages, {len(result.all_messages())} in total")
        for item in Views(store).timeline("ada-1"):
            print(f"  {item.kind}: {item.title or item.text or ''}".rstrip(": "))


if __name__ == "__main__":
    for said in ("How warm is it?", "And tomorrow?"):
        asyncio.run(turn(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///agent.db", said))

# ruff: noqa: T201
