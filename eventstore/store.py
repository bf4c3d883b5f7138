"""`EventStore`: the write side's public face, synchronous.

Each method runs the functions of `eventstore.sql` in one transaction of its own; where a method
takes ``connection``, the caller's transaction is used instead, and the caller commits. A store is
safe to share between threads, and by a process with those that it forks (`docs/running.md`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from logging import INFO
from os import PathLike
from pathlib import Path
from typing import IO, Any, Self, Unpack
from uuid import UUID

from sqlalchemy import URL, Connection, Engine

from eventstore import blobs, erasure, telemetry
from eventstore.checkpoints import Checkpoint, save_checkpoint, verify_against, write_checkpoint
from eventstore.errors import (
    BlobNotFound,
    ConversationNotFound,
    InvalidEvent,
    KeyUnavailable,
)
from eventstore.events.base import Clock, utc_now
from eventstore.events.lifecycle import ConversationFork
from eventstore.events.records import NO_META, EventData, Meta, NewEvent, RecordedEvent
from eventstore.ids import derived_id, new_id
from eventstore.integrity import Verification
from eventstore.leases import KEEPER, writer_of
from eventstore.log import get_logger
from eventstore.owners import Owned, Owner, Owners, named
from eventstore.redaction import Redactor
from eventstore.retired_keys import destroy_retired
from eventstore.sealing import OPTION, KeyProvider, Keyring
from eventstore.sql import feed, migrate, streams, traces
from eventstore.sql.appending import Appending
from eventstore.sql.borrowed import borrow
from eventstore.sql.conversation_fork import fork, locate
from eventstore.sql.driver import transaction
from eventstore.sql.engines import Synchronous, open_engine
from eventstore.sql.failures import translated
from eventstore.sql.leases import Lease
from eventstore.sql.lineage import lineage
from eventstore.sql.read import END, read_page
from eventstore.sql.requests import (
    ANY,
    MOST_BYTES,
    Anchor,
    Append,
    Appended,
    Expected,
    many,
    prepare,
)
from eventstore.sql.streams import StreamInfo
from eventstore.sql.transactions import Transactions, append_within, empty_log
from eventstore.sql.verify import Progress, verify
from eventstore.state_files import delete_erased
from eventstore.telemetry import operation

__all__ = ["EventStore", "StreamId"]

StreamId = UUID | str
"""A conversation: its id, a UUID or the text of one, or else the product's own key for it.

