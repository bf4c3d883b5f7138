"""What recorders, agents and importers refuse or fail at; see `agent_eventstore.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from eventstore.errors import EventStoreError

if TYPE_CHECKING:
    from eventstore.events.records import NewEvent

__all__ = [
    "BlockNotOpen",
    "BranchRefused",
    "CallAnswered",
    "CallNotRecorded",
    "ConversationEnded",
    "FactsNotWritten",
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
        "hand in the whole answer of OpenAI, Anthropic, Gemini, Ollama, Cohere or Bedrock, as an "
        "object or a dict, and the chunks of a stream to call.feed(chunk) one by one; of any other "
        "SDK say call.text('...'), "
        "or call.message(text=..., tool_calls=..., usage=..., finish_reason=...)"
    ),
    "chunk": (
        "hand in the chunks of OpenAI, Anthropic, Gemini, Ollama, Cohere or Bedrock one by one, as "
        "objects or dicts; of any other SDK say call.delta('...') for each piece of text"
    ),
    "tool call": "say {'name': ..., 'arguments': ..., 'id': ...}",
    "usage": "say {'prompt_tokens': ..., 'completion_tokens': ...}",
}

_NAMED = 8


def seen(value: Any) -> str:
    """Return the type of a value, and of a dictionary the names of its fields."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if not issubclass(kind, dict):  # an object of a caller's may refuse to tell its class
        return name
    fields = [repr(key)[:40] for key in list(value)[:_NAMED]]
    return f"a dict with {', '.join(fields)}" if fields else "an empty dict"


class BlockNotOpen(EventStoreError, RuntimeError):
    """A turn, a model call or a tool call is used before it is entered or after it was left."""


class WrongThread(EventStoreError, LookupError):
    """A chat session is opened from a thread that it does not belong to; nothing was changed.

    Attributes:
        conversation_id: The session's conversation.
        thread_slug: The thread that it was asked for in.
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
    """An agent's next request would be over its limit, and is refused; nothing was written.

    ``tokens`` is what the request would have, by this project's count, ``limit`` what it may have.
    """

    def __init__(self, conversation_id: UUID, tokens: int, limit: int) -> None:
        self.conversation_id = conversation_id
        self.tokens = tokens
        self.limit = limit
        super().__init__(
            f"the next request of conversation {conversation_id} would have {tokens:,} tokens, and "
            f"at most {limit:,} are allowed: say it in fewer words, or trim the history"
        )


class TurnRunning(EventStoreError, RuntimeError):
    """A message is posted again, and the turn of its first post has not ended; nothing was written.

    ``turn`` is the turn's number, ``message_id`` the product's id of the message.
    """

    def __init__(self, conversation_id: UUID, turn: int | None, message_id: str) -> None:
        self.conversation_id = conversation_id
        self.turn = turn
        self.message_id = message_id
        super().__init__(
            f"message {message_id!r} of conversation {conversation_id} was posted before, and its "
            f"turn {turn} is running: post it again once that has ended, or follow the timeline"
        )


class BranchRefused(EventStoreError, ValueError):
    """A conversation cannot be edited, answered again, rewound or switched there.

    Attributes:
        conversation_id: The conversation, of which nothing was changed.
        reason: Why.
    """

    def __init__(self, conversation_id: UUID, reason: str) -> None:
        self.conversation_id = conversation_id
        self.reason = reason
        super().__init__(f"conversation {conversation_id} keeps its branch: {reason}")


class TurnStopped(EventStoreError, RuntimeError):
    """`Turn.stop` was called: the turn's own thread gets this where it goes on next.

    It ends the turn, whose block keeps it: what follows the block runs.

    Attributes:
        conversation_id: The conversation.
        turn: The turn's number.
        reason: Why, in words.
    """

    def __init__(self, conversation_id: UUID, turn: int, reason: str) -> None:
        self.conversation_id = conversation_id
        self.turn = turn
        self.reason = reason
        super().__init__(
            f"turn {turn} of conversation {conversation_id} was {reason}: leave its block"
        )


class ConversationEnded(EventStoreError, RuntimeError):
    """A turn is to begin in a conversation that was destroyed."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f"conversation {conversation_id} was destroyed and takes no more turns: its history "
            "can be read, and `Conversation.fork` goes on from it"
        )


