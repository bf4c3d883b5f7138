"""The OpenAI Agents SDK on the log: a session for its runner, and the log's views on it."""

import asyncio
import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.openai_agents import EventStoreSession

set_tracing_disabled(True)  # otherwise the SDK sends traces to OpenAI
model = ScriptedModel(  # replaces a model, so that no key is needed
    [
        [function_call("status", {"order": "A-1"}, call_id="call_1")],
        [assistant_message("It was shipped yesterday.")],
        [assistant_message("With pleasure.")],
    ]
)


@function_tool
def status(order: str) -> str:
    """Tell where an order is."""
    return f"{order}: shipped yesterday"


store = EventStore.open(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///agent.db")
agent = Agent(name="Clerk", instructions="Be brief.", model=model, tools=[status])
session = EventStoreSession("ada-1", store, user_id="ada")
for said in ("Where is order A-1?", "Thank you."):
    print(asyncio.run(Runner.run(agent, said, session=session)).final_output)

for item in Views(store).timeline(session.id):
    print(item.kind, item.status, item.text or "")
print(len(asyncio.run(session.get_items())), "items; unchanged:", store.verify(session.id).ok)

# ruff: noqa: T201
