"""`EventStore`: the write side's public face, synchronous.

Each method runs the functions of `eventstore.sql` in one transaction of its own; where a method
takes ``connection``, the caller's transaction is used instead, and the caller commits. A store is
safe to share between threads, and by a process with those that it forks (`docs/running.md`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, get_args

from sqlalchemy import URL, Engine

from eventstore import blobs, telemetry
from eventstore.eraser import EventEraser
from eventstore.errors import InvalidEvent, KeyUnavailable
from eventstore.events.base import Clock, utc_now
from eventstore.ids import StreamId
from eventstore.key_directory import destroy_retired
from eventstore.leases import KEEPER, Lease, writer_of
from eventstore.log import get_logger
from eventstore.options import require_known
from eventstore.owners import Owned, Owner, Owners
from eventstore.redaction import Redactor
from eventstore.sealing import OPTION, KeyProvider, Keyring
from eventstore.sql import migrate, streams
from eventstore.sql.appending import Appending
from eventstore.sql.borrowed import borrow
from eventstore.sql.engines import Synchronous, open_engine
from eventstore.sql.requests import MOST_BYTES
from eventstore.sql.row_security import OWNER, is_secured, speaks_for
from eventstore.sql.transactions import empty_log

__all__ = ["EventStore", "StoreOptions"]

_log = get_logger("eventstore")


class StoreOptions(TypedDict, total=False):
    """What may be said of a store, whatever opens it.

    Attributes:
        schema: The schema on PostgreSQL that holds every table of the store, and is created where
            it is missing; ``?schema=`` of the URL is the same. By default the first of the login's
            ``search_path``.
        migrate: Upgrade the tables, as by default; otherwise an older schema is an error.
        read_only: Never write, neither schema nor events; views fold what is new in memory.
        synchronous: SQLite's sync level, by default ``FULL``.
        busy_timeout_ms: How long a SQLite writer waits for another, in milliseconds.
        blob_threshold: Payloads of more JSON bytes than this are kept as compressed blobs.
        max_event_bytes: A payload of more JSON bytes than this, blobs included, is refused.
        clock: What ``recorded_at`` is taken from; nothing is ordered by it.
        keys: Seal payloads, metadata and blobs with a key for each conversation, which erasing the
            conversation destroys; such as `DirectoryKeys`.
        redact: Asked about each text and JSON value of a payload before it is encoded; returns what
            is stored in its place. See `eventstore.redaction`; `redact_secrets` is one.
        memory_bytes: About how much the process remembers of what it has read for requests, 64 MiB
            by default, and nothing with 0: so much for all conversations that are opened from the
            store, and as much for each `Views` that is told no other number.
    """

    schema: str | None
    migrate: bool
    read_only: bool
    synchronous: Synchronous
    busy_timeout_ms: int
    blob_threshold: int
    max_event_bytes: int
    clock: Clock
    keys: KeyProvider | None
    redact: Redactor | None
    memory_bytes: int


class EventStore(EventEraser):
    """Conversations as streams of immutable events, on SQLite or PostgreSQL.

    Use `open`; the initialiser takes an engine that is already configured. Whatever asks the
    database may raise `StoreUnavailable` or `StatementRefused`, and no error of a driver.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        blob_threshold: int = blobs.THRESHOLD_BYTES,
        max_event_bytes: int = MOST_BYTES,
        read_only: bool = False,
        clock: Clock = utc_now,
        keys: KeyProvider | None = None,
        redact: Redactor | None = None,
        memory_bytes: int = 64 << 20,
    ) -> None:
        if not 0 < max_event_bytes <= blobs.MOST_BYTES:
            raise ValueError(f"max_event_bytes must be from 1 to {blobs.MOST_BYTES:,}")
        if memory_bytes < 0:
            raise ValueError(f"memory_bytes is {memory_bytes}: give bytes, or 0 for none")
        if blob_threshold < 0:
            raise ValueError(f"blob_threshold is {blob_threshold}: give a number of bytes")
        for name, function in (("clock", clock), ("redact", redact)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} has to be a function, and is {function!r}")
        self.keys = None if keys is None else Keyring(keys)
        if self.keys is not None:
            engine.update_execution_options(**{OPTION: self.keys})
        super().__init__(engine)
        self.database = telemetry.database(engine.url)
        self.blob_threshold = blob_threshold
        self.max_event_bytes = max_event_bytes
        self.read_only = read_only
        self.clock = clock
        self.redact = redact
        self.memory_bytes = memory_bytes
        self.state_directories: set[Path] = set()
        """Where conversations of this process write files of outputs; erasing looks there."""
        self._log_to_empty = False
        self._secured: bool | None = None
        self._appending = Appending(self.url, self._at_hand, clock)
        self._owners = Owners(self)
        telemetry.discover()

    @classmethod
    def open(cls, url: str | URL, *, pool_size: int = 5, **options: Unpack[StoreOptions]) -> Self:
        """Open a database, and create or upgrade its schema unless told not to.

        Args:
            url: ``sqlite:///file.db`` or ``postgresql+psycopg://user@host/database``.
            pool_size: Connections kept open; up to twice as many are used at a time.
            **options: Those of `StoreOptions`.

        Raises:
            StoreUnavailable: One of its subclasses says what is wrong with URL, server, file or
                schema.
            ValueError: An option has a value that it cannot have; TypeError, one of another type.
            ImportError: ``keys`` are given, and the extra ``encryption`` is not installed.
        """
        require_known(options, StoreOptions)
        if pool_size < 1:
            raise ValueError(f"pool_size is {pool_size}: one connection is the least")
        return cls._opened(partial(open_engine, url, pool_size=pool_size), **options)

    @classmethod
    def from_engine(cls, engine: Engine, **options: Unpack[StoreOptions]) -> Self:
        """Open the database of a product's engine, on the connections of its pool.

        Each transaction takes a connection, sets what it needs, and gives it back as it was; this
        costs a round trip to PostgreSQL. `close` leaves the engine open. A store needs one
        connection at a time, a worker two. ``rebuild(workers=...)`` opens the engine's URL anew in
        its processes. The product disposes of its engine's pool in a process that it forks.

        Args:
            engine: With the driver psycopg or pysqlite, and a database that is not in memory.
            **options: Those of `StoreOptions`.

        Raises:
            InvalidUrl: The engine's driver or pool cannot be shared.
            StoreUnavailable: As of `open`.
            ImportError: As of `open`.
        """
        require_known(options, StoreOptions)
        store = cls._opened(partial(borrow, engine), **options)
        store._find_home()  # Later, the product may hold the only connection.
        return store

    @classmethod
    def _opened(
        cls,
        connect: Callable[..., Engine],
        *,
        schema: str | None = None,
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = 30_000,
        migrate: bool = True,
        read_only: bool = False,
        **options: Any,
    ) -> Self:
        if synchronous not in get_args(Synchronous):
            # SQLite takes a word that it does not know for NORMAL, which a power cut undoes.
            levels = ", ".join(get_args(Synchronous))
            raise ValueError(f"synchronous is {synchronous!r}: choose from {levels}")
        if busy_timeout_ms < 0:
            raise ValueError(f"busy_timeout_ms is {busy_timeout_ms}: give a number, or 0 for none")
        engine = connect(
            schema=schema,
            synchronous=synchronous,
            busy_timeout_ms=busy_timeout_ms,
            read_only=read_only,
        )
        try:
            store = cls(engine, read_only=read_only, **options)
            store._prepare_schema(migrate and not read_only)
        except BaseException:
            engine.dispose()
            raise
        _log.debug("store opened", url=store.url, read_only=read_only)
        return store

    def _prepare_schema(self, upgrade: bool) -> None:
        if upgrade:
            migrate.upgrade(self.engine)
        else:
            migrate.require_current(self.engine)
        if self.keys is not None and not self.read_only:
            # Those of erasures whose process died before it came to this.
            try:
                destroy_retired(self, self.keys)
            except KeyUnavailable as error:
                _log.warning("keys of erased conversations are not destroyed", reason=str(error))

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return this store for one owner: what is another's is refused, or not there.

        It shares connections and everything else with this one. Whatever is
        named through it must be theirs, what it begins is theirs, keys are looked up within the
        tenant, and what is listed or added up is theirs alone. Without ``tenant_id`` it is bound to
        what has no tenant; without ``user_id`` to all users of the tenant. What concerns the whole
        store is refused. Transactions of one's own (`transaction`, `reading`) are not looked into.

        Raises:
            OwnerMismatch: The store is bound to another owner already.
            InvalidEvent: Neither is named, or one cannot be kept.
        """
        owner = Owner.of(tenant_id, user_id, exact=True)
        if tenant_id is None and user_id is None:
            raise InvalidEvent("an owner is a tenant_id, a user_id or both: name one")
        bound = copy.copy(self)
        bound._owners = self._owners.narrowed(owner, bound)
        if self._is_secured():
            theirs = bound.owner
            said = speaks_for(theirs.tenant_id, theirs.user_id)
            bound.engine = self.engine.execution_options(**{OWNER: said})
            bound._at_hand = self._at_hand.within(bound.engine)
            bound._appending = self._appending.within(bound._at_hand)
        return bound

    def _is_secured(self) -> bool:
        """Whether PostgreSQL must be told in each transaction whose it is; asked once."""
        if not self._at_hand.backend.secures_rows:
            return False
        if self._secured is None:
            with self.reading() as connection:
                self._secured = is_secured(connection)
        return self._secured

    def raise_writer_epoch(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> int:
        """Fence all earlier writers of a conversation; return the epoch of the new one.

        Its lower 32 bits are random, those above count: it is greater than the one before, and
        names this writer alone, even if the database goes back to an older state.

        Raises:
            ConversationNotFound: No conversation has this id.
        """
        stream = self.stream(conversation_id, **owner)
        with self.writing() as connection:
            return streams.raise_writer_epoch(connection, stream)

    def writer(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> Lease | None:
        """Return who has a conversation open, and since when; None if it was closed, or never open.

        One that is not ``live`` was left open by a process that has ended, or is out of reach.

        Raises:
            OwnerMismatch: It belongs to another tenant or user.
        """
        stream = self.stream(conversation_id, **owner)
        with self.reading() as connection:
            return writer_of(connection, stream)

    def close(self) -> None:
        """Close every connection, those in use as soon as they are given back.

        The store can still be used: it opens a connection for each transaction, and keeps none.
        Leases of conversations that are still open are renewed no more.
        """
        KEEPER.forget(self)
        self._at_hand.close()
        if self._log_to_empty:
            self._log_to_empty = not empty_log(self)
        super().close()
