"""Tasks: a scheduler's queue and the outcome of each task (document 003).

One row per task, in the conversation whose log holds the queue; a task's input and answer are only
in its events. The fold keeps no state, so a queue can be arbitrarily long. A fork has its parent's
ended tasks; tasks that were open at that point stay with the parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventstore.events import ConversationFork, RecordedEvent, TaskEnd, TaskEnqueue, TaskStart
from projections.engine import folding
from projections.engine.folding import Row, RowDraft
from projections.engine.projection import Change, Patch, ReadTable, State

__all__ = ["TASKS", "TaskRow", "TasksProjection"]

_TABLE = "tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow(Row):
    """A task of a scheduler.

    Attributes:
        target_conversation_id: The conversation that the task is for.
        status: ``pending``, ``running``, ``complete``, ``failed`` or ``aborted``.
        reason: Why it was aborted: ``replaced`` or ``interrupted``.
        depth: Length of the chain of tasks that enqueued one another, down to this one.
        closes_call_id: The call whose result the task delivers.
        enqueued_version: Version of the event with the task's input.
        end_version: Version of the event with the task's answer.
    """

    task_id: str
    target_conversation_id: str | None = None
    status: str | None = None
    reason: str | None = None
    depth: int | None = None
    closes_call_id: str | None = None
    closes_tool_name: str | None = None
    enqueued_version: int | None = None
    end_version: int | None = None
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.status in ("pending", "running")


@dataclass(frozen=True, slots=True)
class TasksProjection:
    """Folds a conversation's events into ``tasks``."""

    name: str = "tasks"
    version: int = 1
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            ("task_id",),
            folding.columns_of(TaskRow),
            indexes=(("enqueued_version",),),
            lookups=(("status",),),
        ),
    )

    def initial(self) -> State:
        """Return the state, which is the same for every conversation."""
        return {}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state, and what the event changes in the table."""
        return folding.run(_HANDLERS, state, event)


def _enqueue(draft: RowDraft, task: TaskEnqueue) -> None:
    values: dict[str, Any] = {
        "target_conversation_id": task.target_conversation_id or str(draft.event.conversation_id),
        "status": "pending",
        "depth": task.depth,
        "closes_call_id": task.closes_call_id,
        "closes_tool_name": task.closes_tool_name,
        "enqueued_version": draft.event.version,
        "enqueued_at": draft.event.occurred_at,
    }
    draft.put(_TABLE, (task.task_id,), values)


def _start(draft: RowDraft, task: TaskStart) -> None:
    values = {"status": "running", "started_at": draft.event.occurred_at}
    draft.put(_TABLE, (task.task_id,), values)


def _end(draft: RowDraft, end: TaskEnd) -> None:
    values = {
        "status": end.status,
        "reason": end.reason,
        "end_version": draft.event.version,
        "ended_at": draft.event.occurred_at,
    }
    draft.put(_TABLE, (end.task_id,), values)


def _fork(draft: RowDraft, fork: ConversationFork) -> None:
    left = {"status": "aborted", "reason": "replaced", "ended_at": draft.event.occurred_at}
    for status in ("pending", "running"):
        draft.changes.append(
            Patch(_TABLE, "enqueued_version", 1, fork.parent_version, left, ("status", status))
        )


_HANDLERS: dict[type, folding.Handler] = {
    TaskEnqueue: _enqueue,
    TaskStart: _start,
    TaskEnd: _end,
    ConversationFork: _fork,
}

TASKS = TasksProjection()
