"""Payloads that frame a conversation: its start and end, sessions, modes, turns, tasks, erasure.

Sources: document 001 (sessions, turns, steps), 003 (conversations, scheduler), 000 (modes).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from eventstore.events.base import JsonObject, Payload
from eventstore.events.bounds import Count, Name, Size, Whole
from eventstore.events.tool_policy import ToolPolicy
from eventstore.events.values import ContentPart, Mode, Quoting, TokenUsage

__all__ = [
    "ConversationEnd",
    "ConversationStart",
    "Erasure",
    "ModeSwitch",
    "SessionEnd",
    "SessionStart",
    "TaskEnd",
    "TaskEnqueue",
    "TaskStart",
    "TurnEnd",
    "TurnStart",
]


class ConversationStart(Payload):
    """A conversation begins; the parent is set when it was opened or forked from another."""

    type: ClassVar[str] = "conversation_start"

    title: str | None = None
    mode: Mode | None = None
    config: JsonObject = Field(default_factory=dict)
    base_instructions: str | None = None
    user_instructions: str | None = None
    tool_policy: ToolPolicy | None = None
    participants: tuple[JsonObject, ...] = ()
    parent_conversation_id: Name | None = None
    parent_version: Count | None = None
    raw: Any = None


class ConversationEnd(Payload):
    """A conversation is over: put away, or destroyed by a user or a tool."""

    type: ClassVar[str] = "conversation_end"

    reason: Literal["archived", "destroyed"]
    message: str | None = None


class SessionStart(Payload):
    """A process opens the conversation.

    ``config`` holds model, temperature, working directory, tools, tokenizer.
    """

    type: ClassVar[str] = "session_start"

    mode: Literal["interactive", "once"] = "interactive"
    config: JsonObject = Field(default_factory=dict)
    raw: Any = None


class SessionEnd(Payload):
    """The process closes the conversation, with the tokens of all the session's turns."""

    type: ClassVar[str] = "session_end"

    reason: str | None = None
    turn_count: Count | None = None
    duration_ms: Size | None = None
    tokens: TokenUsage | None = None
    raw: Any = None


class ModeSwitch(Payload):
    """The conversation's mode changes; its history does not."""

    type: ClassVar[str] = "mode_switch"

    mode: Mode
    previous: Mode | None = None
    reason: str | None = None


class TurnStart(Payload):
    """A turn begins, from one input to the final answer; ``input`` is the raw input, if given."""

    type: ClassVar[str] = "turn_start"

    input: str | None = None
    tokens: TokenUsage | None = None
    raw: Any = None


class TurnEnd(Payload):
    """A turn ends. ``reason`` goes with ``aborted``: replaced by another task, or interrupted."""

    type: ClassVar[str] = "turn_end"

    status: Literal["ok", "error", "max_steps", "aborted"]
    reason: Literal["replaced", "interrupted"] | None = None
    error: str | None = None
    step_count: Count | None = None
    duration_ms: Size | None = None
    tokens: TokenUsage | None = None
    raw: Any = None


class TaskEnqueue(Payload):
    """A task is queued; ``closes_call_id`` is the tool call whose result it will bring."""

    type: ClassVar[str] = "task_enqueue"

    task_id: Name
    target_conversation_id: Name | None = None
    items: tuple[ContentPart, ...] = ()
    base_instructions_override: str | None = None
    closes_call_id: Name | None = None
    closes_tool_name: Name | None = None
    depth: Count = 0


class TaskStart(Payload):
    """A queued task begins to run; at most one runs at a time."""

    type: ClassVar[str] = "task_start"

    task_id: Name


class TaskEnd(Payload):
    """A task is over, with the last assistant message that it brought."""

    type: ClassVar[str] = "task_end"

    task_id: Name
    status: Literal["complete", "failed", "aborted"]
    reason: Literal["replaced", "interrupted"] | None = None
    last_assistant_message: str | None = None


class Erasure(Payload):
    """The receipt of an erasure: which versions lost their data, how many blobs went, and why.

    It names no blob, since a digest lets whoever guesses the text be sure of it. ``derived`` are
    those of ``versions`` that were taken along, as they held the words of others; ``quoted_by``
    hold such words still.
    """

    type: ClassVar[str] = "erasure"
    schema_version: ClassVar[int] = 2

    erasure_id: Name
    reason: str
    versions: tuple[Whole, ...]
    event_count: Count
    blob_count: Count = 0
    blob_bytes: Size = 0
    requested_by: str | None = None
    derived: tuple[Quoting, ...] = ()
    quoted_by: tuple[Quoting, ...] = ()
