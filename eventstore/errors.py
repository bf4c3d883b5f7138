"""Errors of the log; `agent_eventstore.errors` draws the tree of all errors.

The driver's error, if any, is the ``__cause__``. Attributes hold the data; the message says what to
do next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from eventstore.events.records import NewEvent

__all__ = [
    "ArchiveFailed",
    "BlobDamaged",
    "BlobNotFound",
    "CannotConnect",
    "CheckpointRefused",
    "ConversationArchived",
    "ConversationDamaged",
    "ConversationExists",
    "ConversationForked",
    "ConversationInUse",
    "ConversationNotFound",
    "DatabaseBusy",
    "DatabaseReplaced",
    "DeletionIncomplete",
    "EventDamaged",
    "EventIdConflict",
    "EventStoreError",
    "EventsShared",
    "FactsNotWritten",
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
    "OutputFileError",
    "OwnerMismatch",
    "RedactionFailed",
    "RowDamaged",
    "SchemaOutdated",
    "SchemaTooNew",
    "ServerSilent",
    "StatementRefused",
    "StoreClosed",
    "StoreUnavailable",
    "TablesTaken",
    "UnsafeTransaction",
    "WriterFenced",
    "WrongExpectedVersion",
]


class EventStoreError(Exception):
    """The root of the tree.

    ``receipt`` is the receipt of an erasure or purge that was committed before this error: what
    failed came after it, such as the deletion of a file. None if nothing was erased.
    """

    receipt: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error unchanged: worker processes pass it to their parent."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[EventStoreError], args: tuple[Any, ...], state: Any) -> EventStoreError:
    # Bypasses the initialiser, which builds the message from its own arguments.
    error = kind.__new__(kind, *args)
    error.args = args  # an OSError takes them in its initialiser only
    error.__dict__.update(state)
    return error


class StoreUnavailable(EventStoreError):
    """The database cannot be opened or used; ``url`` has its password masked."""

    def __init__(self, url: str, reason: str, **details: Any) -> None:
        self.url = url
        self.details = details
        super().__init__(f"{url}: {reason}")


class InvalidUrl(StoreUnavailable, ValueError):
    """The URL does not name a database that this project supports."""


class CannotConnect(StoreUnavailable):
    """The server does not answer or rejects the login."""


class ServerSilent(CannotConnect):
    """The server stopped answering within a statement, and the connection was closed.

    The message names the statement. Whether a commit that waited took effect is not known; as with
    any lost connection, repeating an append with the same event ids is safe.
    """


class NotWritable(StoreUnavailable):
    """The database, its file or its directory is not writable."""


class NotADatabase(StoreUnavailable):
    """The file is not a SQLite database or is damaged."""


class DatabaseReplaced(StoreUnavailable):
    """The database file was deleted or replaced: open the store again."""


class ForkedStore(StoreUnavailable):
    """This process was forked while its parent was using the SQLite database."""


class DatabaseBusy(StoreUnavailable):
    """Another writer held the lock for longer than the timeout."""


class SchemaOutdated(StoreUnavailable):
    """The schema is older than the code: run ``eventstore db upgrade``."""


class SchemaTooNew(StoreUnavailable):
    """The schema is newer than the code: upgrade the package."""


class TablesTaken(StoreUnavailable):
    """Tables that this package did not create have its table names; ``names`` lists them."""

    def __init__(self, url: str, names: list[str]) -> None:
        self.names = names
        super().__init__(
            url,
            f"tables of other software have names that the store needs: {', '.join(names)}. "
            "Give the store its own database, schema or file",
        )


ErrorType = type[BaseException] | None  # These two: arguments of ``__exit__``.


Traceback = TracebackType | None


class WrongExpectedVersion(EventStoreError):
    """The stream is not at the version that the writer expected; nothing was written."""

    def __init__(self, conversation_id: UUID, expected: int, actual: int) -> None:
        self.conversation_id = conversation_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"conversation {conversation_id} is at version {actual}, not {expected}: "
            "read the new events, then decide again"
        )


class ConversationExists(WrongExpectedVersion):
    """The conversation to start already exists; nothing was written.

    ``key`` is the product's key for the conversation, if the caller gave one.
    """

    def __init__(self, conversation_id: UUID, actual: int, key: str | None = None) -> None:
        super().__init__(conversation_id, 0, actual)
        self.key = key
        named = "" if key is None else f" with the key {key!r}"
        message = f"conversation {conversation_id}{named} already exists"
        self.args = (f'{message}: open it, or start it with if_exists="open"',)


class WriterFenced(EventStoreError):
    """Another writer has opened the conversation; this one can no longer append."""

    def __init__(self, conversation_id: UUID, epoch: int, current_epoch: int) -> None:
        self.conversation_id = conversation_id
        self.epoch = epoch
        self.current_epoch = current_epoch
        super().__init__(
            f"another writer has opened conversation {conversation_id}, or its log was restored "
            f"to a state before this writer opened it (epoch {current_epoch}, this writer has "
            f"{epoch}): open it again to continue"
        )


class ConversationInUse(EventStoreError):
    """Another session is writing to the conversation; nothing was changed.

    Attributes:
        conversation_id: The conversation.
        who: The process and machine of that session.
        since: When the session opened the conversation.
        until: When its lease expires. A live process renews the lease.
        session_id: That session.
        leaving: Whether it is of this process and about to end.
    """

    def __init__(
        self,
        conversation_id: UUID,
        who: str,
        since: datetime,
        until: datetime,
        *,
        session_id: str = "",
        leaving: bool = False,
    ) -> None:
        self.session_id = session_id
        self.leaving = leaving
        self.conversation_id = conversation_id
        self.who = who
        self.since = since
        self.until = until
        super().__init__(
            f"conversation {conversation_id} has been in use by {who} since "
            f'{since:%Y-%m-%d %H:%M:%S} UTC: wait until it is closed (if_busy="wait"), or take it '
            'over and end its open work (if_busy="take_over"; take_over=True for recover)'
        )


class FactsNotWritten(EventStoreError):
    """A conversation, or the store, was closed, but some events could not be written.

    They are kept in memory and retried: see `eventstore.outbox`. ``events`` are these events, in
    order; the ``__cause__`` is the error of the last attempt.
    """

    def __init__(
        self,
        conversation_id: UUID,
        events: tuple[NewEvent, ...],
        why: str,
        *,
        conversations: int = 1,
    ) -> None:
        self.conversation_id = conversation_id
        self.events = events
        kinds = Counter(event.data.type for event in events)
        named = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        others = f" and {conversations - 1} others" if conversations > 1 else ""
        super().__init__(
            f"conversation {conversation_id}{others} is closed, but {len(events)} of its events "
            f"are not written ({named}): {why}. They are written once the database answers, by "
            "this process; store.unwritten() lists them"
        )


class LogWentBack(EventStoreError):
    """An acknowledged event is gone: the database was replaced, or restored to an older state.

    Attributes:
        conversation_id: The conversation.
        version: The version of the acknowledged event.
        actual: The conversation's current version; 0 if the conversation is gone.
        lost: The lost events that the recorder still remembers, oldest first.
        first: The version of the oldest of these.
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
            f"conversation {conversation_id} is at version {actual}, without the event written as "
            f"{version}: the database was replaced or restored to an older state. Write the "
            f"{len(self.lost)} remembered events with write_again(), or open the conversation again"
        )


