"""Record one turn of an agent, and read it back: the messages, the tool calls, the hash chain."""

import sys

from agent_eventstore import Conversation, EventStore

ORDERS = {"A-1": "shipped yesterday"}  # the data that the agent's only tool reads
STATUS = {"name": "status", "arguments": '{"id": "A-1"}'}


def ask(messages):
    """Stand in for a model: return an answer in OpenAI's chat format."""
    message, finish = {"role": "assistant"}, "stop"
    if messages[-1]["role"] == "tool":
        message["content"] = f"It was {messages[-1]['content']}."
    else:
        tool_call = {"id": "call_1", "type": "function", "function": STATUS}
        message["tool_calls"], finish = [tool_call], "tool_calls"
    return {"object": "chat.completion", "choices": [{"message": message, "finish_reason": finish}]}


store = EventStore.open(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///agent.db")
with Conversation.start(store, user_id="ada", base_instructions="Be brief.") as conversation:
    with conversation.turn("Where is order A-1?") as turn:
        while turn.last_call is None or turn.last_call.tool_calls:
            request = turn.context(max_tokens=1_000, model="gpt-4o")
            with turn.llm_call(request) as call:
                call.response(ask(request.messages))
            for tool_call in call.tool_calls:
                with turn.tool(tool_call) as tool:  # after a crash in here: "outcome unknown"
                    tool.result(ORDERS[tool_call.arguments["id"]])

for message in conversation.views.context(conversation.id).messages:
    print(message)
for row in conversation.views.tool_calls(conversation_id=conversation.id):
    print(row.name, row.arguments, row.status, row.result_text)
print("unchanged:", store.verify(conversation.id).ok)

# ruff: noqa: T201
