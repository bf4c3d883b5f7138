"""All errors that this project raises itself, in one tree.

::

    EventStoreError
    ├── WrongExpectedVersion      the stream is not at the version that the writer expected
    │   └── ConversationExists    the conversation to start already exists
    ├── WriterFenced              another writer has opened the conversation
    ├── ConversationInUse         another session is writing to the conversation
    ├── LogWentBack               acknowledged events are no longer in the log
    ├── EventIdConflict           some of the event ids already exist elsewhere in the stream
    ├── OwnerMismatch             the conversation belongs to another tenant or user
    ├── ForkRefused               the conversation cannot be forked there   (also ValueError)
    ├── ConversationForked        forks share events of a conversation to purge (also ValueError)
    ├── DeletionIncomplete        the database erased or deleted fewer rows than there are
    ├── EventsShared              a parent's events must be erased in the parent (also ValueError)
    ├── InvalidEvent              the data cannot be stored                 (also ValueError)
    │   └── RedactionFailed       the redactor raised, so the event cannot be stored safely
    ├── InvalidCursor             a feed cursor from another log            (also ValueError)
    ├── ConversationNotFound      (also LookupError)
    ├── ConversationArchived      the conversation is in the archive, not in the database
    ├── ArchiveFailed             a file of the archive cannot be used, or was altered
    ├── BlobNotFound              (also LookupError)
    ├── BlobDamaged               a blob's bytes cannot be unpacked, or are not the stored ones
    ├── KeyUnavailable            a key cannot be used, created or destroyed
    ├── EventDamaged              an event's row cannot be read             (also ValueError)
    ├── ConversationDamaged       a conversation's row cannot be read       (also ValueError)
    ├── RowDamaged                another row, or its JSON, cannot be read  (also ValueError)
    ├── OutputFileError           files of tool outputs cannot be written or deleted (also OSError)
    ├── CheckpointRefused         altered, unsigned, or of another store    (also ValueError)
    ├── KeyRefused                a signature key cannot be used            (also ValueError)
    ├── BlockNotOpen              a turn or call is used outside its block  (also RuntimeError)
    ├── BranchRefused             nothing there to edit, rewind or switch to (also ValueError)
    ├── ConversationEnded         the conversation was destroyed            (also RuntimeError)
    ├── TurnRunning               a message was posted again while its turn runs (also RuntimeError)
    ├── TurnStopped               the turn was stopped                      (also RuntimeError)
    ├── TurnStillOpen             a turn is entered while another is open   (also RuntimeError)
    ├── NotCommitted              a turn's transaction was not committed    (also RuntimeError)
    ├── UnknownAlias              no tool result has this alias             (also LookupError)
    ├── ToolDenied                the tool policy does not allow a tool
    ├── UnknownResponse           a model's answer has an unknown format    (also ValueError)
    ├── InvalidProjection         a product's projection is not valid       (also ValueError)
    ├── UnknownProjection         no projection has this name               (also LookupError)
    ├── EncodingNotBundled        the tokenizer is not bundled              (also LookupError)
    ├── UnknownStrategy           no compression strategy has this name     (also LookupError)
    ├── EmbeddingFailed           a product's embedding callable raised, or returned wrong vectors
    ├── RequestNotReproducible    the log no longer renders the messages that were sent
    ├── WrongThread               a chat was opened from another thread     (also LookupError)
    ├── PromptTooLong             an agent's request would exceed its limit (also ValueError)
    ├── BudgetInfeasible          the mandatory messages alone exceed the budget
    ├── InvalidSettings           unknown or contradictory settings         (also ValueError)
    ├── InvalidPrompt             a product's prompt text cannot be used    (also ValueError)
    ├── ForkedWriter              a child process uses its parent's conversation (also RuntimeError)
    ├── StoreClosed               the asynchronous store was closed         (also RuntimeError)
    ├── UnsafeTransaction         the caller's transaction is not durable   (also RuntimeError)
    ├── FactsNotWritten           a conversation was closed with unwritten events
    ├── CallAnswered              the tool call already has a result        (also RuntimeError)
    ├── CallNotRecorded           a recorded client was called with no turn (also RuntimeError)
    ├── ProjectionFailed          a fold raised, at a conversation and version
    ├── GenerationGone            a rebuild has replaced the tables in use
    ├── ImportFailed              a record of a foreign file cannot be read (also ValueError)
    ├── ParquetRefused            the directory has something else in it    (also ValueError)
    ├── StatementRefused          the database refuses a statement; retrying does not help
    └── StoreUnavailable          the database cannot be opened or used
        ├── InvalidUrl            (also ValueError)
        ├── CannotConnect         no server, wrong password, no such database
        │   └── ServerSilent      the server stopped answering within a statement
        ├── NotWritable           the file or its directory cannot be written
        ├── NotADatabase          the file is not a database, or is damaged
        ├── DatabaseReplaced      the file was deleted or replaced while the store was open
        ├── ForkedStore           a child process uses its parent's SQLite connections
        ├── DatabaseBusy          another writer held the lock beyond the timeout
        ├── SchemaOutdated        the schema is older than the code, and upgrading was declined
        ├── SchemaTooNew          the schema is newer than the code
        └── TablesTaken           a product's own tables use names of the store's tables

The driver's error, if any, is the ``__cause__``. Attributes hold the data; the message says what to
do next. Each layer defines the errors that it raises, see `eventstore.errors` and
`projections.errors`; this module adds those of this layer, and exports all of them.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import eventstore.errors
import projections.errors
from eventstore.errors import *  # noqa: F403
from eventstore.errors import EventStoreError
from projections.errors import *  # noqa: F403

__all__ = [
    "BlockNotOpen",
    "BranchRefused",
    "CallAnswered",
    "CallNotRecorded",
    "ConversationEnded",
    "ForkedWriter",
    "ImportFailed",
    "NotCommitted",
    "ParquetRefused",
    "PromptTooLong",
    "ToolDenied",
    "TurnRunning",
    "TurnStillOpen",
    "TurnStopped",
    "UnknownAlias",
    "WrongThread",
]
__all__ += eventstore.errors.__all__
__all__ += projections.errors.__all__


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
        requested = "no thread" if thread_slug is None else f"the thread {thread_slug!r}"
        super().__init__(
            f"conversation {conversation_id} does not belong to {requested}: open it with the "
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


class ParquetRefused(EventStoreError, ValueError):
    """A directory cannot take an export: it holds something else, or another store's export."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        super().__init__(f"{directory}: {reason}")