class EventIdConflict(EventStoreError):
    """Some of the event ids are already in the stream, but not all of them at this place."""

    def __init__(self, conversation_id: UUID, versions: dict[UUID, int]) -> None:
        self.conversation_id = conversation_id
        self.versions = versions
        super().__init__(
            f"conversation {conversation_id} already holds {len(versions)} of these event ids, at "
            f"versions {sorted(versions.values())}: a retry must repeat all the same events in "
            "the same order; new facts need new ids"
        )


class ForkRefused(EventStoreError, ValueError):
    """The conversation cannot be forked at this version; ``reason`` says why."""

    def __init__(self, conversation_id: UUID, reason: str) -> None:
        self.conversation_id = conversation_id
        self.reason = reason
        super().__init__(f"conversation {conversation_id} cannot be forked: {reason}")


class EventsShared(EventStoreError, ValueError):
    """Events to erase in a fork belong to its parent; nothing was erased.

    Erase them in ``parent``, which erases them in the fork as well. The fork shares its versions
    up to ``version``.
    """

    def __init__(self, conversation_id: UUID, parent: UUID, version: int) -> None:
        self.conversation_id = conversation_id
        self.parent = parent
        self.version = version
        super().__init__(
            f"conversation {conversation_id} shares its versions up to {version} with {parent}: "
            f"erase them in conversation {parent}, which erases them in its forks as well"
        )


