"""Every error that this project raises on purpose, in one tree.

::

    EventStoreError
    ├── WrongExpectedVersion      the stream is at another version than the writer thought
    ├── WriterFenced              a newer writer has opened the conversation
    ├── EventIdConflict           some of the event ids are already elsewhere in the stream
    ├── OwnerMismatch             the conversation belongs to another tenant or user
    ├── InvalidEvent              what was handed in cannot be stored       (also ValueError)
    ├── InvalidCursor             a feed cursor of another kind or store    (also ValueError)
    ├── ConversationNotFound      (also LookupError)
    ├── BlobNotFound              (also LookupError)
    ├── BlobDamaged               the bytes of a blob cannot be unpacked
    ├── EventDamaged              a stored event's row cannot be read       (also ValueError)
    ├── ConversationDamaged       a conversation's own row cannot be read   (also ValueError)
    ├── UnknownAlias              no tool result has this alias             (also LookupError)
    ├── UnknownProjection         no projection has this name               (also LookupError)
    ├── EncodingNotBundled        a tokenizer that is not carried along     (also LookupError)
    ├── UnknownStrategy           no compression strategy of this name      (also LookupError)
    ├── EmbeddingFailed           a product's embedding callable raised, or gave other vectors
    ├── RequestNotReproducible    the log no longer gives the messages that were sent
    ├── BudgetInfeasible          the mandatory messages alone exceed the budget
    ├── InvalidSettings           unknown or contradictory settings         (also ValueError)
    ├── InvalidPrompt             a product's prompt text cannot be used    (also ValueError)
    ├── ProjectionFailed          a fold raised, at a conversation and version
    ├── ImportFailed              a record of a foreign file cannot be read (also ValueError)
    └── StoreUnavailable          the database cannot be opened or used
        ├── InvalidUrl            (also ValueError)
        ├── CannotConnect         no server, wrong password, no such database
        ├── NotWritable           the file or its directory cannot be written
        ├── NotADatabase          the file is something else, or damaged
        ├── DatabaseBusy          another writer held the lock beyond the timeout
        ├── SchemaOutdated        the schema is older than the code, and upgrading was declined
        └── SchemaTooNew          the schema is newer than the code

The driver's error, where there is one, is the ``__cause__``. Data stand in attributes; the message
says what to do next.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

__all__ = [
    "BlobDamaged",
    "BlobNotFound",
    "BudgetInfeasible",
    "CannotConnect",
    "ConversationDamaged",
    "ConversationNotFound",
    "DatabaseBusy",
    "EmbeddingFailed",
    "EncodingNotBundled",
    "EventDamaged",
    "EventIdConflict",
    "EventStoreError",
    "ImportFailed",
    "InvalidCursor",
    "InvalidEvent",
    "InvalidPrompt",
    "InvalidSettings",
    "InvalidUrl",
    "NotADatabase",
    "NotWritable",
    "OwnerMismatch",
    "ProjectionFailed",
    "RequestNotReproducible",
    "SchemaOutdated",
    "SchemaTooNew",
    "StoreUnavailable",
    "UnknownAlias",
    "UnknownProjection",
    "UnknownStrategy",
    "WriterFenced",
    "WrongExpectedVersion",
]


class EventStoreError(Exception):
    """The root of the tree."""


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
    """A newer writer has opened the conversation; this one may append no more."""

    def __init__(self, conversation_id: UUID, epoch: int, current_epoch: int) -> None:
        self.conversation_id = conversation_id
        self.epoch = epoch
        self.current_epoch = current_epoch
        super().__init__(
            f"conversation {conversation_id} has been opened by a newer writer (epoch "
            f"{current_epoch}, this one has {epoch}): open it again to go on"
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
    """What was handed in cannot be stored; nothing was written."""


class InvalidCursor(EventStoreError, ValueError):
    """The cursor did not come from this kind of store."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(f"{cursor!r} is no cursor of this store: pass one that read_all returned")


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
    """The bytes of a blob cannot be unpacked any more: restore a backup."""

    def __init__(self, conversation_id: UUID, digest: str) -> None:
        self.conversation_id = conversation_id
        self.digest = digest
        super().__init__(f"blob {digest} of conversation {conversation_id} is damaged")


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


class UnknownAlias(EventStoreError, LookupError):
    """The path is no alias of a tool result of this conversation."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(
            f"{alias!r} names no tool result: aliases read @state/logs/tool-results/<call id>.json"
        )


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


class ProjectionFailed(EventStoreError):
    """A fold raised, or an event could not be read; nothing of the conversation was written."""

    def __init__(self, projection: str, conversation_id: UUID, version: int) -> None:
        self.projection = projection
        self.conversation_id = conversation_id
        self.version = version
        super().__init__(
            f"projection {projection} failed on conversation {conversation_id} at version {version}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled by its parts: a rebuild's worker process hands it to its parent."""
        return type(self), (self.projection, self.conversation_id, self.version)


class ImportFailed(EventStoreError, ValueError):
    """A record of a foreign file cannot be read; ``line`` counts from 1, None if unknown."""

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {reason}")


class StoreUnavailable(EventStoreError):
    """The database cannot be opened or used; ``url`` has its password masked."""

    def __init__(self, url: str, reason: str, **details: Any) -> None:
        self.url = url
        self.details = details
        super().__init__(f"{url}: {reason}")


class InvalidUrl(StoreUnavailable, ValueError):
    """The URL names no database that this project supports."""


class CannotConnect(StoreUnavailable):
    """The server does not answer, or refuses the login."""


class NotWritable(StoreUnavailable):
    """The file or its directory cannot be written."""


class NotADatabase(StoreUnavailable):
    """The file is no SQLite database, or is damaged."""


class DatabaseBusy(StoreUnavailable):
    """Another writer held the lock for longer than the timeout."""


class SchemaOutdated(StoreUnavailable):
    """The schema is older than the code: run ``eventstore db upgrade``."""


class SchemaTooNew(StoreUnavailable):
    """The schema is newer than the code: upgrade the package."""
