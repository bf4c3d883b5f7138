"""Every error that this project raises on purpose, in one tree.

::

    EventStoreError
    ├── WrongExpectedVersion      the stream is at another version than the writer thought
    ├── WriterFenced              another writer has opened the conversation
    ├── LogWentBack               what was acknowledged is no longer in the log
    ├── EventIdConflict           some of the event ids are already elsewhere in the stream
    ├── OwnerMismatch             the conversation belongs to another tenant or user
    ├── InvalidEvent              what was handed in cannot be stored       (also ValueError)
    │   └── RedactionFailed       the redactor raised, so nobody knows what may be stored
    ├── InvalidCursor             a feed cursor that this log does not hold (also ValueError)
    ├── ConversationNotFound      (also LookupError)
    ├── BlobNotFound              (also LookupError)
    ├── BlobDamaged               the bytes of a blob cannot be unpacked
    ├── KeyUnavailable            what is sealed cannot be opened, or a key not made or destroyed
    ├── EventDamaged              a stored event's row cannot be read       (also ValueError)
    ├── ConversationDamaged       a conversation's own row cannot be read   (also ValueError)
    ├── RowDamaged                any other row, or its JSON, cannot be read (also ValueError)
    ├── CheckpointRefused         altered, not signed, or of another store  (also ValueError)
    ├── KeyRefused                a key for signatures cannot be used       (also ValueError)
    ├── BlockNotOpen              a turn or call is used outside its block  (also RuntimeError)
    ├── TurnStillOpen             a turn is entered within another one      (also RuntimeError)
    ├── UnknownAlias              no tool result has this alias             (also LookupError)
    ├── ToolDenied                the tool policy does not let a tool run
    ├── UnknownResponse           a model's answer in a shape that nobody knows (also ValueError)
    ├── InvalidProjection         a product's own cannot be made            (also ValueError)
    ├── UnknownProjection         no projection has this name               (also LookupError)
    ├── EncodingNotBundled        a tokenizer that is not carried along     (also LookupError)
    ├── UnknownStrategy           no compression strategy of this name      (also LookupError)
    ├── EmbeddingFailed           a product's embedding callable raised, or gave other vectors
    ├── RequestNotReproducible    the log no longer gives the messages that were sent
    ├── BudgetInfeasible          the mandatory messages alone exceed the budget
    ├── InvalidSettings           unknown or contradictory settings         (also ValueError)
    ├── InvalidPrompt             a product's prompt text cannot be used    (also ValueError)
    ├── ForkedWriter              a parent's conversation, used by its child (also RuntimeError)
    ├── UnsafeTransaction         of one's own, which does not make events durable (RuntimeError)
    ├── FactsNotWritten           a conversation was closed, and what has happened is not written
    ├── CallNotRecorded           a recorded client was called with no turn (also RuntimeError)
    ├── ProjectionFailed          a fold raised, at a conversation and version
    ├── ImportFailed              a record of a foreign file cannot be read (also ValueError)
    ├── StatementRefused          the database refuses a statement, however often it is tried
    └── StoreUnavailable          the database cannot be opened or used
        ├── InvalidUrl            (also ValueError)
        ├── CannotConnect         no server, wrong password, no such database
        ├── NotWritable           the file or its directory cannot be written
        ├── NotADatabase          the file is something else, or damaged
        ├── DatabaseReplaced      the file was deleted or replaced while the store was open
        ├── ForkedStore           a child holds its parent's connections of SQLite
        ├── DatabaseBusy          another writer held the lock beyond the timeout
        ├── SchemaOutdated        the schema is older than the code, and upgrading was declined
        ├── SchemaTooNew          the schema is newer than the code
        └── TablesTaken           a product's own tables have the names of the store's

The driver's error, where there is one, is the ``__cause__``. Data stand in attributes; the message
says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from eventstore.shapes import INSTEAD, seen
from eventstore.unavailable import (
    CannotConnect,
    DatabaseBusy,
    DatabaseReplaced,
    EventStoreError,
    ForkedStore,
    InvalidUrl,
    NotADatabase,
    NotWritable,
    SchemaOutdated,
    SchemaTooNew,
    StoreUnavailable,
    TablesTaken,
)

if TYPE_CHECKING:
    from eventstore.events.records import NewEvent

__all__ = [
    "BlobDamaged",
    "BlobNotFound",
    "BlockNotOpen",
    "BudgetInfeasible",
    "CallNotRecorded",
    "CannotConnect",
    "CheckpointRefused",
    "ConversationDamaged",
    "ConversationNotFound",
    "DatabaseBusy",
    "DatabaseReplaced",
    "EmbeddingFailed",
    "EncodingNotBundled",
    "EventDamaged",
    "EventIdConflict",
    "EventStoreError",
    "FactsNotWritten",
    "ForkedStore",
    "ForkedWriter",
    "ImportFailed",
    "InvalidCursor",
    "InvalidEvent",
    "InvalidProjection",
    "InvalidPrompt",
    "InvalidSettings",
    "InvalidUrl",
    "KeyRefused",
    "KeyUnavailable",
    "LogWentBack",
    "NotADatabase",
    "NotWritable",
    "OwnerMismatch",
    "ProjectionFailed",
    "RedactionFailed",
    "RequestNotReproducible",
    "RowDamaged",
    "SchemaOutdated",
    "SchemaTooNew",
    "StatementRefused",
    "StoreUnavailable",
    "TablesTaken",
    "ToolDenied",
    "TurnStillOpen",
    "UnknownAlias",
    "UnknownProjection",
    "UnknownResponse",
    "UnknownStrategy",
    "UnsafeTransaction",
    "WriterFenced",
    "WrongExpectedVersion",
]


class WrongExpectedVersion(EventStoreError):
    """The stream is not at the version that the writer expected; nothing was written."""

    def __init__(self, conversation_id: UUID, expected: int, actual: int) -> None:
        self.conversation_id = conversation_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"conversation {conversation_id} is at version {actual}, not {expected}: "
            "read what was appended meanwhile, then decide again"
        )


class WriterFenced(EventStoreError):
    """Another writer has opened the conversation; this one may append no more."""

    def __init__(self, conversation_id: UUID, epoch: int, current_epoch: int) -> None:
        self.conversation_id = conversation_id
        self.epoch = epoch
        self.current_epoch = current_epoch
        super().__init__(
            f"conversation {conversation_id} has been opened by another writer (epoch "
            f"{current_epoch}, this one has {epoch}): open it again to go on"
        )


class LogWentBack(EventStoreError):
    """An acknowledged event is gone: the database was replaced, or restored to an older state.

    Attributes:
        conversation_id: The conversation.
        version: That of the acknowledged event.
        actual: The conversation's version now; 0 if it is gone.
        lost: What the log no longer holds, as far as the recorder remembers; oldest first.
        first: The version that the oldest of these had.
    """

    def __init__(
        self,
        conversation_id: UUID,
        version: int,
        actual: int,
        lost: Sequence[NewEvent] = (),
        first: int | None = None,
    ) -> None:
        self.conversation_id = conversation_id
        self.version = version
        self.actual = actual
        self.lost = tuple(lost)
        self.first = first
        super().__init__(
            f"conversation {conversation_id} is at version {actual}, without what was written as "
            f"{version}: the database was replaced or restored to an older state. Write the "
            f"{len(self.lost)} events that are known with write_again(), or open it again"
        )


class EventIdConflict(EventStoreError):
    """Some event ids are in the stream already, but not all of them at the place asked for."""

    def __init__(self, conversation_id: UUID, versions: dict[UUID, int]) -> None:
        self.conversation_id = conversation_id
        self.versions = versions
        super().__init__(
            f"conversation {conversation_id} already holds {len(versions)} of these event ids, at "
            f"versions {sorted(versions.values())}: a retry must repeat the same events, "
            "all of them and in order; new facts need new ids"
        )


class OwnerMismatch(EventStoreError):
    """The conversation belongs to another tenant or user than the append says."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        super().__init__(f"conversation {conversation_id} belongs to another tenant or user")