class TurnStillOpen(EventStoreError, RuntimeError):
    """A turn is entered while another one of the conversation is open."""

    def __init__(self, conversation_id: UUID, open_turn: int, turn: int) -> None:
        self.conversation_id = conversation_id
        self.open_turn = open_turn
        self.turn = turn
        super().__init__(
            f"turn {open_turn} of conversation {conversation_id} is still open: leave its block "
            f"before turn {turn} is entered, or open the conversation again if nobody will"
        )


class NotCommitted(EventStoreError, RuntimeError):
    """A turn, or a conversation, began in a transaction that was not committed.

    Attributes:
        conversation_id: The conversation.
        turn: The turn's number, which is not used again; None if it is the conversation.
    """

    def __init__(self, conversation_id: UUID, turn: int | None) -> None:
        self.conversation_id = conversation_id
        self.turn = turn
        what = f"turn {turn} of conversation" if turn else "conversation"
        super().__init__(
            f"{what} {conversation_id} began in a transaction that was rolled back, or is not "
            "committed yet: commit before going on with it, or begin another"
        )


class UnknownAlias(EventStoreError, LookupError):
    """The path names no tool result and no artifact of this conversation."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(
            f"{alias!r} names no output: aliases read @state/logs/tool-results/<call id>.txt or "
            ".json, or @project/artifacts/<path>"
        )


class ToolDenied(EventStoreError):
    """The tool policy does not let a tool run; the call was recorded as ``denied``."""

    def __init__(self, call_id: str, tool: str, reason: str) -> None:
        self.call_id = call_id
        self.tool = tool
        self.reason = reason
        super().__init__(
            f"call {call_id} of {tool!r} was recorded as denied, and must not run: {reason}"
        )


class CallAnswered(EventStoreError, RuntimeError):
    """A tool call that has its result is denied, skipped or replaced; nothing was written.

    ``status`` is that of its result, which every view keeps.
    """

    def __init__(self, conversation_id: UUID, call_id: str, tool: str, status: str) -> None:
        self.conversation_id = conversation_id
        self.call_id = call_id
        self.tool = tool
        self.status = status
        super().__init__(
            f"call {call_id} of {tool!r} in conversation {conversation_id} has its result already "
            f"({status}), and a second one would not be shown"
        )


class UnknownResponse(EventStoreError, ValueError):
    """What was handed in as a model's answer has a shape that nobody knows; nothing was recorded.

    Attributes:
        seen: Its type, with the names of its fields where it has some.
        what: What it was handed in as: ``response``, ``chunk``, ``tool call``, ``usage`` ...
    """

    def __init__(self, value: Any, what: str = "response", why: str = "") -> None:
        self.seen, self.what = seen(value), what
        known = INSTEAD.get(what, "a text is wanted")
        super().__init__(f"{self.seen} is not a known {what}{why}: {known}")


class CallNotRecorded(EventStoreError, RuntimeError):
    """A recorded client was called where no turn is open, and the product wants that refused."""

    def __init__(self, method: str, reason: str) -> None:
        self.method = method
        super().__init__(reason)


class FactsNotWritten(EventStoreError):
    """A conversation is closed, and what has happened in it could not be written.

    It is kept in memory: closing again tries again. ``events`` are what is kept, in order; the
    cause is why the last try failed.
    """

    def __init__(
        self, conversation_id: UUID, events: tuple[NewEvent, ...], kinds: dict[str, int], why: str
    ) -> None:
        self.conversation_id = conversation_id
        self.events = events
        named = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        super().__init__(
            f"conversation {conversation_id} is closed, and {len(events)} of its events are not "
            f"written ({named}): {why}. Close it again to try again"
        )


class ForkedWriter(EventStoreError, RuntimeError):
    """A conversation that was opened before a fork is its parent's; nothing was written."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f"conversation {conversation_id} was opened by the process that forked this one: open "
            "it in this process, which fences the other, or leave it to that one"
        )


class ImportFailed(EventStoreError, ValueError):
    """A record of a foreign file cannot be read; ``line`` counts from 1, None if unknown."""

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {reason}")
