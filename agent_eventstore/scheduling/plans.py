"""What a scheduler is asked to do, and what came of it (document 003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from agent_eventstore.inputs import Said

__all__ = ["Closure", "TaskPlan", "TaskResult"]


@dataclass(frozen=True, slots=True)
class Closure:
    """The call that a task brings the result of: our own id of it, and the tool's name."""

    call_id: str
    tool_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """A task that is to run.

    Attributes:
        conversation_id: The conversation that it is for.
        input_items: What it says there: text, or parts, images among them.
        base_instructions_override: Instructions in place of the conversation's, from this task on.
        closure: The call that it brings the result of; then ``input_items`` are that result.
        task_id: The product's own id of it, at most 480 characters: enqueued again, it is not run
            again.
    """

    conversation_id: UUID
    input_items: Said = ()
    base_instructions_override: str | None = None
    closure: Closure | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What came of a task.

    Attributes:
        task_id: Its id.
        conversation_id: The conversation that it was for.
        status: ``aborted`` where other work took its place, or its conversation was destroyed.
        reason: Which of the two, as ``replaced`` or ``interrupted``.
        last_assistant_message: The last answer that it brought.
        error: What went wrong, in words.
    """

    task_id: str
    conversation_id: UUID
    status: Literal["complete", "failed", "aborted"]
    reason: Literal["replaced", "interrupted"] | None = None
    last_assistant_message: str | None = None
    error: str | None = None
