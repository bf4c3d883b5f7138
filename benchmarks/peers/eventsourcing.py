"""The package ``eventsourcing``: its application recorders, which its applications use to write.

The recorder receives stored events as from the package's mapper: an id, a version, a topic, and the
state as JSON bytes. SQLite runs with a write-ahead log and its default sync level, FULL.
PostgreSQL runs in the default mode, which locks the table for the duration of an insert.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from uuid import UUID

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore
from sqlalchemy import make_url

from eventstore import NewEvent, new_id
from eventstore.events.base import Payload

__all__ = ["Recorder", "datastore"]

_PAGE = 500


class Recorder:
    """An application recorder with its own tables."""

    name = "eventsourcing"

    def __init__(self, url: str, connections: int = 1) -> None:
        self._datastore = datastore(url, connections)
        postgresql = isinstance(self._datastore, PostgresDatastore)
        kind = PostgresApplicationRecorder if postgresql else SQLiteApplicationRecorder
        self._recorder: Any = kind(self._datastore)
        self._recorder.create_table()

    @property
    def path(self) -> str:
        """Its SQLite file; empty on PostgreSQL."""
        return str(getattr(self._datastore.pool, "db_name", ""))

    def stream(self) -> Callable[[Sequence[NewEvent]], object]:
        """Begin a stream; return the function that appends events to it, durably, in one call."""
        stream, versions = new_id(), count(1)

        def append(events: Sequence[NewEvent]) -> None:
            self._recorder.insert_events([_stored(stream, next(versions), e) for e in events])

        return append

    def turns(
        self, events: Sequence[NewEvent], history: Sequence[NewEvent]
    ) -> Callable[[], object]:
        """Return a function that appends events one by one, then loads the whole stream."""
        versions = count(len(history) + 1)
        stream = self.fill(history)

        def turn() -> int:
            for event in events:
                self._recorder.insert_events([_stored(stream, next(versions), event)])
            return len([json.loads(each.state) for each in self._recorder.select_events(stream)])

        return turn

    def fill(self, events: Sequence[NewEvent]) -> UUID:
        """Append these events to a new stream, and return its id."""
        stream = new_id()
        for start in range(0, len(events), _PAGE):
            page = enumerate(events[start : start + _PAGE], start + 1)
            self._recorder.insert_events([_stored(stream, place, each) for place, each in page])
        return stream

    def read_all(self) -> int:
        """Read all events in pages, decode their states, and return how many there are."""
        read, last = 0, None
        while page := self._recorder.select_notifications(
            start=last, limit=_PAGE, inclusive_of_start=False
        ):
            for each in page:
                json.loads(each.state)
            read, last = read + len(page), page[-1].id
        return read

    def close(self) -> None:
        """Close its connections."""
        self._datastore.close()


def datastore(url: str, connections: int = 1) -> Any:
    """Return the package's datastore for a database: for SQLite, a file next to the given one."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return SQLiteDatastore(f"{parsed.database}.eventsourcing")
    return PostgresDatastore(
        dbname=str(parsed.database),
        host=str(parsed.host or parsed.query.get("host", "")),
        port=parsed.port or 5432,
        user=str(parsed.username),
        password=str(parsed.password or ""),
        pool_size=connections,
    )


def _stored(stream: UUID, version: int, event: NewEvent) -> StoredEvent:
    assert isinstance(event.data, Payload)
    state = event.data.model_dump_json().encode()
    return StoredEvent(stream, version, event.data.type, state)