class ConversationForked(EventStoreError, ValueError):
    """Forks share the events of the conversation to purge; nothing was purged.

    ``forks`` are the conversations that share its events.
    """

    def __init__(self, conversation_id: UUID, forks: Sequence[UUID]) -> None:
        self.conversation_id = conversation_id
        self.forks = tuple(forks)
        examples = ", ".join(map(str, self.forks[:3])) + (", ..." if len(self.forks) > 3 else "")
        super().__init__(
            f"conversation {conversation_id} shares its events with {len(self.forks)} forks "
            f"({examples}): purge the forks first, or everything together with forks=True"
        )


class DeletionIncomplete(EventStoreError):
    """The database changed fewer rows than an erasure or purge found; nothing was changed.

    Attributes:
        conversation_id: The conversation.
        table: The table.
        planned: How many rows should have been erased or deleted.
        done: How many the database changed.
    """

    def __init__(self, conversation_id: UUID, table: str, planned: int, done: int) -> None:
        self.conversation_id = conversation_id
        self.table = table
        self.planned = planned
        self.done = done
        super().__init__(
            f"conversation {conversation_id}: {done:,} of {planned:,} rows of {table} would be "
            "erased: check the triggers, rules and row-level security of the table "
            "(eventstore doctor), then repeat it as the tables' owner"
        )


class OwnerMismatch(EventStoreError):
    """The conversation belongs to a tenant or user other than the one named or the store's own.

    ``conversation_id`` is None if the call concerned every conversation of other owners.
    """

    def __init__(self, conversation_id: UUID | None, reason: str = "") -> None:
        self.conversation_id = conversation_id
        message = reason or f"conversation {conversation_id} belongs to another tenant or user"
        super().__init__(message)


class InvalidEvent(EventStoreError, ValueError):
    """An event or another argument cannot be stored; nothing was written.

    If an event of an append exceeds a limit, ``index`` is its 0-based index in the append,
    ``field`` the path of the oversized value, and ``limit`` the limit as text.
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
    """The store's redactor raised, or returned an invalid value; nothing was written.

    ``index`` is the event's index in the append; the redactor's own error is the ``__cause__``.
    """


class InvalidCursor(EventStoreError, ValueError):
    """The cursor did not come from this store, or its event no longer exists."""

    def __init__(self, cursor: str, advice: str | None = None) -> None:
        self.cursor = cursor
        super().__init__(
            f"{cursor!r} is not a valid cursor for this store: "
            + (
                advice
                or "pass one that read_all returned. If you did, the database has been replaced "
                "or restored to an older state since: read the feed from its start"
            )
        )


class ConversationNotFound(EventStoreError, LookupError):
    """No conversation has this id or ``key``."""

    def __init__(self, conversation_id: UUID | str) -> None:
        self.conversation_id = conversation_id
        self.key: str | None = getattr(conversation_id, "key", None)
        named = conversation_id if self.key is None else f"with the key {self.key!r}"
        super().__init__(f"conversation {named} does not exist")


class ConversationArchived(EventStoreError):
    """The conversation is in the archive: `EventStore.restore` brings it back."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f"conversation {conversation_id} is in the archive: bring it back with "
            f"`eventstore archive restore {conversation_id}`"
        )


class ArchiveFailed(EventStoreError):
    """A file of the archive cannot be written, read or deleted, or is not as it was written.

    Attributes:
        url: The file, or the place for all files.
        is_file: Whether this is about one file, and others may be fine.
    """

    def __init__(self, url: str, reason: str, *, is_file: bool = False) -> None:
        self.url = url
        self.is_file = is_file
        super().__init__(f"{url}: {reason}")