class InvalidEvent(EventStoreError, ValueError):
    """What was handed in cannot be stored; nothing was written.

    Where one event of an append is too large in some way, ``index`` is its place among them, from
    0, ``field`` the path of what is too large, and ``limit`` says how large it may be.
    """

    def __init__(
        self,
        reason: str,
        *,
        index: int | None = None,
        field: str | None = None,
        limit: str | None = None,
    ) -> None:
        self.index = index
        self.field = field
        self.limit = limit
        super().__init__(reason)


class RedactionFailed(InvalidEvent):
    """The store's redactor raised, or returned what cannot stand there; nothing was written.

    ``index`` is the event's place in the append; the redactor's own error is the ``__cause__``.
    """


class InvalidCursor(EventStoreError, ValueError):
    """The cursor did not come from this store, or the event before it is no longer there."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(
            f"{cursor!r} is not a valid cursor for this store: pass one that read_all returned. If "
            "it did, the database was replaced or restored to an older state since: read the feed "
            "from its start"
        )


class ConversationNotFound(EventStoreError, LookupError):
    """No conversation has this id."""

    def __init__(self, conversation_id: UUID | str) -> None:
        self.conversation_id = conversation_id
        super().__init__(f"there is no conversation {conversation_id}")


class BlobNotFound(EventStoreError, LookupError):
    """The conversation keeps no such blob; it may have been erased."""

    def __init__(self, conversation_id: UUID, digest: str) -> None:
        self.conversation_id = conversation_id
        self.digest = digest
        super().__init__(
            f"conversation {conversation_id} has no blob {digest}: it may have been erased"
        )


class BlobDamaged(EventStoreError):
    """The bytes of a blob cannot be unpacked, or are not those that were kept: restore a backup."""

    def __init__(self, conversation_id: UUID, digest: str) -> None:
        self.conversation_id = conversation_id
        self.digest = digest
        super().__init__(f"blob {digest} of conversation {conversation_id} is damaged")


class KeyUnavailable(EventStoreError):
    """A conversation is sealed, and its key is not to be had.

    Attributes:
        conversation_id: Whose key.
        lasting: Whether the provider says that it has never had this key; otherwise there are no
            keys at all, or the provider failed, and trying again may help.
    """

    def __init__(self, conversation_id: UUID, reason: str, *, lasting: bool = False) -> None:
        self.conversation_id = conversation_id
        self.lasting = lasting
        super().__init__(
            f"conversation {conversation_id} is sealed, and its key is not available: {reason}; "
            "open the store with the keys that it was written with: EventStore.open(keys=...), "
            "or --keys DIR"
        )


class EventDamaged(EventStoreError, ValueError):
    """The row of an event was altered so that it cannot be read: restore a backup."""

    def __init__(self, conversation_id: UUID, version: int) -> None:
        self.conversation_id = conversation_id
        self.version = version
        super().__init__(
            f"event {version} of conversation {conversation_id} is damaged: restore a backup"
        )


class ConversationDamaged(EventStoreError, ValueError):
    """The row of a conversation was altered so that it cannot be read: restore a backup."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        super().__init__(f"the row of conversation {conversation_id} is damaged: restore a backup")


