"""A scheduler's tasks and its queue: events of the root conversation (document 003).

The queue is not held in memory: it is read through the projection ``tasks``, so a process that
opens the root again finds it unchanged. Tasks that are enqueued from within a running task go ahead
of waiting ones, so that interrupted work resumes as soon as possible; otherwise, first come, first
served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal
from uuid import UUID

from agent_eventstore.conversation import Conversation
from agent_eventstore.inputs import UserInput, parts_of
from eventstore import new_id
from eventstore.errors import ConversationNotFound
from eventstore.events import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    Payload,
    TaskEnd,
    TaskEnqueue,
    TaskStart,
    UserMessage,
)
from eventstore.ids import uuid_in
from projections import Views
from projections.models.tasks import TaskRow
from projections.payload_text import spoken

__all__ = ["Closure", "Members", "TaskPlan", "TaskQueue", "TaskResult"]


@dataclass(frozen=True, slots=True)
class Closure:
    """The call to which a task delivers the result: our own id of it, and the tool's name."""

    call_id: str
    tool_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """A task to run.

    Attributes:
        conversation_id: The conversation in which it runs.
        input_items: Its input: text, or parts, including images.
        base_instructions_override: Instructions in place of the conversation's, from this task on.
        closure: The call to which it delivers the result; ``input_items`` are then that result.
        task_id: Your product's own id of the task, at most 480 characters; a task that is enqueued
            again does not run again.
    """

    conversation_id: UUID
    input_items: UserInput = ()
    base_instructions_override: str | None = None
    closure: Closure | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of a task.

    Attributes:
        task_id: Its id.
        conversation_id: The conversation in which it ran.
        status: ``aborted`` if other work replaced it, or if its conversation was destroyed.
        reason: Which of the two: ``replaced`` or ``interrupted``.
        last_assistant_message: Its last answer.
        error: What went wrong, in words.
    """

    task_id: str
    conversation_id: UUID
    status: Literal["complete", "failed", "aborted"]
    reason: Literal["replaced", "interrupted"] | None = None
    last_assistant_message: str | None = None
    error: str | None = None


class TaskQueue:
    """The tasks of one scheduler.

    Args:
        root: The conversation whose log holds the queue, open for writing.
    """

    def __init__(self, root: Conversation) -> None:
        self._root = root

    def all(self) -> list[TaskRow]:
        """Return all tasks that were ever enqueued, in the order in which they were."""
        return self._root.views.tasks(self._root.id)

    def find(self, task_id: str) -> TaskRow | None:
        """Return a task by its id."""
        return next(iter(self._root.views.tasks(self._root.id, task_id=task_id)), None)

    def last_of(self, task_id: str) -> TaskRow | None:
        """Return the task in which a task's work ended: itself, or one that resumed it.

        The task that resumes one that a tool interrupted directly follows its end in the queue.
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
        """Return the running task, else the next one; None if the queue is empty."""
        tasks = self._root.views.tasks(self._root.id, open_only=True)
        running = (task for task in tasks if task.status == "running")
        # The first of the deepest: max returns the first of equals.
        return next(running, None) or max(tasks, key=lambda task: task.depth or 0, default=None)

    def add(
        self, plans: Sequence[TaskPlan], *, depth: int = 0, ended: Payload | None = None
    ) -> None:
        """Enqueue tasks, in one transaction with the end of the task that they replace.

        Tasks whose ids are already in the queue, whether ended or not, are left unchanged.
        """
        new = [each for each in plans if each.task_id is None or self.find(each.task_id) is None]
        self.put(new, depth=depth, ended=ended)

    def put(self, plans: Sequence[TaskPlan], *, depth: int, ended: Payload | None) -> None:
        """Enqueue tasks as `add` does; none of them may be in the queue already."""
        enqueued = [_event(plan, depth) for plan in plans]
        events = [*((ended,) if ended is not None else ()), *enqueued]
        if events:
            self._root.append(*events)

    def start(self, task: TaskRow) -> None:
        """Record that a task begins."""
        self._root.append(TaskStart(task_id=task.task_id))

    def end(
        self,
        task: TaskRow,
        status: Literal["complete", "failed", "aborted"],
        reason: Literal["replaced", "interrupted"] | None = None,
        answer: str | None = None,
        error: str | None = None,
    ) -> None:
        """Record that a task has ended."""
        end = TaskEnd(
            task_id=task.task_id,
            status=status,
            reason=reason,
            last_assistant_message=answer,
            error=error,
        )
        self._root.append(end)

    def input_of(self, task: TaskRow) -> TaskEnqueue:
        """Return a task's input; empty if it was erased."""
        found = self._at(task.enqueued_version)
        return found if isinstance(found, TaskEnqueue) else TaskEnqueue(task_id=task.task_id)

    def end_of(self, task: TaskRow) -> TaskEnd | None:
        """Return how a task ended; None if it has not, or if its end was erased."""
        found = self._at(task.end_version)
        return found if isinstance(found, TaskEnd) else None

    def target_of(self, task: TaskRow) -> UUID:
        """Return the conversation of a task; the root if the task names none."""
        return uuid_in(task.target_conversation_id or "") or self._root.id

    def result_of(self, task_id: str) -> TaskResult | None:
        """Return the result of a task, or of the one that resumed it; None if it has not ended."""
        task = self.last_of(task_id)
        end = None if task is None else self.end_of(task)
        if task is None or end is None:
            return None
        return TaskResult(
            task_id=task.task_id,
            conversation_id=self.target_of(task),
            status=end.status,
            reason=end.reason,
            last_assistant_message=end.last_assistant_message,
            error=end.error,
        )

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
        items=parts_of(plan.input_items, may_be_empty=closure is not None),
        base_instructions_override=plan.base_instructions_override,
        closes_call_id=None if closure is None else closure.call_id,
        closes_tool_name=None if closure is None else closure.tool_name,
        depth=depth,
    )


