"""What the log refuses or fails at; `agent_eventstore.errors` draws the tree of all errors.

The driver's error, where there is one, is the ``__cause__``. Data stand in attributes; the message
says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import UUID

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
    "CannotConnect",
    "CheckpointRefused",
    "ConversationDamaged",
    "ConversationExists",
    "ConversationForked",
    "ConversationInUse",
    "ConversationNotFound",
    "DatabaseBusy",
    "DatabaseReplaced",
    "EventDamaged",
    "EventIdConflict",
    "EventStoreError",
    "EventsShared",
    "ForkRefused",
    "ForkedStore",
    "InvalidCursor",
    "InvalidEvent",
    "InvalidUrl",
    "KeyRefused",
    "KeyUnavailable",
    "LogWentBack",
    "NotADatabase",
    "NotWritable",
    "OwnerMismatch",
    "RedactionFailed",
    "RowDamaged",
    "SchemaOutdated",
    "SchemaTooNew",
    "StatementRefused",
    "StoreClosed",
    "StoreUnavailable",
    "TablesTaken",
    "UnsafeTransaction",
    "WriterFenced",
    "WrongExpectedVersion",
]

ErrorType = type[BaseException] | None  # These two: with what a ``with`` block is left.
Trace = TracebackType | None


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


class ConversationExists(WrongExpectedVersion):
    """A conversation is to begin that there is already; nothing was written.

    ``key`` is the product's key for it, if it was named by one.
    """

    def __init__(self, conversation_id: UUID, actual: int, key: str | None = None) -> None:
        super().__init__(conversation_id, 0, actual)
        self.key = key
        named = "" if key is None else f" with the key {key!r}"
        said = f"there is a conversation {conversation_id}{named} already"
        self.args = (f'{said}: open it, or start it with if_exists="open"',)


class WriterFenced(EventStoreError):
    """Another writer has opened the conversation; this one may append no more."""

    def __init__(self, conversation_id: UUID, epoch: int, current_epoch: int) -> None:
        self.conversation_id = conversation_id
        self.epoch = epoch
        self.current_epoch = current_epoch
        super().__init__(
            f"conversation {conversation_id} has been opened by another writer, or its log was "
            f"set back behind this one's opening (epoch {current_epoch}, this one has {epoch}): "
            "open it again to go on"
        )


class ConversationInUse(EventStoreError):
    """Another session writes to the conversation now; nothing was changed.

    Attributes:
        conversation_id: The conversation.
        who: The process of that session, and its machine.
        since: When it opened the conversation.
        until: When its lease runs out, unless it is renewed, as it is while the process lives.
    """

    def __init__(self, conversation_id: UUID, who: str, since: datetime, until: datetime) -> None:
        self.conversation_id = conversation_id
        self.who = who
        self.since = since
        self.until = until
        super().__init__(
            f"conversation {conversation_id} is in use by {who} since {since:%Y-%m-%d %H:%M:%S} "
            'UTC: wait until it is closed (if_busy="wait"), or end what it has open '
            '(if_busy="take_over"; of recover, take_over=True)'
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


class ForkRefused(EventStoreError, ValueError):
    """A conversation cannot be forked at this version; ``reason`` says why."""

    def __init__(self, conversation_id: UUID, reason: str) -> None:
        self.conversation_id = conversation_id
        self.reason = reason
        super().__init__(f"conversation {conversation_id} cannot be forked: {reason}")


class EventsShared(EventStoreError, ValueError):
    """Events are to be erased in a fork that are its parent's; nothing was erased.

    Erase them in ``parent``, which takes them from the fork, too; they end with ``version``.
    """

    def __init__(self, conversation_id: UUID, parent: UUID, version: int) -> None:
        self.conversation_id = conversation_id
        self.parent = parent
        self.version = version
        super().__init__(
            f"conversation {conversation_id} shares its versions up to {version} with {parent}: "
            f"erase them in conversation {parent}, which takes them from its forks as well"
        )


class ConversationForked(EventStoreError, ValueError):
    """A conversation is to be purged whose events forks share; nothing was purged.

    ``forks`` are the conversations that share its events.
    """

    def __init__(self, conversation_id: UUID, forks: Sequence[UUID]) -> None:
        self.conversation_id = conversation_id
        self.forks = tuple(forks)
        few = ", ".join(map(str, self.forks[:3])) + (", ..." if len(self.forks) > 3 else "")
        super().__init__(
            f"conversation {conversation_id} shares its events with {len(self.forks)} forks "
            f"({few}): purge these first, or all of them with forks=True"
        )


class OwnerMismatch(EventStoreError):
    """A conversation belongs to another tenant or user than was named, or than a store is bound to.

    ``conversation_id`` is None where all conversations of others were asked for.
    """

    def __init__(self, conversation_id: UUID | None, reason: str = "") -> None:
        self.conversation_id = conversation_id
        whose = reason or f"conversation {conversation_id} belongs to another tenant or user"
        super().__init__(whose)


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

    def __init__(self, cursor: str, advice: str | None = None) -> None:
        self.cursor = cursor
        super().__init__(
            f"{cursor!r} is not a valid cursor for this store: "
            + (
                advice
                or "pass one that read_all returned. If it did, the database was replaced "
                "or restored to an older state since: read the feed from its start"
            )
        )


class ConversationNotFound(EventStoreError, LookupError):
    """No conversation has this id, or the ``key`` that it was asked for by."""

    def __init__(self, conversation_id: UUID | str) -> None:
        self.conversation_id = conversation_id
        self.key: str | None = getattr(conversation_id, "key", None)
        named = conversation_id if self.key is None else f"with the key {self.key!r}"
        super().__init__(f"there is no conversation {named}")


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


class StoreClosed(EventStoreError, RuntimeError):
    """An `AsyncEventStore` is used after it was closed; nothing was written."""


class UnsafeTransaction(EventStoreError, RuntimeError):
    """A transaction of one's own is none, is not durable, or had ended before its block did."""

    def __init__(
        self,
        reason: str,
        outcome: str = "nothing was appended; use `with store.transaction() as connection:`",
    ) -> None:
        super().__init__(f"{reason}: {outcome}")


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
