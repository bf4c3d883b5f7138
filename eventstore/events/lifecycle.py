"""Payloads that frame a conversation: its start and end, sessions, modes, turns, tasks, erasure.

The module also holds `ToolPolicy`: the tools that a conversation, or an agent in it, may use.
Merging several policies allows only what all of them allow. A policy names tools as the model
calls them; tool declarations belong to requests.

Sources: document 001 (sessions, turns, steps), 003 (conversations, scheduler), 000 (modes, tools).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from eventstore.events.base import JsonObject, Payload, Value
from eventstore.events.bounds import Count, Metadata, Name, Ordinal, Size, Whole
from eventstore.events.values import ContentPart, Mode, Quoting, TokenUsage

__all__ = [
    "ConversationEnd",
    "ConversationFork",
    "ConversationStart",
    "ConversationUpdate",
    "Erasure",
    "ModeState",
    "ModeSwitch",
    "SessionEnd",
    "SessionStart",
    "TaskEnd",
    "TaskEnqueue",
    "TaskStart",
    "ToolPolicy",
    "TurnEnd",
    "TurnStart",
]


_MCP = "mcp__"
"""The prefix of MCP servers' tools in a list of tools: ``mcp__<server>__<tool>``."""


class ToolPolicy(Value):
    """The tools that may be used; without any rule, all of them.

    Attributes:
        allowed: The only tools, and MCP servers called by the provider, that may be used; None
            allows all that are not denied.
        denied: Tools that may not be used, whatever the other rules say.
        mcp_allowlist: The only MCP servers whose tools may be used; None allows all of them.
        internal_tools: The product's own tools; False disables one.
        text: Additional text for the model.
    """

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    mcp_allowlist: tuple[str, ...] | None = None
    internal_tools: dict[str, bool] = Field(default_factory=dict)
    text: str | None = None

    @property
    def refused(self) -> tuple[str, ...]:
        """The names that may not be used: denied or disabled."""
        off = (name for name, on in self.internal_tools.items() if not on)
        return tuple(dict.fromkeys((*self.denied, *off)))

    def refusal(self, name: str) -> str | None:
        """Return why the tool with this name may not be used, or None if it may."""
        server, _, tool = name.removeprefix(_MCP).partition("__")
        if name.startswith(_MCP) and tool and not self._on_list(server):
            return f"the tool policy does not allow the MCP server {server}"
        return self._refusal(name)

    def server_refusal(self, server: str) -> str | None:
        """Return why this MCP server as a whole may not be used, or None if it may."""
        if not self._on_list(server):
            return f"the tool policy does not allow the MCP server {server}"
        return self._refusal(server)

    def _on_list(self, server: str) -> bool:
        return self.mcp_allowlist is None or server in self.mcp_allowlist

    def _refusal(self, name: str) -> str | None:
        if name in self.refused:
            return f"the tool policy denies {name}"
        if self.allowed is not None and name not in self.allowed:
            return f"{name} is not among the tools that the tool policy allows"
        return None

    def merge(self, *others: ToolPolicy | None) -> Self:
        """Return the policy that allows what this one and all others allow; None changes nothing.

        Denials add up, allowlists intersect, and a tool that any policy disables is disabled.
        Texts are joined, each of them once. Merging the same policy again changes nothing.
        """
        merged = self
        for other in others:
            merged = merged if other is None else merged._with(other)
        return merged

    def _with(self, other: ToolPolicy) -> Self:
        mine, theirs = self.internal_tools, other.internal_tools
        texts = [text for text in (self.text, other.text) if text]
        if len(texts) > 1 and texts[1] in texts[0].split(_BETWEEN):
            del texts[1]
        return type(self)(
            allowed=_common(self.allowed, other.allowed),
            denied=tuple(dict.fromkeys((*self.denied, *other.denied))),
            mcp_allowlist=_common(self.mcp_allowlist, other.mcp_allowlist),
            internal_tools={
                name: mine.get(name, True) and theirs.get(name, True)
                for name in dict.fromkeys((*mine, *theirs))
            },
            text=_BETWEEN.join(texts) or None,
        )


_BETWEEN = "\n\n"


