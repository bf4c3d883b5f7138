"""`EventStore`: the write side's public face, synchronous.

Each method runs the functions of `eventstore.sql` in its own transaction. A method that accepts
``connection`` uses the caller's transaction instead, and the caller commits. A store can be shared
between threads, and between a process and its forks (`docs/running.md`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, get_args

from sqlalchemy import URL, Engine

from eventstore import blobs, telemetry
from eventstore.eraser import EventEraser
from eventstore.errors import ErrorType, FactsNotWritten, InvalidEvent, KeyUnavailable, Trace
from eventstore.events.base import Clock, utc_now
from eventstore.ids import StreamId
from eventstore.key_directory import destroy_retired
from eventstore.leases import KEEPER, Lease, writer_of
from eventstore.log import get_logger
from eventstore.options import require_known
from eventstore.outbox import OUTBOX, OnUnwritten, Unwritten
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
    """Options of a store, however it is opened.

    Attributes:
        schema: The PostgreSQL schema that holds every table of the store; it is created if it does
            not exist. Same as ``?schema=`` in the URL. Default: the first schema of the login's
            ``search_path``.
        migrate: Upgrade the tables (the default); otherwise an older schema is an error.
        read_only: Never write, neither schema nor events; views fold new events in memory.
        synchronous: SQLite's sync level; default ``FULL``.
        busy_timeout_ms: How long a SQLite writer waits for another one, in milliseconds.
        blob_threshold: Payloads of more JSON bytes than this are stored as compressed blobs.
        max_event_bytes: Payloads of more JSON bytes than this, blobs included, are refused.
        clock: Returns ``recorded_at``, an aware datetime; nothing is ordered by it.
        keys: Seal payloads, metadata and blobs with one key per conversation; erasing the
            conversation destroys its key. For example `DirectoryKeys`.
        redact: Called with each text and JSON value of a payload before it is encoded; returns the
            value to store instead. See `eventstore.redaction`; `redact_secrets` is a redactor.
        memory_bytes: Approximate size of the cache of what requests have read; default 64 MiB, 0
            for none. All conversations opened from the store share one cache of this size; each
            `Views` without its own number has another.
        on_unwritten: Called with `eventstore.outbox.Unwritten` when a conversation is closed while
            the database is unreachable, so that some of its events are not written, and again when
            they were written or can never be. It may be called in any thread.
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
    on_unwritten: OnUnwritten | None


