"""The root of all errors, and those of a database that cannot be opened or used.

They are imported from `eventstore.errors`, as all others of the log.
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
    "StoreUnavailable",
    "TablesTaken",
]


class EventStoreError(Exception):
    """The root of the tree."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Be pickled as it is: worker processes hand it to their parent."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[EventStoreError], args: tuple[Any, ...], state: Any) -> EventStoreError:
    # Not by the initialiser, which makes the words of its arguments.
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


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
    """The file is not an SQLite database, or is damaged."""


class DatabaseReplaced(StoreUnavailable):
    """The database's file was deleted, or another one has its place: open the store again."""


class ForkedStore(StoreUnavailable):
    """This process was forked while its parent used the SQLite database."""


class DatabaseBusy(StoreUnavailable):
    """Another writer held the lock for longer than the timeout."""


class SchemaOutdated(StoreUnavailable):
    """The schema is older than the code: run ``eventstore db upgrade``."""


class SchemaTooNew(StoreUnavailable):
    """The schema is newer than the code: upgrade the package."""


class TablesTaken(StoreUnavailable):
    """Tables that this package did not make have the names of its own; ``names`` are these."""

    def __init__(self, url: str, names: list[str]) -> None:
        self.names = names
        super().__init__(
            url,
            f"tables of another maker have the names that the store needs: {', '.join(names)}. "
            "Give the store a database or a file of its own",
        )
