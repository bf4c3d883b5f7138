"""One scheduler: an author drafts, a reviewer questions the author, and a lead runs both."""

import json
import sys

from agent_eventstore import EventStore, ModelRequest, Scheduler


def call(name, **arguments):
    """Return a message that calls a tool, as a model's client would return it."""
    wanted = [{"name": name, "arguments": arguments}]
    return {"role": "assistant", "content": None, "tool_calls": wanted}


def model(request: ModelRequest):
    """Replace a model: answer from what each conversation has been told so far."""
    said = [each["content"] for each in request.messages if each["role"] == "user"]
    answers = [json.loads(each["content"]) for each in request.messages if each["role"] == "tool"]
    if said[0].startswith("Review"):
        if not answers:
            return call("conv_send", conversation_id=said[0].split()[1], text="Why blue?")
        return f"Good: {answers[0]['last_assistant_message']}"
    if said[0] != "Have it painted.":
        return {"Draft it.": "A blue house.", "Why blue?": "The sky is blue, too."}[said[-1]]
    if not answers:
        return call("conv_create", user_instruction="Draft it.")
    if len(answers) == 1:
        author = answers[0]["conversation_id"]
        return call("conv_create", user_instruction=f"Review {author}", mcp_allowlist=[])
    return f"Done. The review: {answers[1]['last_assistant_message']}"


store = EventStore.open(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///agent.db")
with Scheduler.create(store, model=model) as scheduler:
    print(scheduler.run_task("Have it painted.").last_assistant_message)
    names = {each["id"]: name for each, name in zip(scheduler.conversations(), "LAR", strict=True)}
    for task in scheduler.views.tasks(scheduler.root):
        how = task.reason or task.status
        print(names[task.target_conversation_id], task.depth, how, task.closes_tool_name or "")

# ruff: noqa: T201
