"""Google's ADK on the event store: a session for its runner, and the log's views on it."""

import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.genai import types

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.google_adk import EventStoreSessionService


class Scripted(BaseLlm):  # replaces a model, so that no key is needed
    async def generate_content_async(self, request, stream=False):
        part = types.Part.from_function_call(name="status", args={"order": "A-1"})
        if request.contents[-1].parts[-1].function_response:
            part = types.Part(text="It was shipped yesterday.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def status(order: str) -> str:
    """Tell where an order is."""
    return f"{order}: shipped yesterday"


store = EventStore.open(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///agent.db")
agent = LlmAgent(name="clerk", model=Scripted(model="scripted"), tools=[status])
sessions = EventStoreSessionService(store)
runner = Runner(app_name="shop", agent=agent, session_service=sessions, auto_create_session=True)
asyncio.run(runner.run_debug("Where is order A-1?", user_id="ada", session_id="1"))

for item in Views(store).timeline("shop/ada/1"):
    print(item.kind, item.status or "", item.text or "")
print("unchanged:", store.verify("shop/ada/1").ok)

# ruff: noqa: D101, D102, T201