class Members:
    """The root conversation, and those for which tasks were enqueued.

    Args:
        views: The store's views.
        root: The root conversation.
        queue: The scheduler's queue.
    """

    def __init__(self, views: Views, root: UUID, queue: TaskQueue) -> None:
        self._views, self._root, self._queue = views, root, queue

    def find(self, conversation_id: str) -> UUID | None:
        """Return the id of a conversation that exists; None if none has this id."""
        wanted = uuid_in(conversation_id)
        return wanted if wanted in self._ids() and self._row(wanted) is not None else None

    def listed(self) -> list[JsonObject]:
        """Return id, number of messages and last activity of each, in order of appearance."""
        found = ((each, self._row(each)) for each in self._ids())
        return [
            {
                "id": str(each),
                "message_count": len(self.history(each)),
                "last_active_at": _rfc3339(row["last_activity_at"]),
            }
            for each, row in found
            if row is not None
        ]

    def history(self, conversation_id: UUID, limit: int | None = None) -> list[JsonObject]:
        """Return the messages of users and the model in a conversation, without tools.

        Args:
            conversation_id: One of the conversations.
            limit: Maximum number of messages, the latest ones.

        Raises:
            ValueError: The limit is negative.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}: give a number of messages")
        shown = {
            item.message_version
            for item in self._views.timeline(conversation_id)
            if item.kind in ("user", "assistant") and item.status != "withdrawn"
        }
        entries = [
            entry
            for event in self._views.store.read(conversation_id)
            if event.version in shown and (entry := _entry(event.data)) is not None
        ]
        return entries if limit is None else entries[max(0, len(entries) - limit) :]

    def _ids(self) -> list[UUID]:
        targets = (uuid_in(task.target_conversation_id or "") for task in self._queue.all())
        return list(dict.fromkeys((self._root, *(each for each in targets if each is not None))))

    def _row(self, conversation_id: UUID) -> dict[str, Any] | None:
        try:
            rows = self._views.rows("directory", conversation_id=conversation_id)
        except ConversationNotFound:  # purged, or it never existed
            return None
        return next((row for row in rows if row["status"] not in ("destroyed", "erased")), None)


def _entry(message: object) -> JsonObject | None:
    if not isinstance(message, UserMessage | AssistantMessage):
        return None
    entry: JsonObject = {"role": "user" if isinstance(message, UserMessage) else "assistant"}
    if text := spoken(message.parts):
        entry["text"] = text
    images = [part.url for part in message.parts if isinstance(part, ImagePart)]
    entry["attachments"] = [{"type": "image", "image_url": url} for url in images]
    return entry if text or images else None


def _rfc3339(moment: Any) -> str:
    return str(moment.astimezone(UTC).isoformat(timespec="milliseconds")).replace("+00:00", "Z")