def _common(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    lists = [each for each in (one, other) if each is not None]
    if not lists:
        return None
    return tuple(name for name in dict.fromkeys(lists[0]) if name in lists[-1])


class ConversationStart(Payload):
    """A conversation begins; the parent is set if it was opened or forked from another.

    Attributes:
        title: The title shown in lists.
        mode: The initial mode.
        base_instructions: The product's instructions.
        user_instructions: The user's instructions.
        tool_policy: The tools that may be used.
        participants: The participants, as the product describes them.
        parent_conversation_id: The conversation that it was opened or forked from.
        parent_version: The version of the parent at that moment.
        metadata: The product's own data for its lists, at most 16 KB of JSON.
    """

    type: ClassVar[str] = "conversation_start"
    schema_version: ClassVar[int] = 2

    title: str | None = None
    mode: Mode | None = None
    config: JsonObject = Field(default_factory=dict)
    base_instructions: str | None = None
    user_instructions: str | None = None
    tool_policy: ToolPolicy | None = None
    participants: tuple[JsonObject, ...] = ()
    parent_conversation_id: Name | None = None
    parent_version: Count | None = None
    metadata: Metadata | None = None
    raw: Any = None


class ConversationFork(Payload):
    """A conversation continues from a version of another; both share the events up to there.

    This is the first event that a fork holds itself.

    Attributes:
        parent_conversation_id: The conversation whose events it shares.
        parent_version: The last shared version.
        title: The title shown in lists; None for the parent's title.
    """

    type: ClassVar[str] = "conversation_fork"

    parent_conversation_id: Name
    parent_version: Ordinal
    title: str | None = None


class ConversationUpdate(Payload):
    """A conversation is renamed, described, archived or unarchived; None changes nothing.

    Attributes:
        title: The new title shown in lists.
        archived: Whether it is archived; lists show this as ``status``.
        metadata: New metadata, which replaces all of the old.
    """

    type: ClassVar[str] = "conversation_update"
    schema_version: ClassVar[int] = 2

    title: str | None = None
    archived: bool | None = None
    metadata: Metadata | None = None


class ConversationEnd(Payload):
    """A conversation is over: archived, or destroyed by a user or a tool.

    Attributes:
        reason: How it ended.
        message: An explanation, as text.
    """

    type: ClassVar[str] = "conversation_end"

    reason: Literal["archived", "destroyed"]
    message: str | None = None


class SessionStart(Payload):
    """A process opens the conversation.

    ``config`` holds model, temperature, working directory, tools, tokenizer.

    Attributes:
        mode: Whether a person interacts, or the session does one task.
    """

    type: ClassVar[str] = "session_start"

    mode: Literal["interactive", "once"] = "interactive"
    config: JsonObject = Field(default_factory=dict)
    raw: Any = None


class SessionEnd(Payload):
    """The process closes the conversation; with the tokens of all turns of the session.

    Attributes:
        turn_count: Number of turns begun in the session.
        tokens: Total tokens of the session's turns.
    """

    type: ClassVar[str] = "session_end"

    reason: str | None = None
    turn_count: Count | None = None
    duration_ms: Size | None = None
    tokens: TokenUsage | None = None
    raw: Any = None


class ModeSwitch(Payload):
    """The conversation's mode changes; its history does not.

    Attributes:
        mode: The new mode.
        previous: The previous mode.
    """

    type: ClassVar[str] = "mode_switch"

    mode: Mode
    previous: Mode | None = None
    reason: str | None = None


class ModeState(Payload):
    """The new state of the mode, as the product defines it; for example whose turn it is.

    Attributes:
        mode: The mode.
        state: The complete state, which replaces the previous one.
    """

    type: ClassVar[str] = "mode_state"

    mode: Mode
    state: JsonObject


class TurnStart(Payload):
    """A turn begins, from one input to the final answer; the user's message follows, if it has one.

    Attributes:
        input: The input, verbatim, unless the ``user_message`` that follows has it.
        tokens: Tokens of the input, if the source counted them.
    """

    type: ClassVar[str] = "turn_start"

    input: str | None = None
    tokens: TokenUsage | None = None
    raw: Any = None


class TurnEnd(Payload):
    """A turn ends: ``cancelled`` by a user or the program, ``aborted`` if its process died.

    Attributes:
        reason: Why it was aborted.
        step_count: Number of model calls that were steps of the turn.
        tokens: Total tokens of the turn's model calls.
    """

    type: ClassVar[str] = "turn_end"

    status: Literal["ok", "error", "max_steps", "cancelled", "aborted"]
    reason: Literal["replaced", "interrupted"] | None = None
    error: str | None = None
    step_count: Count | None = None
    duration_ms: Size | None = None
    tokens: TokenUsage | None = None
    raw: Any = None


class TaskEnqueue(Payload):
    """A task is queued; ``closes_call_id`` is the tool call whose result it will deliver.

    Attributes:
        target_conversation_id: The conversation that the task is for.
        items: The content of the task.
        base_instructions_override: Instructions that replace the conversation's.
        closes_call_id: The tool call whose result it will deliver.
        closes_tool_name: The tool of that call.
        depth: The length of the chain of tasks that enqueued this one.
    """

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
    """A task is over; with the last assistant message that it produced.

    Attributes:
        reason: Why it was aborted.
        last_assistant_message: The last answer that it produced.
        error: Why it failed.
    """

    type: ClassVar[str] = "task_end"

    task_id: Name
    status: Literal["complete", "failed", "aborted"]
    reason: Literal["replaced", "interrupted"] | None = None
    last_assistant_message: str | None = None
    error: str | None = None


class Erasure(Payload):
    """The receipt of an erasure: which versions lost their data, how many blobs went, and why.

    The receipt names no blob, because a digest would confirm a correct guess of the text.
    ``derived`` lists those of ``versions`` that were erased only because they repeated the text of
    other erased events; ``quoted_by`` lists events that still hold such text.

    Attributes:
        erasure_id: The id of the row in ``erasures``.
        whole: Whether the whole conversation was erased, and not only some versions.
        versions: The events whose data is gone.
        event_count: Number of those events.
        blob_count: Number of deleted blobs.
        blob_bytes: Their total size in bytes.
        requested_by: Who requested the erasure.
        derived: Versions erased because they repeated the text of other erased events.
        quoted_by: Versions that still hold text of erased events.
    """

    type: ClassVar[str] = "erasure"
    schema_version: ClassVar[int] = 3

    erasure_id: Name
    reason: str
    whole: bool = False
    versions: tuple[Whole, ...]
    event_count: Count
    blob_count: Count = 0
    blob_bytes: Size = 0
    requested_by: str | None = None
    derived: tuple[Quoting, ...] = ()
    quoted_by: tuple[Quoting, ...] = ()
