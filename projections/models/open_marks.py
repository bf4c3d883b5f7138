"""The entries that the fold of open work keeps for everything that has begun, including tasks."""

from __future__ import annotations

from typing import Any

from eventstore.events import RecordedEvent, TaskEnd, TaskEnqueue, TaskStart
from projections.engine import folding
from projections.engine.folding import RowDraft

__all__ = ["TASK_HANDLERS", "belongs", "start_values"]

_PLACE = ("session_id", "turn", "step", "mode", "run_id", "workflow_id", "agent_id")


def belongs(entry: dict[str, Any] | None, event: RecordedEvent, name: str) -> bool:
    """Whether this turn or session is open and the event does not name another one."""
    if entry is None:
        return False
    named = getattr(event.meta, name)
    return named is None or entry[name] in (None, named)


def start_values(draft: RowDraft, **values: Any) -> dict[str, Any]:
    """Return the values of every entry: which event began it, when, and where it belongs."""
    event = draft.event
    attributes = vars(event.meta)
    meta = {name: value for name in _PLACE if (value := attributes[name]) is not None}
    if not attributes["in_context"]:
        meta["in_context"] = False
    return {"version": event.version, "began_at": draft.now, "meta": meta, **values}


def _task_enqueue(draft: RowDraft, task: TaskEnqueue) -> None:
    values = {
        "task_id": task.task_id,
        "target_conversation_id": task.target_conversation_id,
        "closes_call_id": task.closes_call_id,
        "running": False,
    }
    draft.keep("tasks", task.task_id, start_values(draft, **values))


def _task_start(draft: RowDraft, task: TaskStart) -> None:
    if (known := draft.get("tasks", task.task_id)) is not None:
        draft.keep("tasks", task.task_id, {**known, "running": True})


def _task_end(draft: RowDraft, end: TaskEnd) -> None:
    draft.drop("tasks", end.task_id)


TASK_HANDLERS: dict[type, folding.Handler] = {
    TaskEnqueue: _task_enqueue,
    TaskStart: _task_start,
    TaskEnd: _task_end,
}
