"""Reads from a streaming standby, beside writes to the primary: `EventStore.open`'s ``read_url``.

A standby replays the primary's transactions a little later. What a process has written itself, it
must be able to read: for each conversation that it appended to, a read requires that version. For
everything else that it wrote (lists, erasures), it requires that the standby has replayed the
primary's write-ahead log up to a place after the last write. Where the standby lacks it, or does
not answer, the primary does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from uuid import UUID

from sqlalchemy import URL, Connection, event, make_url, text

from eventstore.errors import DatabaseBusy, EventStoreError, InvalidUrl, StoreUnavailable
from eventstore.processes import in_child
from eventstore.sql.backend import backend_named
from eventstore.sql.streams import store_id_of
from eventstore.sql.transactions import Transactions
from eventstore.sql.urls import parse
from eventstore.telemetry.log import get_logger, masked

__all__ = ["Standby", "StandbyBehind", "require_standby"]

S = TypeVar("S", bound=Transactions)
T = TypeVar("T")

_PAUSE_S = 5.0
"""How long a standby that failed is left alone."""
_MOST_VERSIONS = 8_192
"""How many conversations' versions are remembered, in about 1 MB; then one place stands for all."""

_WRITTEN = text("SELECT CAST(pg_current_wal_insert_lsn() AS text)")
# A standby that was promoted, and a primary that a URL falls back to, replay nothing.
_REPLAYED = text(
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() "
    "ELSE pg_current_wal_insert_lsn() END >= CAST(:place AS pg_lsn)"
)

_log = get_logger("eventstore.standby")


def require_standby(
    url: str | URL, read_url: str | URL, schema: str | None, *, read_only: bool
) -> None:
    """Refuse a standby where there can be none.

    Raises:
        InvalidUrl: One of the URLs does not name a PostgreSQL database.
        ValueError: The store itself only reads.
    """
    for each in (parse(url, schema), parse(read_url, schema)):
        if not backend_named(each.get_backend_name()).has_standbys:
            raise InvalidUrl(masked(each), "read_url needs PostgreSQL, and a streaming standby")
    if read_only:
        raise ValueError("a store that only reads needs no read_url: open the standby itself")


class StandbyBehind(Exception):
    """The standby lacks what is needed, or does not answer: the primary has to."""


class Standby(Generic[S]):
    """A store's standby, and what this process has written; safe to share between threads.

    Args:
        primary: The store that writes.
        connect: Opens the standby's store.
        url: The standby's URL.
    """

    def __init__(self, primary: S, connect: Callable[[], S], url: str | URL) -> None:
        self._primary = primary
        self._connect = connect
        self._url = masked(make_url(url))
        self._store: S | None = None
        self._begin()
        in_child(self._begin)  # where another thread's lock would never be released
        self._versions: dict[UUID, int] = {}
        self._place: str | None = None
        """A place in the primary's log that the standby is not known to have replayed."""
        self._is_unplaced = False
        """Whether something was written that only a place covers, and none was taken since."""
        self._has_written = False
        """Whether anything was written since the last place was taken."""
        self._paused_until = 0.0
        self._is_away = False

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._placing = threading.Lock()

    def wrote(self, conversation_id: UUID, version: int) -> None:
        """Require of later reads what was appended to a conversation."""
        with self._lock:
            if len(self._versions) >= _MOST_VERSIONS:
                self._versions.clear()
                self._is_unplaced = True
            self._versions[conversation_id] = max(version, self._versions.get(conversation_id, 0))
            self._has_written = True

    def wrote_elsewhere(self) -> None:
        """Require of later reads whatever is committed by now."""
        with self._lock:
            self._is_unplaced = self._has_written = True

    def when_committed(self, connection: object) -> None:
        """Require of later reads what a caller's own transaction is about to commit."""
        if isinstance(connection, Connection):
            event.listen(connection, "commit", lambda _: self.wrote_elsewhere(), once=True)

    def answered(self, conversation_id: UUID | None, look: Callable[[S, int], T]) -> T:
        """Return what ``look`` finds on the standby.

        Args:
            conversation_id: The conversation, or None for a read of several.
            look: Reads, given the standby's store and the version that the conversation must have.

        Raises:
            StandbyBehind: The standby lacks what this process wrote, or it cannot answer.
            EventStoreError: The primary was needed, and cannot answer.
        """
        if time.monotonic() < self._paused_until:
            raise StandbyBehind("it did not answer")
        # First: once it is forgotten, a place is due.
        version = 0 if conversation_id is None else self._versions.get(conversation_id, 0)
        place = self._required_place(of_all=conversation_id is None)
        with self._reported():
            standby = self._opened()
            if place is not None:
                self._require(standby, place)
            return look(standby, version)

    def open(self) -> None:
        """Connect to the standby, if it can be reached.

        Raises:
            InvalidUrl: It is a standby of another store.
        """
        try:
            with self._reported():
                self._opened()
        except StandbyBehind as error:
            if isinstance(error.__cause__, InvalidUrl):
                raise error.__cause__ from None

    def close(self) -> None:
        """Close every connection to the standby."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Log that the standby cannot be read, and that it can be again; leave it alone between."""
        try:
            yield
        except StandbyBehind:
            raise
        except EventStoreError as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, DatabaseBusy):
                self._paused_until = time.monotonic() + _PAUSE_S
                log, self._is_away = _log.debug if self._is_away else _log.warning, True
                log("the primary answers: the standby does not", reason=str(error))
            raise StandbyBehind(str(error)) from error
        if self._is_away:
            self._is_away = False
            _log.info("the standby answers again", url=self._url)

    def _opened(self) -> S:
        if (found := self._store) is not None:
            return found
        found = self._connect()
        try:
            with self._primary.reading() as here, found.reading() as there:
                if store_id_of(here) != store_id_of(there):
                    raise InvalidUrl(self._url, f"not a standby of {self._primary.url}")
        except BaseException:
            found.close()
            raise
        with self._lock:
            opened = self._store = self._store or found
        if opened is not found:
            found.close()
        return opened

    def _required_place(self, *, of_all: bool) -> str | None:
        """Return the place in the log that the standby must have replayed, if any."""
        with self._placing:
            if self._is_unplaced or (of_all and self._has_written):
                # First, so that a write from now on needs a later place.
                self._is_unplaced = self._has_written = False
                try:
                    with self._primary.reading() as connection:
                        self._place = str(connection.execute(_WRITTEN).scalar_one())
                except BaseException:
                    self.wrote_elsewhere()
                    raise
            return self._place

    def _require(self, standby: S, place: str) -> None:
        # In a transaction before that of the read, whose snapshot then includes the place.
        with standby.reading() as connection:
            if not connection.execute(_REPLAYED, {"place": place}).scalar_one():
                raise StandbyBehind("it lacks what this process has written")
        with self._placing:
            if self._place == place:
                self._place = None