class CheckpointRefused(EventStoreError, ValueError):
    """A checkpoint cannot be relied on; ``reason`` says why."""

    def __init__(self, file: str, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"the checkpoint {file} is refused: {reason}")


class KeyRefused(EventStoreError, ValueError):
    """A key for signing, or for checking a signature, cannot be used."""


class BlockNotOpen(EventStoreError, RuntimeError):
    """A turn, a model call or a tool call is used before it is entered or after it was left."""


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


class InvalidProjection(EventStoreError, ValueError):
    """A projection of a product's own cannot be made as it is declared; ``reason`` says why."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"projection {name!r}: {reason}")


class UnknownProjection(EventStoreError, LookupError):
    """No projection has this name."""

    def __init__(self, name: str, choices: tuple[str, ...]) -> None:
        self.name = name
        self.choices = choices
        super().__init__(f"there is no projection {name!r}: choose from {', '.join(choices)}")


class EncodingNotBundled(EventStoreError, LookupError):
    """The tokenizer's ranks are not carried along, and nothing is downloaded at run time."""

    def __init__(self, encoding: str, choices: tuple[str, ...]) -> None:
        self.encoding = encoding
        self.choices = choices
        super().__init__(f"encoding {encoding!r} is not bundled: choose {' or '.join(choices)}")


