"""Errors of recorders, agents and importers; see `agent_eventstore.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from eventstore.errors import EventStoreError

if TYPE_CHECKING:
    pass

__all__ = [
    "BlockNotOpen",
    "BranchRefused",
    "CallAnswered",
    "CallNotRecorded",
    "ConversationEnded",
    "ForkedWriter",
    "ImportFailed",
    "NotCommitted",
    "PromptTooLong",
    "ToolDenied",
    "TurnRunning",
    "TurnStillOpen",
    "TurnStopped",
    "UnknownAlias",
    "UnknownResponse",
    "WrongThread",
]

INSTEAD = {
    "response": (
        "pass the whole answer of OpenAI, Anthropic, Gemini, Ollama, Cohere or Bedrock, as an "
        "object or a dict, and each chunk of a stream to call.feed(chunk); for any other "
        "SDK use call.text('...'), "
        "or call.message(text=..., tool_calls=..., usage=..., finish_reason=...)"
    ),
    "chunk": (
        "pass the chunks of OpenAI, Anthropic, Gemini, Ollama, Cohere or Bedrock one by one, as "
        "objects or dicts; for any other SDK use call.delta('...') for each piece of text"
    ),
    "tool call": "pass {'name': ..., 'arguments': ..., 'id': ...}",
    "usage": "pass {'prompt_tokens': ..., 'completion_tokens': ...}",
}

_NAMED = 8


def seen(value: Any) -> str:
    """Return the type of a value, and for a dictionary the names of its fields."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if not issubclass(kind, dict):  # not isinstance: a caller's object may fake its __class__
        return name
    fields = [repr(key)[:40] for key in list(value)[:_NAMED]]
    return f"a dict with {', '.join(fields)}" if fields else "an empty dict"


class BlockNotOpen(EventStoreError, RuntimeError):
    """A turn, model call or tool call is used before its block is entered or after it is left."""


class WrongThread(EventStoreError, LookupError):
    """A chat session is opened from a thread that it does not belong to; nothing was changed.

    Attributes:
        conversation_id: The session's conversation.
        thread_slug: The thread that the caller named.
    """

    def __init__(self, conversation_id: UUID, thread_slug: str | None) -> None:
        self.conversation_id = conversation_id
        self.thread_slug = thread_slug
        asked = "no thread" if thread_slug is None else f"the thread {thread_slug!r}"
        super().__init__(
            f"conversation {conversation_id} does not belong to {asked}: open it with the "
            "thread_slug that it was created with"
        )


class PromptTooLong(EventStoreError, ValueError):
    """An agent's next request would exceed its limit and is refused; nothing was written.

    ``tokens`` is this project's token count of the request, ``limit`` the most it may have.
    """

    def __init__(self, conversation_id: UUID, tokens: int, limit: int) -> None:
        self.conversation_id = conversation_id
        self.tokens = tokens
        self.limit = limit
        super().__init__(
            f"the next request of conversation {conversation_id} would have {tokens:,} tokens, and "
            f"at most {limit:,} are allowed: shorten the input, or trim the history"
        )


class TurnRunning(EventStoreError, RuntimeError):
    """A message is posted again while the turn of its first post runs; nothing was written.

    ``turn`` is the turn's number, ``message_id`` the product's id of the message.
    """

    def __init__(self, conversation_id: UUID, turn: int | None, message_id: str) -> None:
        self.conversation_id = conversation_id
        self.turn = turn
        self.message_id = message_id
        super().__init__(
            f"message {message_id!r} of conversation {conversation_id} was posted before, and its "
            f"turn {turn} is running: post it again when the turn has ended, or follow the timeline"
        )


class BranchRefused(EventStoreError, ValueError):
    """A conversation cannot be edited, answered again, rewound or switched at that point.

    Attributes:
        conversation_id: The conversation; nothing was changed.
        reason: Why it is refused.
    """

    def __init__(self, conversation_id: UUID, reason: str) -> None:
        self.conversation_id = conversation_id
        self.reason = reason
        super().__init__(f"the branch of conversation {conversation_id} is unchanged: {reason}")


