"""A LangGraph agent that asks before it acts, in an event store: ``python langgraph_saver.py``.

The second graph stands for another process: it continues where the first was interrupted.
"""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import Command, interrupt

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.langgraph import EventStoreSaver


def model(state: MessagesState) -> dict[str, Any]:
    """Request a tool call; replaces a chat model."""
    call = {"name": "refund", "args": {"order": 7}, "id": "c1"}
    return {"messages": [AIMessage("I refund it.", id="a1", tool_calls=[call])]}


def tool(state: MessagesState) -> dict[str, Any]:
    """Run the tool if the user agrees."""
    answer = "refunded" if interrupt("Refund order 7?") else "the user said no"
    return {"messages": [ToolMessage(answer, tool_call_id="c1", name="refund")]}


store = EventStore.open("sqlite:///agent.db")
builder = StateGraph(MessagesState).add_sequence([model, tool]).set_entry_point("model")
thread: Any = {"configurable": {"thread_id": "ada/orders"}}
asked = builder.compile(checkpointer=EventStoreSaver(store))
asked.invoke({"messages": [HumanMessage("My order 7 is broken.")]}, thread)
builder.compile(checkpointer=EventStoreSaver(store)).invoke(Command(resume=True), thread)
for call in Views(store).tool_calls(conversation_id="ada/orders"):
    print(call.name, call.arguments, call.status)  # noqa: T201
