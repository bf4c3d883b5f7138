"""The tools that interrupt: document 003's list of tests, and the order of what happens."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from agent_eventstore import EventStore, Scheduler
from eventstore.events import TaskEnd, TaskStart, ToolResult, TurnEnd
from tests.agents.scripted import Scripted, Wanted, reply


def told(store: EventStore, conversation_id: UUID) -> list[str]:
    """Return what a conversation's log has of tasks, turns and tools, in few words."""
    found = []
    for event in store.read(conversation_id):
        match event.data:
            case TurnEnd(status=status, reason=reason) | TaskEnd(status=status, reason=reason):
                found.append(" ".join(filter(None, (event.type, status, reason))))
            case TaskStart():
                found.append(event.type)
            case ToolResult(status=status):
                found.append(f"{event.type} {status}")
            case _ if event.type in ("turn_start", "task_enqueue", "tool_call"):
                found.append(event.type)
    return found


def result_in(store: EventStore, conversation_id: UUID) -> Any:
    """Return the payload of a conversation's only tool result."""
    events = store.read(conversation_id)
    (found,) = (event.data for event in events if isinstance(event.data, ToolResult))
    assert isinstance(found.content, str)
    return json.loads(found.content)


def test_a_new_conversation_answers_and_its_answer_is_the_result(store: EventStore) -> None:
    """TurnAborted(Replaced), the new conversation's task, and the one that brings its answer."""
    model = Scripted(
        reply("I ask.", Wanted("conv_create", user_instruction="How much is 6 x 7?")),
        "42",
        "It is 42.",
    )
    with Scheduler.create(store, model=model) as scheduler:
        result = scheduler.run_task("How much is 6 x 7? Ask somebody.")
        listed = scheduler.conversations()

    made = UUID(result_in(store, scheduler.root)["conversation_id"])
    assert ("complete", "It is 42.") == (result.status, result.last_assistant_message)
    assert {
        "conversation_id": str(made),
        "first_user_message": "How much is 6 x 7?",
        "last_assistant_message": "42",
    } == result_in(store, scheduler.root)
    assert [
        *("task_enqueue", "task_start", "turn_start", "tool_call", "turn_end aborted replaced"),
        *("task_end aborted replaced", "task_enqueue", "task_enqueue"),
        *("task_start", "task_end complete"),
        *("task_start", "turn_start", "tool_result success", "turn_end ok", "task_end complete"),
    ] == told(store, scheduler.root)
    assert ["turn_start", "turn_end ok"] == told(store, made)
    assert [str(scheduler.root), str(made)] == [each["id"] for each in listed]