class TurnStopped(EventStoreError, RuntimeError):
    """`Turn.stop` was called: the next recorder call in the turn's own thread raises this.

    It ends the turn. The turn's block suppresses it, so the code after the block runs.

    Attributes:
        conversation_id: The conversation.
        turn: The turn's number.
        reason: Why, as text, such as ``stopped by the user``.
    """

    def __init__(self, conversation_id: UUID, turn: int, reason: str) -> None:
        self.conversation_id = conversation_id
        self.turn = turn
        self.reason = reason
        super().__init__(
            f"turn {turn} of conversation {conversation_id} was {reason}: leave its block"
        )


class ConversationEnded(EventStoreError, RuntimeError):
    """A turn was to begin in a destroyed conversation."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f"conversation {conversation_id} was destroyed and accepts no more turns: its history "
            "can be read, and `Conversation.fork` continues from it"
        )


class TurnStillOpen(EventStoreError, RuntimeError):
    """A turn is entered while another one of the conversation is open."""

    def __init__(self, conversation_id: UUID, open_turn: int, turn: int) -> None:
        self.conversation_id = conversation_id
        self.open_turn = open_turn
        self.turn = turn
        super().__init__(
            f"turn {open_turn} of conversation {conversation_id} is still open: leave its block "
            f"before entering turn {turn}, or open the conversation again if nothing will leave it"
        )


class NotCommitted(EventStoreError, RuntimeError):
    """A turn, or a conversation, began in a transaction that was not committed.

    Attributes:
        conversation_id: The conversation.
        turn: The turn's number, which is not used again; None if the conversation itself began.
    """

    def __init__(self, conversation_id: UUID, turn: int | None) -> None:
        self.conversation_id = conversation_id
        self.turn = turn
        what = f"turn {turn} of conversation" if turn else "conversation"
        super().__init__(
            f"{what} {conversation_id} began in a transaction that was rolled back, or is not "
            "committed yet: commit before you use it, or begin another"
        )


class UnknownAlias(EventStoreError, LookupError):
    """The alias names no tool result and no artifact of this conversation."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(
            f"{alias!r} names no output: an alias is @state/logs/tool-results/<call id>.txt or "
            ".json, or @project/artifacts/<path>"
        )


class ToolDenied(EventStoreError):
    """The tool policy does not allow a tool; the call was recorded as ``denied``."""

    def __init__(self, call_id: str, tool: str, reason: str) -> None:
        self.call_id = call_id
        self.tool = tool
        self.reason = reason
        super().__init__(
            f"call {call_id} of {tool!r} was recorded as denied, and must not run: {reason}"
        )


class CallAnswered(EventStoreError, RuntimeError):
    """A tool call that already has a result gets another decision; nothing was written.

    ``status`` is the status of the first result, which every view keeps.
    """

    def __init__(self, conversation_id: UUID, call_id: str, tool: str, status: str) -> None:
        self.conversation_id = conversation_id
        self.call_id = call_id
        self.tool = tool
        self.status = status
        super().__init__(
            f"call {call_id} of {tool!r} in conversation {conversation_id} already has a result "
            f"({status}); a second one would not be shown"
        )


class UnknownResponse(EventStoreError, ValueError):
    """A value passed as a model's answer has an unknown format; nothing was recorded.

    Attributes:
        seen: The value's type, with the names of its fields, if any.
        what: What the value was passed as: ``response``, ``chunk``, ``tool call``, ``usage`` ...
    """

    def __init__(self, value: Any, what: str = "response", why: str = "") -> None:
        self.seen, self.what = seen(value), what
        known = INSTEAD.get(what, "pass a text")
        super().__init__(f"{self.seen} is not a known {what}{why}: {known}")


class CallNotRecorded(EventStoreError, RuntimeError):
    """A call cannot be recorded, and ``record(..., unrecorded="raise")`` asked for an error."""

    def __init__(self, method: str, reason: str) -> None:
        self.method = method
        super().__init__(reason)


class ForkedWriter(EventStoreError, RuntimeError):
    """A child process uses a conversation that its parent opened; nothing was written."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f"conversation {conversation_id} was opened by the process that forked this one: open "
            "it in this process, which fences the parent, or leave it to the parent"
        )


class ImportFailed(EventStoreError, ValueError):
    """A record of a foreign file cannot be read; ``line`` counts from 1, None if unknown."""

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {reason}")
