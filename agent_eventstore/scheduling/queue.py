"""The queue of tasks: events of the root conversation, read through the projection ``tasks``.

Nothing of it is held in memory, so whoever opens the root again has the queue as it was left. One
that others have enqueued from within their run comes ahead of those that were there before, so that
what has been interrupted goes on as soon as may be; otherwise first come, first served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agent_eventstore.conversation import Conversation
from agent_eventstore.inputs import message_of
from agent_eventstore.scheduling.plans import TaskPlan
from eventstore import new_id
from eventstore.events import Payload, TaskEnd, TaskEnqueue, TaskStart
from projections.models.tasks import TaskRow

__all__ = ["TaskQueue"]


class TaskQueue:
    """The tasks of one scheduler.

    Args:
        root: The conversation whose log holds the queue, open for writing.
    """

    def __init__(self, root: Conversation) -> None:
        self._root = root

    def all(self) -> list[TaskRow]:
        """Return the tasks that ever stood in the queue, in the order of their coming."""
        return self._root.views.tasks(self._root.id)

    def find(self, task_id: str) -> TaskRow | None:
        """Return a task by its id."""
        return next(iter(self._root.views.tasks(self._root.id, task_id=task_id)), None)

    def last_of(self, task_id: str) -> TaskRow | None:
        """Return the task in which a task's work ended: its own, or one that went on with it.

        What goes on with a task that a tool interrupted stands in the queue right behind its end.
        """
        found = self.find(task_id)
        tasks = self.all() if found is not None and found.reason == "replaced" else []
        while found is not None and found.reason == "replaced" and found.end_version is not None:
            behind = range(found.end_version + 1, found.end_version + 3)
            left, target = found, found.target_conversation_id
            heirs = (
                task
                for task in tasks
                if task.enqueued_version in behind
                and task.closes_call_id is not None
                and task.target_conversation_id == target
            )
            if (found := next(heirs, None)) is None:
                return left
        return found

    def next(self) -> TaskRow | None:
        """Return the task that runs, or else the one that is to; None if there is none."""
        tasks = self._root.views.tasks(self._root.id, open_only=True)
        running = (task for task in tasks if task.status == "running")
        # Among the deepest the first: max takes the first of equals.
        return next(running, None) or max(tasks, key=lambda task: task.depth or 0, default=None)

    def add(
        self, plans: Sequence[TaskPlan], *, depth: int = 0, ended: Payload | None = None
    ) -> None:
        """Enqueue tasks, in one transaction with the end of the one that they take the place of.

        Those whose ids are in the queue already, whether they have ended or not, stay as they are.
        """
        new = [
            _event(plan, depth)
            for plan in plans
            if plan.task_id is None or self.find(plan.task_id) is None
        ]
        events = [*((ended,) if ended is not None else ()), *new]
        if events:
            self._root.append(*events)

    def start(self, task: TaskRow) -> None:
        """Record that a task begins to run."""
        self._root.append(TaskStart(task_id=task.task_id))

    def end(
        self,
        task: TaskRow,
        status: Literal["complete", "failed", "aborted"],
        reason: Literal["replaced", "interrupted"] | None = None,
        answer: str | None = None,
        error: str | None = None,
    ) -> None:
        """Record that a task is over."""
        end = TaskEnd(
            task_id=task.task_id,
            status=status,
            reason=reason,
            last_assistant_message=answer,
            error=error,
        )
        self._root.append(end)

    def said(self, task: TaskRow) -> TaskEnqueue:
        """Return what a task says; nothing of one that was erased."""
        found = self._at(task.enqueued_version)
        return found if isinstance(found, TaskEnqueue) else TaskEnqueue(task_id=task.task_id)

    def end_of(self, task: TaskRow) -> TaskEnd | None:
        """Return how a task has ended; None if it has not, or if that was erased."""
        found = self._at(task.end_version)
        return found if isinstance(found, TaskEnd) else None

    def _at(self, version: int | None) -> object:
        if version is None:
            return None
        store = self._root.views.store
        return next((e.data for e in store.read(self._root.id, after=version - 1, limit=1)), None)


def _event(plan: TaskPlan, depth: int) -> TaskEnqueue:
    closure = plan.closure
    return TaskEnqueue(
        task_id=plan.task_id or str(new_id()),
        target_conversation_id=str(plan.conversation_id),
        items=message_of(plan.input_items).parts,
        base_instructions_override=plan.base_instructions_override,
        closes_call_id=None if closure is None else closure.call_id,
        closes_tool_name=None if closure is None else closure.tool_name,
        depth=depth,
    )
