"""Payloads that frame a conversation: its start and end, sessions, modes, turns, tasks, erasure.

With them `ToolPolicy`: which tools a conversation, or an agent in it, may use. Several merge into
one that allows what each of them allows. It names tools as the model calls them; how tools are
declared is the business of requests.

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
"""How tools of MCP servers are named where they stand among others: ``mcp__<server>__<tool>``."""


class ToolPolicy(Value):
    """Which tools may be used; without any rule, all of them.

    Attributes:
        allowed: The only tools, and MCP servers that the provider calls, that may be used; None
            for all that are not denied.
        denied: Those that may not be used, whatever else is said.
        mcp_allowlist: The only MCP servers whose tools may be used; None for all of them.
        internal_tools: The product's own tools, switched off by False.
        text: What the model is told besides.
    """

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    mcp_allowlist: tuple[str, ...] | None = None
    internal_tools: dict[str, bool] = Field(default_factory=dict)
    text: str | None = None

    @property
    def refused(self) -> tuple[str, ...]:
        """The names that may not be used: those denied, and those switched off."""
        off = (name for name, on in self.internal_tools.items() if not on)
        return tuple(dict.fromkeys((*self.denied, *off)))

    def refusal(self, name: str) -> str | None:
        """Return why the tool of this name may not be used; None if it may."""
        server, _, tool = name.removeprefix(_MCP).partition("__")
        if name.startswith(_MCP) and tool and not self._on_list(server):
            return f"the tool policy does not allow the MCP server {server}"
        return self._refusal(name)

    def server_refusal(self, server: str) -> str | None:
        """Return why this MCP server may not be used as a whole; None if it may."""
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

        Denials add up, lists of what is allowed intersect, a tool that one switches off is off.
        Texts follow each other, each once. What is merged already changes nothing.
        """
        merged = self
        for other in others:
            merged = merged if other is None else merged._with(other)
        return merged

    def _with(self, other: ToolPolicy) -> Self:
        mine, theirs = self.internal_tools, other.internal_tools
        told = [text for text in (self.text, other.text) if text]
        if len(told) > 1 and told[1] in told[0].split(_BETWEEN):
            del told[1]
        return type(self)(
            allowed=_common(self.allowed, other.allowed),
            denied=tuple(dict.fromkeys((*self.denied, *other.denied))),
            mcp_allowlist=_common(self.mcp_allowlist, other.mcp_allowlist),
            internal_tools={
                name: mine.get(name, True) and theirs.get(name, True)
                for name in dict.fromkeys((*mine, *theirs))
            },
            text=_BETWEEN.join(told) or None,
        )


_BETWEEN = "\n\n"


def _common(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    lists = [each for each in (one, other) if each is not None]
    if not lists:
        return None
    return tuple(name for name in dict.fromkeys(lists[0]) if name in lists[-1])


class ConversationStart(Payload):
    """A conversation begins; the parent is set when it was opened or forked from another.

    Attributes:
        title: What lists show.
        mode: The mode that it begins in.
        base_instructions: The instructions of the product.
        user_instructions: Those of its user.
        tool_policy: Which tools may be used.
        participants: Who takes part, as the product describes them.
        parent_conversation_id: The conversation that it was opened or forked from.
        parent_version: The version of the parent at that moment.
        metadata: What the product keeps with it for its lists, at most 16 KB of JSON.
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
    """A conversation goes on from a version of another's; what lies before is shared by both.

    The first event that a fork holds itself.

    Attributes:
        parent_conversation_id: The conversation whose events it shares.
        parent_version: The last version that both have.
        title: What lists show; None for the parent's title.
    """

    type: ClassVar[str] = "conversation_fork"

    parent_conversation_id: Name
    parent_version: Ordinal
    title: str | None = None


class ConversationUpdate(Payload):
    """A conversation is renamed, described, put away or taken out again; None leaves what was.

    Attributes:
        title: What lists show from now on.
        archived: Whether it is put away; lists tell by ``status``.
        metadata: What stands in the place of all metadata from now on.
    """

    type: ClassVar[str] = "conversation_update"
    schema_version: ClassVar[int] = 2

    title: str | None = None
    archived: bool | None = None
    metadata: Metadata | None = None


class ConversationEnd(Payload):
    """A conversation is over: put away, or destroyed by a user or a tool.

    Attributes:
        reason: What became of it.
        message: Why, in words.
    """

    type: ClassVar[str] = "conversation_end"

    reason: Literal["archived", "destroyed"]
    message: str | None = None


class SessionStart(Payload):
    """A process opens the conversation.

    ``config`` holds model, temperature, working directory, tools, tokenizer.

    Attributes:
        mode: Whether a person talks, or one task is done.
    """

    type: ClassVar[str] = "session_start"

    mode: Literal["interactive", "once"] = "interactive"
    config: JsonObject = Field(default_factory=dict)
    raw: Any = None


class SessionEnd(Payload):
    """The process closes the conversation, with the tokens of all the session's turns.

    Attributes:
        turn_count: Turns begun in the session.
        tokens: Tokens of the session's turns, added up.
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
        mode: The mode from here on.
        previous: The mode before.
    """

    type: ClassVar[str] = "mode_switch"

    mode: Mode
    previous: Mode | None = None
    reason: str | None = None


class ModeState(Payload):
    """Where the mode stands from here on, as the product keeps it: such as whose turn it is.

    Attributes:
        mode: The mode.
        state: All of its state; what was there before is replaced.
    """

    type: ClassVar[str] = "mode_state"

    mode: Mode
    state: JsonObject


class TurnStart(Payload):
    """A turn begins, from one input to the final answer; ``input`` is the raw input, if given.

    Attributes:
        input: The input as it came.
        tokens: Tokens of the input, if the source counted them.
    """

    type: ClassVar[str] = "turn_start"

    input: str | None = None
    tokens: TokenUsage | None = None
    raw: Any = None


class TurnEnd(Payload):
    """A turn ends: ``cancelled`` by a user or the program, ``aborted`` where its process died.

    Attributes:
        reason: Why it was aborted.
        step_count: Model calls that were steps of the turn.
        tokens: Tokens of the turn's model calls, added up.
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
    """A task is queued; ``closes_call_id`` is the tool call whose result it will bring.

    Attributes:
        target_conversation_id: The conversation that the task is for.
        items: What the task says.
        base_instructions_override: Instructions in place of the conversation's.
        closes_call_id: The tool call whose result it will bring.
        closes_tool_name: The tool of that call.
        depth: How many tasks have enqueued one another down to this one.
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
    """A task is over, with the last assistant message that it brought.

    Attributes:
        reason: Why it was aborted.
        last_assistant_message: The last answer that it brought.
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

    It names no blob, since a digest lets whoever guesses the text be sure of it. ``derived`` are
    those of ``versions`` that were taken along, as they held the words of others; ``quoted_by``
    hold such words still.

    Attributes:
        erasure_id: The id of the row in ``erasures``.
        whole: Whether the whole conversation was erased, and not some versions of it.
        versions: The events whose data is gone.
        event_count: How many events those are.
        blob_count: Blobs deleted.
        blob_bytes: Their size in bytes.
        requested_by: Who asked for it.
        derived: Those taken along, as they held the words of others.
        quoted_by: Those that hold such words still.
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