class BlobNotFound(EventStoreError, LookupError):
    """The conversation has no such blob; it may have been erased."""

    def __init__(self, conversation_id: UUID, digest: str) -> None:
        self.conversation_id = conversation_id
        self.digest = digest
        super().__init__(
            f"conversation {conversation_id} has no blob {digest}: it may have been erased"
        )


class BlobDamaged(EventStoreError):
    """A blob cannot be unpacked, or its bytes do not match its digest: restore a backup."""

    def __init__(self, conversation_id: UUID, digest: str) -> None:
        self.conversation_id = conversation_id
        self.digest = digest
        super().__init__(f"blob {digest} of conversation {conversation_id} is damaged")


class KeyUnavailable(EventStoreError):
    """The conversation is sealed, and its key is not available.

    Attributes:
        conversation_id: The conversation.
        lasting: True if the provider reports that it does not have this key.
        passing: True if the provider failed, and a retry may help. If neither is true, the store
            was opened without keys.
    """

    def __init__(
        self, conversation_id: UUID, reason: str, *, lasting: bool = False, passing: bool = False
    ) -> None:
        self.conversation_id = conversation_id
        self.lasting = lasting
        self.passing = passing
        super().__init__(
            f"conversation {conversation_id} is sealed, and its key is not available: {reason}; "
            "open the store with the keys that it was written with: EventStore.open(keys=...), "
            "or --keys DIR"
        )


class OutputFileError(EventStoreError, OSError):
    """Files of tool outputs cannot be written or deleted; ``files`` are their paths and why.

    The log is not affected: it holds the text of each file, and what was erased there stays erased.
    """

    def __init__(self, files: Sequence[tuple[Path, str]]) -> None:
        self.files = tuple(files)
        examples = "; ".join(f"{path}: {why}" for path, why in self.files[:3])
        more = f"; and {len(self.files) - 3} more" if len(self.files) > 3 else ""
        super().__init__(f"files of tool outputs cannot be written or deleted: {examples}{more}")


class EventDamaged(EventStoreError, ValueError):
    """The row of an event was altered and cannot be read: restore a backup."""

    def __init__(self, conversation_id: UUID, version: int) -> None:
        self.conversation_id = conversation_id
        self.version = version
        super().__init__(
            f"event {version} of conversation {conversation_id} is damaged: restore a backup"
        )


class ConversationDamaged(EventStoreError, ValueError):
    """The row of a conversation is missing, or was altered and cannot be read."""

    def __init__(self, conversation_id: UUID, reason: str = "is damaged: restore a backup") -> None:
        self.conversation_id = conversation_id
        super().__init__(f"the row of conversation {conversation_id} {reason}")


class CheckpointRefused(EventStoreError, ValueError):
    """The checkpoint cannot be trusted; ``reason`` says why."""

    def __init__(self, file: str, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"checkpoint {file} refused: {reason}")


class KeyRefused(EventStoreError, ValueError):
    """A key cannot be used for signing or for checking a signature."""


class StoreClosed(EventStoreError, RuntimeError):
    """The `AsyncEventStore` is closed; nothing was written."""


class UnsafeTransaction(EventStoreError, RuntimeError):
    """The caller's transaction is not open or not durable, or ended before its block did."""

    def __init__(
        self,
        reason: str,
        outcome: str = "nothing was appended; use `with store.transaction() as connection:`",
    ) -> None:
        super().__init__(f"{reason}: {outcome}")


class RowDamaged(EventStoreError, ValueError):
    """A row holds a value that this package did not write: wrong type, invalid JSON or time."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a stored row cannot be read ({what}): rebuild the projections if it belongs to one, "
            "otherwise restore a backup"
        )


class StatementRefused(EventStoreError):
    """The database works but rejects the statement for good: a limit, a missing table, a value.

    Attributes:
        url: The database, without its password.
        code: PostgreSQL's SQLSTATE or the name of SQLite's result code; the class of the driver's
            error if it has neither.
    """

    def __init__(self, url: str, code: str, reason: str) -> None:
        self.url = url
        self.code = code
        super().__init__(f"{url}: refused with {code}: {reason}")
