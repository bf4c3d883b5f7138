"""A turn of an agent: everything that happens is appended, everything that is read is a view."""

import sys

from eventstore import NO_STREAM, EventStore, events, new_id
from projections import Views

ORDERS = {"A-1": "shipped yesterday"}  # what the agent's one tool knows

store = EventStore.open(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///agent.db")
views, conversation = Views(store), new_id()

said = [events.SystemInstruction(text="Be brief."), events.UserMessage.text("Where is order A-1?")]
store.append(conversation, said, expected_version=NO_STREAM, user_id="ada")

arguments = {"order": "A-1"}  # a model would have answered this
wish = events.ToolCallRequest(name="status", arguments_text='{"order": "A-1"}', arguments=arguments)
asked = store.append(conversation, [events.AssistantMessage(tool_calls=(wish,))])
call_id = f"{asked.version}.0"
store.append(conversation, [events.ToolCall(call_id=call_id, name="status", arguments=arguments)])
found = ORDERS[arguments["order"]]  # a crash from here on leaves a trace: the call is recorded
store.append(conversation, [events.ToolResult(call_id=call_id, name="status", content=found)])
store.append(conversation, [events.AssistantMessage.of(f"It was {found}.", final=True)])

for message in views.context(conversation, max_tokens=1_000).messages:
    print(message)
for call in views.tool_calls(conversation_id=conversation):
    print(call.name, call.arguments, call.status, call.result_text)
print("unchanged:", store.verify(conversation).ok)

# ruff: noqa: T201