class UnknownResponse(EventStoreError, ValueError):
    """What was handed in as a model's answer has a shape that nobody knows; nothing was recorded.

    Attributes:
        seen: Its type, with the names of its fields where it has some.
        what: What it was handed in as: ``response``, ``chunk``, ``tool call``, ``usage`` ...
    """

    def __init__(self, value: Any, what: str = "response") -> None:
        self.seen, self.what = seen(value), what
        known = INSTEAD.get(what, "a text is wanted")
        super().__init__(f"{self.seen} is no {what} that is known: {known}")


class UnknownStrategy(EventStoreError, LookupError):
    """There is no compression strategy of this name."""

    def __init__(self, name: str, choices: tuple[str, ...]) -> None:
        self.name = name
        self.choices = choices
        super().__init__(f"there is no strategy {name!r}: choose from {', '.join(choices)}")


class EmbeddingFailed(EventStoreError):
    """A product's embedding callable raised, or did not give a vector for each text."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the embedding callable failed: {reason}")


class RequestNotReproducible(EventStoreError):
    """The log no longer gives the messages that were sent with a request."""

    def __init__(self, conversation_id: UUID, version: int, reason: str) -> None:
        self.conversation_id = conversation_id
        self.version = version
        self.reason = reason
        super().__init__(
            f"the messages of the request at version {version} of conversation {conversation_id} "
            f"cannot be given back: {reason}"
        )


class BudgetInfeasible(EventStoreError):
    """The messages that must be sent are larger than the budget."""

    def __init__(self, max_tokens: int, mandatory: dict[str, int]) -> None:
        self.max_tokens = max_tokens
        self.mandatory = mandatory
        sizes = ", ".join(f"{name}: {tokens}" for name, tokens in mandatory.items())
        super().__init__(
            f"the budget of {max_tokens} tokens cannot hold what must be sent "
            f"({sum(mandatory.values())} tokens: {sizes}): raise it or shorten these"
        )


class InvalidSettings(EventStoreError, ValueError):
    """Settings are unknown, out of range, or contradict each other; ``problems`` has one a line."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(f"invalid settings: {'; '.join(problems)}")


class InvalidPrompt(EventStoreError, ValueError):
    """A text of the product's for the system part cannot be read; ``source`` says which."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"prompt text {source}: {reason}")


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


class UnsafeTransaction(EventStoreError, RuntimeError):
    """A transaction of one's own is none, is not durable, or had ended before its block did."""

    def __init__(
        self,
        reason: str,
        outcome: str = "nothing was appended; use `with store.transaction() as connection:`",
    ) -> None:
        super().__init__(f"{reason}: {outcome}")


class ProjectionFailed(EventStoreError):
    """A fold raised, or an event could not be read; nothing of the conversation was written."""

    def __init__(self, projection: str, conversation_id: UUID, version: int) -> None:
        self.projection = projection
        self.conversation_id = conversation_id
        self.version = version
        super().__init__(
            f"projection {projection} failed on conversation {conversation_id} at version {version}"
        )


class ImportFailed(EventStoreError, ValueError):
    """A record of a foreign file cannot be read; ``line`` counts from 1, None if unknown."""

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {reason}")


class RowDamaged(EventStoreError, ValueError):
    """A row holds what this package has not written: a value of another type, no JSON, no time."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a stored row cannot be read ({what}): rebuild the projections if it is one of "
            "theirs, else restore a backup"
        )


class StatementRefused(EventStoreError):
    """The database works, and refuses a statement for good: a limit, a missing table, a value.

    Attributes:
        url: The database, without its password.
        code: PostgreSQL's SQLSTATE or the name of SQLite's result code; the class of the driver's
            error where it has neither.
    """

    def __init__(self, url: str, code: str, reason: str) -> None:
        self.url = url
        self.code = code
        super().__init__(f"{url}: refused with {code}: {reason}")