class EventStore(EventEraser):
    """Conversations as streams of immutable events, on SQLite or PostgreSQL.

    Use `open`; the initialiser takes an already configured engine. Every method that uses the
    database may raise `StoreUnavailable` or `StatementRefused`, but never a driver's error.
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
        on_unwritten: OnUnwritten | None = None,
    ) -> None:
        if not 0 < max_event_bytes <= blobs.MOST_BYTES:
            raise ValueError(f"max_event_bytes must be from 1 to {blobs.MOST_BYTES:,}")
        if memory_bytes < 0:
            raise ValueError(f"memory_bytes is {memory_bytes}: give bytes, or 0 for none")
        if blob_threshold < 0:
            raise ValueError(f"blob_threshold is {blob_threshold}: give a number of bytes")
        for name, function in (
            ("clock", clock),
            ("redact", redact),
            ("on_unwritten", on_unwritten),
        ):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, not {function!r}")
        self.keys = None if keys is None else Keyring(keys)
        if self.keys is not None:
            engine.update_execution_options(**{OPTION: self.keys})
        super().__init__(engine)
        self.database = telemetry.database(engine.url)
        self.blob_threshold = blob_threshold
        self.max_event_bytes = max_event_bytes
        self.read_only = read_only
        self.clock = clock if clock is utc_now else partial(_time_of, clock)
        self.redact = redact
        self.on_unwritten = on_unwritten
        self.memory_bytes = memory_bytes
        self.state_directories: set[Path] = set()
        """The directories in which this process writes output files; erasing deletes from them."""
        self._log_to_empty = False
        self._secured: bool | None = None
        self._appending = Appending(self.url, self._at_hand, self.clock)
        self._owners = Owners(self)
        telemetry.discover()

    @classmethod
    def open(cls, url: str | URL, *, pool_size: int = 5, **options: Unpack[StoreOptions]) -> Self:
        """Open a database, and create or upgrade its schema unless ``migrate`` is false.

        Args:
            url: ``sqlite:///file.db`` or ``postgresql+psycopg://user@host/database``.
            pool_size: Connections kept open; up to twice as many are used at the same time.
            **options: See `StoreOptions`.

        Raises:
            StoreUnavailable: One of its subclasses says what is wrong with the URL, server, file or
                schema.
            ValueError: An option has an invalid value.
            TypeError: An option is unknown or has the wrong type.
            ImportError: ``keys`` is given, but the extra ``encryption`` is not installed.
        """
        require_known(options, StoreOptions)
        if pool_size < 1:
            raise ValueError(f"pool_size is {pool_size}: give at least 1")
        return cls._opened(partial(open_engine, url, pool_size=pool_size), **options)

    @classmethod
    def from_engine(cls, engine: Engine, **options: Unpack[StoreOptions]) -> Self:
        """Open the database of a product's engine, and use the connections of its pool.

        Each transaction checks out a connection, sets what it needs, and returns the connection in
        its original state; on PostgreSQL this costs a round trip. `close` leaves the engine open. A
        store needs one connection at a time, a worker two. ``rebuild(workers=...)`` opens the
        engine's URL again in its processes. In a process that it forks, the product must dispose of
        its engine's pool.

        Args:
            engine: An engine with the driver psycopg or pysqlite, whose database is not in memory.
            **options: See `StoreOptions`.

        Raises:
            InvalidUrl: The engine's driver or pool cannot be shared.
            StoreUnavailable: See `open`.
            ImportError: See `open`.
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
            # SQLite reads an unknown level as NORMAL, under which a power cut may undo commits.
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
            # Keys of erasures whose process died before it destroyed them.
            try:
                destroy_retired(self, self.keys)
            except KeyUnavailable as error:
                _log.warning("keys of erased conversations are not destroyed", reason=str(error))

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return this store bound to one owner: other owners' conversations are refused or hidden.

        The bound store shares connections and everything else with this one. Every conversation
        named through it must belong to the owner, new conversations belong to the owner, keys are
        looked up within the tenant, and lists and totals contain only the owner's conversations.
        Without ``tenant_id`` the store is bound to conversations without a tenant; without
        ``user_id``, to all users of the tenant. Calls that concern the whole store are refused. The
        caller's own transactions (`transaction`, `reading`) are not checked.

        Raises:
            OwnerMismatch: The store is already bound to another owner.
            InvalidEvent: Neither is given, or one of them cannot be stored.
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
        """Whether each PostgreSQL transaction must name its owner; queried once."""
        if not self._at_hand.backend.secures_rows:
            return False
        if self._secured is None:
            with self.reading() as connection:
                self._secured = is_secured(connection)
        return self._secured

    def raise_writer_epoch(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> int:
        """Fence all earlier writers of a conversation; return the epoch of the new one.

        The lower 32 bits of an epoch are random, the upper bits count: each epoch is greater than
        the one before and identifies one writer, even if the database is restored to an older
        state.

        Raises:
            ConversationNotFound: No conversation has this id.
        """
        stream = self.stream(conversation_id, **owner)
        with self.writing() as connection:
            return streams.raise_writer_epoch(connection, stream)

    def writer(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> Lease | None:
        """Return who has a conversation open and since when; None if it is not open.

        A lease that is not ``live`` was left by a process that has ended or cannot be reached.

        Raises:
            OwnerMismatch: It belongs to another tenant or user.
        """
        stream = self.stream(conversation_id, **owner)
        with self.reading() as connection:
            return writer_of(connection, stream)

    def unwritten(self, conversation_id: StreamId | None = None) -> list[Unwritten]:
        """Return the events that closed conversations of this process could not write yet.

        They are retried; see `eventstore.outbox`. A store that is bound to an owner returns those
        that were recorded through stores bound to the same owner.
        """
        stream = None if conversation_id is None else self.stream(conversation_id)
        return OUTBOX.of(self, stream, self._owners.bound if self._owners.bound.asks else None)

    def close(self) -> None:
        """Close every connection; those in use are closed when they are returned.

        Before that, tries to write the events that closed conversations have left. The store can
        still be used: it then opens a connection for each transaction and keeps none. Leases of
        conversations that are still open are no longer renewed.

        Raises:
            FactsNotWritten: Some of these events could not be written; the store is closed.
        """
        try:
            OUTBOX.close(self)
        finally:
            KEEPER.forget(self)
            self._at_hand.close()
            if self._log_to_empty:
                self._log_to_empty = not empty_log(self)
            super().close()

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
        """Close every connection; an exception of the block comes before unwritten events."""
        with suppress(*((FactsNotWritten,) if error is not None else ())):
            self.close()


def _time_of(clock: Clock) -> datetime:
    """Return the time of a product's clock, in UTC, if both databases can store and return it."""
    moment = clock()
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidEvent(f"clock returned {moment!r:.80}, not an aware datetime", field="clock")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        said = f"clock returned {moment}: in UTC that is before the year 1 or after 9999"
        raise InvalidEvent(said, field="clock") from error