A key is looked up within the tenant that is named, or that the store is bound to."""

_log = get_logger("eventstore")
_PAGE = 1_000


class EventStore(Transactions):
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
    ) -> None:
        if not 0 < max_event_bytes <= blobs.MOST_BYTES:
            raise ValueError(f"max_event_bytes must be from 1 to {blobs.MOST_BYTES:,}")
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
        self.state_directories: set[Path] = set()
        """Where conversations of this process write files of outputs; erasing looks there."""
        self._log_to_empty = False
        self._appending = Appending(self.url, self._at_hand, clock)
        self._owners = Owners(self)
        telemetry.discover()

    @classmethod
    def open(
        cls,
        url: str | URL,
        *,
        schema: str | None = None,
        migrate: bool = True,
        read_only: bool = False,
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = 30_000,
        pool_size: int = 5,
        blob_threshold: int = blobs.THRESHOLD_BYTES,
        max_event_bytes: int = MOST_BYTES,
        clock: Clock = utc_now,
        keys: KeyProvider | None = None,
        redact: Redactor | None = None,
    ) -> Self:
        """Open a database, and create or upgrade its schema unless told not to.

        Args:
            url: ``sqlite:///file.db`` or ``postgresql+psycopg://user@host/database``.
            schema: The schema on PostgreSQL that holds every table of the store, and is created
                where it is missing; ``?schema=`` of the URL is the same. By default the first of
                the login's ``search_path``.
            migrate: Upgrade the tables; otherwise an older one is an error.
            read_only: Never write, neither schema nor events; views fold what is new in memory.
            synchronous: SQLite's sync level.
            busy_timeout_ms: How long a SQLite writer waits for another, in milliseconds.
            pool_size: Connections kept open; up to twice as many are used at a time.
            blob_threshold: Payloads of more JSON bytes than this are kept as compressed blobs.
            max_event_bytes: A payload of more JSON bytes than this, blobs included, is refused.
            clock: What ``recorded_at`` is taken from; nothing is ordered by it.
            keys: Seal payloads, metadata and blobs with a key for each conversation, which erasing
                the conversation destroys; such as `DirectoryKeys`.
            redact: Asked about each text and JSON value of a payload before it is encoded; returns
                what is stored in its place. See `eventstore.redaction`; `redact_secrets` is one.

        Raises:
            StoreUnavailable: One of its subclasses says what is wrong with URL, server, file or
                schema.
            ImportError: ``keys`` are given, and the extra ``encryption`` is not installed.
        """
        engine = open_engine(
            url,
            schema=schema,
            synchronous=synchronous,
            busy_timeout_ms=busy_timeout_ms,
            read_only=read_only,
            pool_size=pool_size,
        )
        return cls._opened(
            engine,
            migrate,
            blob_threshold=blob_threshold,
            max_event_bytes=max_event_bytes,
            read_only=read_only,
            clock=clock,
            keys=keys,
            redact=redact,
        )

    @classmethod
    def from_engine(
        cls,
        engine: Engine,
        *,
        schema: str | None = None,
        migrate: bool = True,
        read_only: bool = False,
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = 30_000,
        blob_threshold: int = blobs.THRESHOLD_BYTES,
        max_event_bytes: int = MOST_BYTES,
        clock: Clock = utc_now,
        keys: KeyProvider | None = None,
        redact: Redactor | None = None,
    ) -> Self:
        """Open the database of a product's engine, on the connections of its pool.

        Each transaction takes a connection, sets what it needs, and gives it back as it was; this
        costs a round trip to PostgreSQL. `close` leaves the engine open. A store needs one
        connection at a time, a worker two. ``rebuild(workers=...)`` opens the engine's URL anew in
        its processes. The product disposes of its engine's pool in a process that it forks.

        Args:
            engine: With the driver psycopg or pysqlite, and a database that is not in memory.
            schema: As of `open`, like all that follow.
            migrate: Upgrade the tables; otherwise an older schema is an error.
            read_only: Never write.
            synchronous: SQLite's sync level.
            busy_timeout_ms: How long a SQLite writer waits for another, in milliseconds.
            blob_threshold: Payloads of more JSON bytes than this are kept as compressed blobs.
            max_event_bytes: A payload of more JSON bytes than this, blobs included, is refused.
            clock: What ``recorded_at`` is taken from; nothing is ordered by it.
            keys: Seal what is written with a key for each conversation.
            redact: Asked about each text and JSON value of a payload before it is encoded.

        Raises:
            InvalidUrl: The engine's driver or pool is none that can be shared.
            StoreUnavailable: As of `open`.
            ImportError: As of `open`.
        """
        borrowed = borrow(
            engine,
            schema=schema,
            synchronous=synchronous,
            busy_timeout_ms=busy_timeout_ms,
            read_only=read_only,
        )
        store = cls._opened(
            borrowed,
            migrate,
            blob_threshold=blob_threshold,
            max_event_bytes=max_event_bytes,
            read_only=read_only,
            clock=clock,
            keys=keys,
            redact=redact,
        )
        store._find_schema()  # Later, the product may hold the only connection.
        return store

    @classmethod
    def _opened(cls, engine: Engine, migrate: bool, *, read_only: bool, **options: Any) -> Self:
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

        It shares connections and everything else with this one, and costs nothing. Whatever is
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
        bound._owners = self._owners.narrowed(owner)
        return bound

    @property
    def owner(self) -> Owner:
        """Whose conversations it is bound to, which is anybody's unless `for_owner` made it."""
        return self._owners.bound

    def whose(self, tenant_id: str | None = None, user_id: str | None = None) -> Owner:
        """Return whose conversations are meant by naming an owner, here; to limit a query by it.

        Raises:
            OwnerMismatch: The store is bound to another owner.
        """
        return self._owners.asked(Owner.of(tenant_id, user_id))

    def stream(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> UUID:
        """Return the id of a conversation that is named by id or key, whether it exists or not.

        Raises:
            OwnerMismatch: It is another owner's than was named, or than the store is bound to.
        """
        return self._owners.stream(conversation_id, owner)[0]

    def append(
        self,
        conversation_id: StreamId,
        events: Sequence[NewEvent | EventData] | NewEvent | EventData,
        *,
        expected_version: Expected | int = ANY,
        meta: Meta | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        parent: tuple[UUID, int] | None = None,
        writer_epoch: int | None = None,
        anchor: Anchor | None = None,
        connection: Connection | None = None,
        wait: bool = True,
    ) -> Appended:
        r"""Append events to a conversation: all of them, or none.

        One durable transaction (or part of the caller's). Repeating an append of `NewEvent`\ s
        that name their ``event_id`` returns the first result and writes nothing.

        Args:
            conversation_id: The stream; it begins to exist with its first event.
            events: One, or many in order; payloads, or `NewEvent`\ s with an id or metadata.
            expected_version: ``ANY``, ``NO_STREAM``, or the exact version before this append.
            meta: Metadata for the events that bring none of their own.
            tenant_id: The conversation's tenant, recorded when it is created, as is its key.
            user_id: The conversation's user, recorded when it is created.
            parent: Conversation and version that this one was forked from, recorded likewise.
            writer_epoch: What `raise_writer_epoch` returned, or 0: refuse if another writer has
                opened the conversation since.
            anchor: That of the result of an earlier append, which the log must still hold.
            connection: Append in the transaction that `transaction` has begun on it.
            wait: Whether to wait while somebody else writes to the conversation; if not, it is
                `DatabaseBusy` at once, on SQLite after a tenth of a second.

        Raises:
            WrongExpectedVersion: The stream is at another version.
            EventIdConflict: Some of the event ids are there already, but not as this append.
            LogWentBack: The event of ``anchor`` is gone, or another one stands there.
            WriterFenced: A newer writer has opened the conversation.
            UnsafeTransaction: ``connection`` is in no transaction, or in one that is not durable.
            OwnerMismatch: The conversation belongs to another tenant or user.
            InvalidEvent: There are no events, or one cannot be encoded or is larger than an event
                may be: see `eventstore.events.bounds`.
            RedactionFailed: The store's redactor raised.
        """
        started, events = time.perf_counter(), many(events)
        request = self.request(
            conversation_id,
            events,
            expected_version,
            meta,
            tenant_id,
            user_id,
            parent,
            writer_epoch,
            anchor,
        )
        outcome = self._appended(request, connection, wait)
        telemetry.appended(self.database, request.conversation_id, len(events), outcome, started)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def fork(
        self,
        source: StreamId,
        *,
        before: int | None = None,
        conversation_id: StreamId | None = None,
        title: str | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        new_user_id: str | None = None,
        events: Sequence[NewEvent | EventData] = (),
        meta: Meta | None = None,
    ) -> Appended:
        """Begin a conversation that shares another's events up to a version; none is copied.

        One transaction, as long as an append: the fork's first event is a ``conversation_fork``
        with the version ``before``. Its events are numbered on, and may be appended to both from
        then on. Reads and views of the fork show what is shared, usage counts it for the parent
        alone, and erasing it there takes it from the fork as well.

        Args:
            source: The conversation to go on from.
            before: The first version that is not shared; by default all events are.
            conversation_id: The fork's id or key; by default a new id.
            title: What a list of conversations shows; by default the source's.
            tenant_id: The source must be this tenant's.
            user_id: The source must be this user's.
            new_user_id: Whose the fork is to be; by default the source's user's.
            events: Further events to begin with.
            meta: For events that bring none of their own.

        Raises:
            ConversationNotFound: There is no such source.
            OwnerMismatch: It belongs to another tenant or user.
            ForkRefused: It has no event before that version, or is the hundredth fork of a fork.
            WrongExpectedVersion: There is another conversation of this id.
        """
        parent = self.stream(source, tenant_id=tenant_id, user_id=user_id)
        named_as = new_id() if conversation_id is None else conversation_id
        whose = self.whose(tenant_id, user_id)
        begun = transaction(self._at_hand, write=True)
        with translated(self.url), begun as connection:
            point = locate(connection, parent, before, whose.tenant_id, whose.user_id)
            stream, _ = named(named_as, point.tenant_id)
            forked = ConversationFork(
                parent_conversation_id=str(parent), parent_version=point.version, title=title
            )
            first = NewEvent(forked, derived_id(stream, "fork", point.version), meta or NO_META)
            request = self.request(
                named_as,
                [first, *events],
                point.version,
                meta,
                point.tenant_id,
                point.user_id if new_user_id is None else new_user_id,
                (parent, point.version),
                None,
            )
            return fork(connection, point, request, self.clock())

    def request(
        self,
        conversation_id: StreamId,
        events: Sequence[NewEvent | EventData],
        expected_version: Expected | int,
        meta: Meta | None,
        tenant_id: str | None,
        user_id: str | None,
        parent: tuple[UUID, int] | None,
        writer_epoch: int | None,
        anchor: Anchor | None = None,
    ) -> Append:
        """Return an append, encoded and ready to run; for `append_group`.

        Raises:
            InvalidEvent: As `append` does.
        """
        owner = self.whose(tenant_id, user_id)
        if self.owner.asks:
            self.stream(conversation_id)
        stream, stream_key = named(conversation_id, owner.tenant_id)
        request = Append(
            stream,
            prepare(events, meta, self.blob_threshold, self.max_event_bytes, self.redact),
            expected_version,
            owner.tenant_id,
            owner.user_id,
            writer_epoch,
            parent,
            self.keys,
            anchor=anchor,
            stream_key=stream_key,
        )
        if self.keys is not None and (key := self._appending.seen_key(stream)) is not None:
            request.seal(key)
        return request

    def _appended(
        self, request: Append, connection: Connection | None, wait: bool
    ) -> Appended | Exception:
        if connection is None:
            return self.append_group([request], wait=wait)[0]
        try:
            return append_within(self, connection, request, self.clock())
        except Exception as error:
            return error

    def append_group(
        self, requests: Sequence[Append], *, wait: bool = True
    ) -> list[Appended | Exception]:
        """Run many appends together; each succeeds or fails by itself.

        They share a transaction, or two: those whose streams are where this store saw them last
        go first. The result of each stands at its place, once all that succeeded are durable.
        Without ``wait`` those whose streams somebody has locked are `DatabaseBusy`.
        """
        return self._appending.run(requests, wait=wait)

    def seen_version(self, conversation_id: UUID) -> int:
        """Return the version to which this store has last appended, as it remembers; no promise."""
        return self._appending.seen_version(conversation_id)

    def read(
        self,
        conversation_id: StreamId,
        *,
        after: int = 0,
        before: int | None = None,
        backward: bool = False,
        limit: int | None = None,
        **owner: Unpack[Owned],
    ) -> Iterator[RecordedEvent]:
        """Yield a conversation's events in order of version; none if it does not exist.

        Read in pages of 1,000, each in its own transaction; what is appended meanwhile at the end
        may or may not be seen.

        Args:
            conversation_id: The stream.
            after: Only versions above this one.
            before: Only versions below this one.
            backward: Newest first.
            limit: The most events to yield.
            owner: Whose it must be (``tenant_id``, ``user_id``), here as in all calls that name a
                conversation.

        Raises:
            OwnerMismatch: It belongs to another tenant or user.
        """
        stream = self.stream(conversation_id, **owner)
        upper, left = END if before is None else before, limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            with translated(self.url), transaction(self._at_hand, write=False) as connection:
                page = read_page(
                    connection, stream, after=after, before=upper, backward=backward, limit=size
                )
            yield from page
            if len(page) < size:
                return
            left = None if left is None else left - size
            after, upper = (after, page[-1].version) if backward else (page[-1].version, upper)

    def read_all(self, *, after: str | None = None, limit: int = 500) -> feed.FeedPage:
        """Return the next page of all events of the store; no event is ever skipped.

        With writers of many processes on PostgreSQL, an event is handed out once every transaction
        that began before its own has ended, in the order in which the transactions began. So two
        events of one conversation may come out of order of version, where a transaction that
        appends to several conversations overlaps another; go by ``version``.

        Args:
            after: The ``cursor`` of the page before; None begins at the first event.
            limit: The most events to return.

        Raises:
            InvalidCursor: ``after`` did not come from this store, or the log has gone back to an
                older state since.
            OwnerMismatch: The store is bound to one owner.
        """
        self._owners.everything("read_all")
        with translated(self.url), transaction(self._at_hand, write=False) as connection:
            return feed.read_feed(connection, after, limit)

    def get(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> StreamInfo:
        """Return what is known of a conversation: version, owner, key, times, parent.

        Raises:
            ConversationNotFound: There is none of this id or key.
            OwnerMismatch: It belongs to another tenant or user.
        """
        stream = self.stream(conversation_id, **owner)
        with self.reading() as connection:
            return streams.get_stream(connection, stream)

    def find(self, *, key: str, **owner: Unpack[Owned]) -> StreamInfo | None:
        """Return what is known of the conversation of a key, within a tenant; None without one.

        Raises:
            OwnerMismatch: It belongs to another user.
        """
        with suppress(ConversationNotFound):
            return self.get(key, **owner)
        return None

    def list(
        self,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> list[StreamInfo]:
        """Return conversations in order of id, of a tenant or user or of all.

        Args:
            tenant_id: Only this tenant's.
            user_id: Only this user's.
            after: Only ids above this one: the last id of the page before.
            limit: The most to return.
        """
        owner = self.whose(tenant_id, user_id)
        with self.reading() as connection:
            return streams.list_streams(connection, limit_to=owner.limit, after=after, limit=limit)

    def blob(self, conversation_id: StreamId, digest: str, **owner: Unpack[Owned]) -> bytes:
        """Return the bytes of a blob that an event of the conversation refers to.

        Raises:
            BlobNotFound: There is none, or it has been erased.
            OwnerMismatch: The conversation belongs to another tenant or user.
        """
        stream = self.stream(conversation_id, **owner)
        with self.reading() as connection:
            try:
                return blobs.read_blob(connection, stream, digest)
            except BlobNotFound:
                for holder, _ in lineage(connection, stream):
                    with suppress(BlobNotFound):
                        return blobs.read_blob(connection, holder, digest)
                raise

    @property
    def is_writing_here(self) -> bool:
        """Whether this thread is within a transaction on SQLite, so that it must begin no other."""
        return bool(self._at_hand.here.inside)

    def verify(
        self,
        conversation_id: StreamId | None = None,
        *,
        progress: Progress | None = None,
        **owner: Unpack[Owned],
    ) -> Verification:
        """Recompute the hash chain of one conversation, or of all, and compare.

        Each conversation is read in one transaction with a snapshot of its own.

        Args:
            conversation_id: Only this one.
            progress: Told after each how many events were read, and how many there are.

        Raises:
            ConversationNotFound: There is none of this id.
            OwnerMismatch: It belongs to another tenant or user, or all do.
        """
        return verify(self, self._one_or_all("verify", conversation_id, owner), progress)

    def _one_or_all(self, what: str, conversation_id: StreamId | None, owner: Owned) -> UUID | None:
        if conversation_id is not None:
            return self.stream(conversation_id, **owner)
        self._owners.everything(what)
        return None

    def checkpoint(
        self, file: str | PathLike[str] | IO[bytes], *, key: bytes | None = None
    ) -> Checkpoint:
        """Write the version and chain value of every conversation, for `verify_against`.

        Keep it where whoever can change the database cannot: it finds what no chain can, that
        the last events, whole conversations or all that is newer than a backup are gone.

        Args:
            file: A new file's name, or an open binary file.
            key: A private Ed25519 key in PEM to sign it with; needs the extra ``checkpoints``.

        Raises:
            FileExistsError: There is such a file already.
            KeyRefused: The key cannot be used, or the extra is not installed.
            ConversationDamaged: A conversation's own row cannot be read.
            OwnerMismatch: The store is bound to one owner.
        """
        self._owners.everything("checkpoint")
        if isinstance(file, str | PathLike):
            return save_checkpoint(self, file, key, self.clock())
        return write_checkpoint(self, file, key, self.clock())

    def verify_against(
        self,
        checkpoint: str | PathLike[str],
        *,
        public_key: bytes | None = None,
        conversation_id: StreamId | None = None,
        progress: Progress | None = None,
        **owner: Unpack[Owned],
    ) -> Verification:
        """Do what `verify` does, and find what has gone since a checkpoint was made.

        Args:
            checkpoint: The name of its file.
            public_key: The public key in PEM of whom it must be signed by. Without one, whoever
                can change the file can have it say anything.
            conversation_id: Only this one.
            progress: As of `verify`.

        Raises:
            CheckpointRefused: It was altered, is not signed by the key, or is of another store.
            KeyRefused: The key cannot be used, or the extra is not installed.
            ConversationNotFound: There is none of this id, neither here nor in the checkpoint.
        """
        stream = self._one_or_all("verify_against", conversation_id, owner)
        return verify_against(
            self, checkpoint, public_key=public_key, conversation_id=stream, progress=progress
        )

    def erase(
        self,
        conversation_id: StreamId,
        *,
        reason: str,
        versions: Iterable[int] | None = None,
        requested_by: str | None = None,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
        derived: bool = True,
        **owner: Unpack[Owned],
    ) -> erasure.ErasureReceipt:
        """Erase a conversation's payloads for good, all or those of ``versions``.

        One transaction takes payloads, blobs and all that projections made of them, and appends
        the receipt; what goes along with ``versions`` is looked for before it begins. `verify`
        still passes afterwards. On SQLite the freed pages are overwritten and the write-ahead log
        is emptied. A reader that stays in a transaction keeps it from that: after half a second a
        warning is logged, and the receipt says ``log_emptied=False``. The next erasure, `vacuum`
        or `close` tries again.

        With ``versions``, what holds the same words goes along: a turn's input, the pieces of an
        answer, the arguments of a call, the requests and summaries that they went into. The receipt
        names these versions (``derived``), and those that still repeat a text of at least 20
        characters (``quoted_by``). With ``derived`` false it names all of them, and nothing else
        goes than was asked for.

        Files of tool outputs are deleted from ``state_directory``, and from those in which
        conversations of this process write; erasing again tries again. ``vacuum`` calls `vacuum`
        afterwards.

        Raises:
            ConversationNotFound: There is none of this id.
            OwnerMismatch: It belongs to another tenant or user.
            InvalidEvent: No reason was given.
            OSError: A file of an erased output cannot be deleted; all else is done.
            KeyUnavailable: The conversation is sealed and the store was opened without keys, so
                that nothing was erased; or all is done but for the key, which could not be
                destroyed: that is tried again by the next erasure, and when a store is opened.
        """
        stream = self.stream(conversation_id, **owner)
        with operation("eventstore", "erase", level=INFO, conversation_id=stream) as erased:
            receipt = erasure.erase_in(
                self,
                stream,
                reason=reason,
                now=self.clock(),
                versions=versions,
                requested_by=requested_by,
                derived=derived,
            )
            try:
                if self.keys is not None:
                    destroy_retired(self, self.keys, stream)
            finally:
                self._empty_log()
                directories = () if state_directory is None else (Path(state_directory),)
                for directory in self.state_directories.union(directories):
                    delete_erased(self, stream, directory)
            if vacuum:
                self.vacuum()
            erased.note(version=receipt.version, events=len(receipt.versions))
        return replace(receipt, log_emptied=not self._log_to_empty)

    def vacuum(self) -> None:
        """Rewrite all tables that hold what was said, without what was erased, and their indexes.

        Takes time and space as they are large. On PostgreSQL each table is locked meanwhile, for
        readers too (``VACUUM FULL``); its write-ahead log, replicas and backups are not reached.

        Raises:
            NotWritable: A table is another role's.
        """
        with operation("eventstore", "vacuum", level=INFO):
            with self.reading() as connection:
                tables = erasure.tables_with_content(connection)
            traces.vacuum(self, tables)
            self._empty_log()

    def _empty_log(self) -> None:
        self._log_to_empty = not empty_log(self)
        if self._log_to_empty:
            _log.warning("erased pages are still in the file or its log: a reader holds them")

    def raise_writer_epoch(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> int:
        """Fence all earlier writers of a conversation; return the epoch of the new one.

        Its lower 32 bits are random, those above count: it is greater than the one before, and
        names this writer alone, even if the database goes back to an older state.

        Raises:
            ConversationNotFound: There is none of this id.
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
        """Close every connection; the store can still be used, and opens new ones.

        Leases of conversations that are still open are renewed no more.
        """
        KEEPER.forget(self)
        self._at_hand.close()
        if self._log_to_empty:
            self._log_to_empty = not empty_log(self)
        super().close()
