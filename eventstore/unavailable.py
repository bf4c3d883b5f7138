"""The root of all errors, and the errors of a database that cannot be opened or used.

Import them from `eventstore.errors`, like all other errors of the log.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CannotConnect",
    "DatabaseBusy",
    "DatabaseReplaced",
    "EventStoreError",
    "ForkedStore",
    "InvalidUrl",
    "NotADatabase",
    "NotWritable",
    "SchemaOutdated",
    "SchemaTooNew",
    "ServerSilent",
    "StoreUnavailable",
    "TablesTaken",
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
