"""`EventStore`: the write side's public face, synchronous.

Each method runs the functions of `eventstore.sql` in its own transaction. A method that accepts
``connection`` uses the caller's transaction instead, and the caller commits. A store can be shared
between threads, and between a process and its forks (`docs/running.md`).
"""

from __future__ import annotations

import builtins
import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from logging import INFO
from os import PathLike
from pathlib import Path
from typing import IO, Any, Self, TypedDict, Unpack, cast, get_args
from uuid import UUID

from sqlalchemy import URL, Connection, Engine, select

from eventstore import archive as archives
from eventstore import blobs
from eventstore.arguments import at_most, require_known, require_several
from eventstore.erasure.bill import is_unreadable
from eventstore.erasure.erase import Erasing, ErasureReceipt, erase_in, tables_with_content
from eventstore.erasure.purge import PurgeReceipt, Purging, delete_erased, purge_in, state_root
from eventstore.errors import (
    ArchiveFailed,
    BlobNotFound,
    ConversationArchived,
    ConversationNotFound,
    ErrorType,
    EventStoreError,
    FactsNotWritten,
    InvalidEvent,
    KeyUnavailable,
    OwnerMismatch,
    StoreUnavailable,
    Traceback,
)
from eventstore.events import Erasure, RetainedUsage
from eventstore.events.base import Clock, utc_now
from eventstore.events.lifecycle import ConversationFork
from eventstore.events.records import EventData, Meta, NewEvent, RecordedEvent
from eventstore.ids import StreamId, derived_id, new_id
from eventstore.leases import KEEPER, Lease, writer_of, writers
from eventstore.outbox import OUTBOX, OnUnwritten, Unwritten
from eventstore.owners import ANY_OWNER, Owned, Owner, Owners, named
from eventstore.security.checkpoints import (
    Checkpoint,
    save_checkpoint,
    verify_against,
    write_checkpoint,
)
from eventstore.security.hash_chain import Verification
from eventstore.security.key_directory import destroy_retired
from eventstore.security.redaction import Redactor
from eventstore.security.sealing import OPTION, KeyProvider, Keyring
from eventstore.sql import feed, migrate, residues, streams
from eventstore.sql.append import Appending
from eventstore.sql.append_requests import (
    ANY,
    MOST_BYTES,
    Anchor,
    Append,
    Appended,
    Expected,
    Prepared,
    many,
    prepare,
)
from eventstore.sql.borrowed import borrow
from eventstore.sql.conversation_fork import fork, locate
from eventstore.sql.distribute import require_distributed
from eventstore.sql.driver_errors import translated
from eventstore.sql.engines import Synchronous, open_engine
from eventstore.sql.read import END, VERSION, decoded, read_page, read_rows
from eventstore.sql.row_security import OWNER, is_secured, speaks_for
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import StreamInfo, lineage
from eventstore.sql.transactions import Transactions, append_within, empty_log
from eventstore.sql.verify import Progress, verify
from eventstore.standby import Standby, require_standby
from eventstore.telemetry import operations
from eventstore.telemetry.gauges import Attributes
from eventstore.telemetry.log import get_logger
from eventstore.telemetry.operations import operation

__all__ = ["EventStore", "StoreOptions", "UserErasure"]


_READ_PAGE = 200


"""Events per page. Larger pages make the garbage collector scan more short-lived objects."""


_PAGE = 500


_MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class UserErasure:
    """What was erased of a user; each conversation also has its own receipt.

    Attributes:
        user_id: The user.
        tenant_id: The user's tenant.
        conversations: The conversations erased by this call, in order of id.
        erased_before: How many an earlier call had already erased.
        event_count: How many payloads were erased.
        blob_count: How many blobs were deleted.
        blob_bytes: Their total size in bytes.
        billed_calls: How many model calls lost text and are still billed.
        forks: Other users' conversations that lost events they shared with this user's.
        log_emptied: False if a reader keeps erased pages in SQLite's files.
        left: The conversations that could not be erased, each with the reason.
    """

    user_id: str
    tenant_id: str | None
    conversations: tuple[UUID, ...] = ()
    erased_before: int = 0
    event_count: int = 0
    blob_count: int = 0
    blob_bytes: int = 0
    billed_calls: int = 0
    forks: tuple[UUID, ...] = ()
    log_emptied: bool = True
    left: tuple[tuple[UUID, str], ...] = ()

    def with_receipt(self, receipt: ErasureReceipt) -> UserErasure:
        """Return this result with one more conversation."""
        return replace(
            self,
            conversations=(*self.conversations, receipt.conversation_id),
            event_count=self.event_count + len(receipt.versions),
            blob_count=self.blob_count + receipt.blob_count,
            blob_bytes=self.blob_bytes + receipt.blob_bytes,
            billed_calls=self.billed_calls + receipt.billed_calls,
            forks=tuple(sorted({*self.forks, *receipt.forks})),
        )


def erase_all(
    store: Transactions, owner: Owner, erasing: Erasing
) -> tuple[UserErasure, list[UUID], list[EventStoreError]]:
    """Erase every conversation of an owner; return the result, all their ids and the errors.

    A conversation that cannot be erased does not stop the others.
    """
    done = UserErasure(owner.user_id or "", owner.tenant_id)
    streams: list[UUID] = []
    failed: list[EventStoreError] = []
    for stream in _streams(store, owner):
        streams.append(stream)
        try:
            with store.reading() as connection:
                is_erased = _is_erased(connection, stream, erasing.keep_usage)
            if is_erased:
                done = replace(done, erased_before=done.erased_before + 1)
            else:
                done = done.with_receipt(erase_in(store, stream, erasing))
        except EventStoreError as error:
            failed.append(error)
            done = replace(done, left=(*done.left, (stream, str(error))))
    theirs = {*streams}
    others = tuple(fork for fork in done.forks if fork not in theirs)
    return replace(done, forks=others), streams, failed


def _streams(store: Transactions, owner: Owner) -> Iterator[UUID]:
    streams = metadata_for(store.engine.dialect.name).tables["conversations"]
    after: UUID | None = None
    while True:
        query = owner.limit(select(streams.c.conversation_id), streams.c)
        if after is not None:
            query = query.where(streams.c.conversation_id > after)
        with store.reading() as connection:
            query = query.order_by(streams.c.conversation_id).limit(_PAGE)
            page = connection.execute(query).scalars().all()
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1]


def _is_erased(connection: Connection, conversation_id: UUID, keep_usage: bool) -> bool:
    """Whether the conversation's last event is the receipt of an erasure of all of it."""
    try:
        newest = read_page(connection, conversation_id, backward=True, limit=1)
    except EventStoreError as error:
        if not is_unreadable(error):
            raise
        return False
    receipt = newest[0].data if newest else None
    if not isinstance(receipt, Erasure) or not receipt.whole:
        return False
    events = metadata_for(connection.dialect.name).tables["events"]
    bill = select(events.c.version).where(
        events.c.conversation_id == conversation_id,
        events.c.type == RetainedUsage.type,
        events.c.data.is_not(None),
    )
    return keep_usage or connection.execute(bill.limit(1)).first() is None


def _raise_any(failed: Sequence[EventStoreError], receipt: Any) -> None:
    """Raise the first error, with the others as notes and the receipt of what was committed."""
    if not failed:
        return
    first, *others = failed
    for error in others[:_MOST_NOTES]:
        first.add_note(f"and: {error}")
    if len(others) > _MOST_NOTES:
        first.add_note(f"and {len(others) - _MOST_NOTES} more errors")
    first.receipt = receipt
    raise first


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
            value to store instead. See `eventstore.security.redaction`; `redact_secrets` is one.
        memory_bytes: Approximate size of the cache of what requests have read; default 64 MiB, 0
            for none. All conversations opened from the store share one cache of this size; each
            `Views` without its own number has another.
        on_unwritten: Called with `eventstore.outbox.Unwritten` when a conversation is closed while
            the database is unreachable, so that some of its events are not written, and again when
            they were written or can never be. It may be called in any thread.
        worker: Keep the tables of the views current in a thread of this process until the store is
            closed: true, or the `ProjectionSet` that includes your own projections. A forked child
            that uses the store gets its own thread. See `projections.worker`.
        distributed: Spread a new store over the servers of distributed PostgreSQL (Citus): the URL
            is its coordinator's. Later it is distributed whatever this says. See
            ``docs/scale.md``.
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
    worker: bool | Sequence[Any]
    distributed: bool


class EventStore(Transactions):
    """Conversations as streams of immutable events, on SQLite or PostgreSQL.

    Use `open`; the initialiser takes an already configured engine. Every method that uses the
    database may raise `StoreUnavailable` or `StatementRefused`, but never a driver's error.
    """

    clock: Clock
    _owners: Owners
    keys: Keyring | None
    database: Attributes
    blob_threshold: int
    max_event_bytes: int
    redact: Redactor | None
    _appending: Appending
    state_directories: set[Path]
    _log_to_empty: bool

    @property
    def owner(self) -> Owner:
        """The owner that the store is bound to: anybody, unless `for_owner` returned it."""
        return self._owners.bound

    def resolve_owner(self, tenant_id: str | None = None, user_id: str | None = None) -> Owner:
        """Return the owner to limit a query to, from the given owner and the store's own.

        Raises:
            OwnerMismatch: The store is bound to another owner.
        """
        nobody = tenant_id is None and user_id is None
        return self._owners.resolve(ANY_OWNER if nobody else Owner.of(tenant_id, user_id))

    def stream(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> UUID:
        """Return the id of a conversation given by id or key, whether it exists or not.

        Raises:
            OwnerMismatch: It belongs to an owner other than the one given or the store's own.
        """
        return self._owners.stream(conversation_id, owner)[0]

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

        Events are read in pages of 200, each in its own transaction; events that are appended
        concurrently may or may not be seen.

        Args:
            conversation_id: The stream.
            after: Only versions above this one.
            before: Only versions below this one.
            backward: Newest first.
            limit: The most events to yield.
            owner: The owner that the conversation must have (``tenant_id``, ``user_id``), as in all
                calls that name a conversation.

        Raises:
            ConversationArchived: It is in the archive.
            OwnerMismatch: It belongs to another tenant or user.
            ValueError: The limit is negative, as in all calls that take one.
        """
        stream = self.stream(conversation_id, **owner)
        upper, left = END if before is None else before, at_most(limit)
        while left is None or left > 0:
            size = _READ_PAGE if left is None else min(_READ_PAGE, left)
            with translated(self.url), self._at_hand.transaction() as connection:
                page = read_rows(
                    connection, stream, after=after, before=upper, backward=backward, limit=size
                )
                if not page and streams.archived_owner(connection, stream) is not None:
                    raise ConversationArchived(stream)
            yield from decoded(self._at_hand.backend, page, stream)
            if len(page) < size:
                return
            left, last = None if left is None else left - size, page[-1][VERSION]
            after, upper = (after, last) if backward else (last, upper)

    def read_all(
        self, *, after: str | None = None, limit: int = 500, skip_unreadable: bool = False
    ) -> feed.FeedPage:
        """Return the next page of all events of the store; no event is ever skipped.

        On PostgreSQL an event is returned once every transaction that began before its own has
        ended, and events are ordered by the start of their transactions. If a transaction that
        appends to several conversations overlaps another one, two events of one conversation may
        therefore be returned out of order; sort by ``version``.

        Events whose key is lost for good are passed: the page's ``passed`` lists them, and they are
        logged. Other events that cannot be read stop the feed, unless ``skip_unreadable`` is true.

        Args:
            after: The ``cursor`` of the previous page; None starts at the first event.
            limit: The most events to return.
            skip_unreadable: Pass damaged events too, and those whose key is not available now.

        Raises:
            EventDamaged, BlobNotFound, BlobDamaged: An event or its blob is damaged.
            KeyUnavailable: The store has no keys, or a key is not available at the moment.
            InvalidCursor: ``after`` did not come from this store, or the log has been restored to
                an older state since.
            OwnerMismatch: The store is bound to one owner.
        """
        self._owners.everything("read_all")
        with translated(self.url), self._at_hand.transaction() as connection:
            return feed.read_feed(
                connection, after, at_most(limit), skip_unreadable=skip_unreadable
            )

    def get(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> StreamInfo:
        """Return a conversation's version, owner, key, times and parent.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            OwnerMismatch: It belongs to another tenant or user.
        """
        stream = self.stream(conversation_id, **owner)
        with self.reading() as connection:
            return streams.get_stream(connection, stream)

    def find(self, *, key: str, **owner: Unpack[Owned]) -> StreamInfo | None:
        """Return the conversation with a key, within a tenant; None if it does not exist.

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
    ) -> builtins.list[StreamInfo]:
        """Return conversations in order of id: all of them, or those of a tenant or user.

        Args:
            tenant_id: Only this tenant's.
            user_id: Only this user's.
            after: Only ids above this one: the last id of the previous page.
            limit: The most conversations to return.
        """
        owner = self.resolve_owner(tenant_id, user_id)
        with self.reading() as connection:
            return streams.list_streams(
                connection, limit_to=owner.limit, after=after, limit=at_most(limit)
            )

    def blob(self, conversation_id: StreamId, digest: str, **owner: Unpack[Owned]) -> bytes:
        """Return the bytes of a blob that an event of the conversation refers to.

        Raises:
            BlobNotFound: It does not exist or has been erased.
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
                if streams.archived_owner(connection, stream) is not None:
                    raise ConversationArchived(stream) from None
                raise

    @property
    def is_writing_here(self) -> bool:
        """Whether this thread is in a transaction on SQLite and must not begin another one."""
        return bool(self._at_hand.here.inside)

    def verify(
        self,
        conversation_id: StreamId | None = None,
        *,
        progress: Progress | None = None,
        **owner: Unpack[Owned],
    ) -> Verification:
        """Recompute the hash chain of one conversation or of all, and compare.

        Each conversation is read in one transaction with its own snapshot.

        Args:
            conversation_id: Only this one.
            progress: Called after each conversation with the number of events read so far and the
                total.

        Raises:
            ConversationNotFound: No conversation has this id.
            OwnerMismatch: The conversation belongs to another tenant or user; or all are to be
                verified, and the store is bound to an owner or one was named.
        """
        return verify(self, self._one_or_all("verify", conversation_id, owner), progress)

    def _one_or_all(self, what: str, conversation_id: StreamId | None, owner: Owned) -> UUID | None:
        if conversation_id is not None:
            return self.stream(conversation_id, **owner)
        self._owners.everything(what)
        if self.resolve_owner(**owner).asks:
            raise OwnerMismatch(None, f"{what} concerns all owners unless it names a conversation")
        return None

    def checkpoint(
        self, file: str | PathLike[str] | IO[bytes], *, key: bytes | None = None
    ) -> Checkpoint:
        """Write the version and chain value of every conversation, for `verify_against`.

        Keep it out of reach of anyone who can change the database. It detects what no chain can:
        that the last events, whole conversations, or everything newer than a backup is gone.

        Args:
            file: The name of a new file, or an open binary file.
            key: A private Ed25519 key in PEM to sign it with; needs the extra ``checkpoints``.

        Raises:
            FileExistsError: The file already exists.
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
        """Do what `verify` does, and find what has been lost since a checkpoint was made.

        Args:
            checkpoint: The name of the checkpoint's file.
            public_key: The public key in PEM that the checkpoint must be signed with. Without it,
                anyone who can change the file can forge the checkpoint.
            conversation_id: Only this one.
            progress: See `verify`.

        Raises:
            CheckpointRefused: It was altered, is not signed by the key, or is of another store.
            KeyRefused: The key cannot be used, or the extra is not installed.
            ConversationNotFound: No conversation has this id, neither here nor in the checkpoint.
        """
        stream = self._one_or_all("verify_against", conversation_id, owner)
        return verify_against(
            self, checkpoint, public_key=public_key, conversation_id=stream, progress=progress
        )

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
        allow_empty: bool = False,
    ) -> Appended:
        r"""Append events to a conversation: all of them, or none.

        One durable transaction (or part of the caller's). Repeating an append of `NewEvent`\ s
        with the same ``event_id``\ s returns the first result and writes nothing.

        Args:
            conversation_id: The stream; its first event creates it.
            events: One event, or several in order: payloads, or `NewEvent`\ s with an id or
                metadata.
            expected_version: ``ANY``, ``NO_STREAM``, or the exact version before this append.
            meta: Metadata for events without their own.
            tenant_id: The conversation's tenant, recorded when it is created, as is its key.
            user_id: The conversation's user, recorded when it is created.
            parent: Conversation and version that this one was forked from, recorded likewise.
            writer_epoch: The result of `raise_writer_epoch`, or 0: refuse if another writer has
                opened the conversation since.
            anchor: The anchor of an earlier append's result; the log must still hold its event.
            connection: Append in the transaction that `transaction` has begun on it.
            wait: Whether to wait while another writer holds the conversation's lock. If not, raise
                `DatabaseBusy` at once, on SQLite after a tenth of a second.
            allow_empty: Store user messages and answers without content too: for records of other
                systems, which may have such. No request contains an empty message.

        Raises:
            WrongExpectedVersion: The stream is at another version.
            EventIdConflict: The stream holds some of the event ids, but not as this append.
            LogWentBack: The event of ``anchor`` is gone, or another event has its version.
            WriterFenced: A newer writer has opened the conversation.
            UnsafeTransaction: ``connection`` is not in a transaction, or in one that is not
                durable.
            OwnerMismatch: The conversation belongs to another tenant or user.
            InvalidEvent: ``events`` is empty, a message has no content, or an event is the receipt
                of an erasure, cannot be encoded or exceeds a limit: see `eventstore.events.bounds`.
            RedactionFailed: The store's redactor raised or returned an invalid value.
        """
        started, events = time.perf_counter(), many(events)
        request = self._request(
            conversation_id,
            events,
            expected_version,
            meta,
            tenant_id,
            user_id,
            parent,
            writer_epoch,
            anchor,
            allow_empty,
        )
        outcome = self._appended(request, connection, wait)
        operations.appended(self.database, request.conversation_id, len(events), outcome, started)
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
        """Start a conversation that shares another's events up to a version, without copying them.

        One transaction, which takes as long as an append: the fork's first event is a
        ``conversation_fork`` with the version ``before``, and its versions count on from there.
        From then on, events can be appended to both conversations. Reads and views of the fork show
        the shared events, usage counts them only for the parent, and erasing them in the parent
        erases them in the fork as well.

        Args:
            source: The conversation to continue from.
            before: The first version that is not shared; by default all events are shared.
            conversation_id: The fork's id or key; by default a new id.
            title: The title in lists of conversations; by default the source's.
            tenant_id: The source must belong to this tenant.
            user_id: The source must belong to this user.
            new_user_id: The fork's user; by default the source's user.
            events: Further events to start with.
            meta: Metadata for events without their own.

        Raises:
            ConversationNotFound: The source does not exist.
            OwnerMismatch: The source belongs to another tenant or user.
            ForkRefused: The source has no event before that version, or is the hundredth fork of a
                fork.
            WrongExpectedVersion: Another conversation has the fork's id.
        """
        parent = self.stream(source, tenant_id=tenant_id, user_id=user_id)
        named_as = new_id() if conversation_id is None else conversation_id
        source_owner = self.resolve_owner(tenant_id, user_id)
        # Before SQLite's lock is taken: encoding and redaction may take long.
        further, most = self._prepared(events, meta) if events else (), self.max_event_bytes
        unplaced = ConversationFork(
            parent_conversation_id=str(parent), parent_version=1, title=title
        )
        [checked] = prepare([unplaced], meta, most, most, self.redact)
        transaction = self._at_hand.transaction(write=True)
        with translated(self.url), transaction as connection:
            point = locate(connection, parent, before, source_owner.tenant_id, source_owner.user_id)
            user = point.user_id if new_user_id is None else new_user_id
            owner = self.resolve_owner(point.tenant_id, user)
            stream, stream_key = named(named_as, owner.tenant_id)
            forked = cast(ConversationFork, checked.data).model_copy(
                update={"parent_version": point.version}
            )
            first = NewEvent(forked, derived_id(stream, "fork", point.version), checked.meta)
            request = Append(
                stream,
                prepare([first], None, self.blob_threshold, most) + further,
                point.version,
                owner.tenant_id,
                owner.user_id,
                parent=(parent, point.version),
                keys=self.keys,
                exact_tenant=owner.exact,
                stream_key=stream_key,
            )
            forked_to = fork(connection, point, request, self.clock())
        if self._standby is not None:
            self._standby.wrote(forked_to.conversation_id, forked_to.version)
        return forked_to

    def _request(
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
        allow_empty: bool = False,
    ) -> Append:
        """Return an append, encoded and ready to run.

        Raises:
            InvalidEvent: As `append` does.
        """
        owner = self.resolve_owner(tenant_id, user_id)
        stream, stream_key = named(conversation_id, owner.tenant_id)
        request = Append(
            stream,
            self._prepared(events, meta, allow_empty),
            expected_version,
            owner.tenant_id,
            owner.user_id,
            writer_epoch,
            parent,
            self.keys,
            anchor=anchor,
            exact_tenant=owner.exact,
            stream_key=stream_key,
        )
        if self.keys is not None and (key := self._appending.seen_key(stream)) is not None:
            request.seal(key)
        return request

    def _prepared(
        self, events: Sequence[NewEvent | EventData], meta: Meta | None, allow_empty: bool = False
    ) -> tuple[Prepared, ...]:
        return prepare(
            events,
            meta,
            self.blob_threshold,
            self.max_event_bytes,
            self.redact,
            allow_empty=allow_empty,
        )

    def _appended(
        self, request: Append, connection: Connection | None, wait: bool
    ) -> Appended | Exception:
        if connection is None:
            return self._append_group([request], wait=wait)[0]
        try:
            appended = append_within(self, connection, request, self.clock())
        except Exception as error:
            return error
        if self._standby is not None:
            self._standby.wrote(appended.conversation_id, appended.version)
            self._standby.when_committed(connection)
        return appended

    def _append_group(
        self, requests: Sequence[Append], *, wait: bool = True
    ) -> builtins.list[Appended | Exception]:
        """Run many appends together; each succeeds or fails by itself.

        They share one transaction, or two: appends whose streams are at the version that this store
        saw last go first. Results are in the order of the requests, and are returned once all
        successful appends are durable. Without ``wait``, an append to a locked stream fails with
        `DatabaseBusy`.
        """
        outcomes = self._appending.run(requests, wait=wait)
        if self._standby is not None:
            for each in outcomes:
                if isinstance(each, Appended):
                    self._standby.wrote(each.conversation_id, each.version)
        return outcomes

    def _seen_version(self, conversation_id: UUID) -> int:
        """Return the version that this store last appended to, from memory; it may be outdated."""
        return self._appending.seen_version(conversation_id)

    def _writer_raised(self, conversation_id: UUID, epoch: int) -> None:
        """Remember the epoch of a conversation's new writer, once it is committed."""
        self._appending.writer_raised(conversation_id, epoch)

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
        keep_usage: bool = True,
        **owner: Unpack[Owned],
    ) -> ErasureReceipt:
        """Erase a conversation's payloads for good: all of them, or those of ``versions``.

        One transaction deletes payloads, blobs and all projected rows, and appends the receipt. The
        conversation is surveyed before this transaction begins. If many forks hold copies of the
        text, transactions for some forks each precede it; if the process dies in between, call this
        again. A conversation erased as a whole
        disappears from lists until its next message. Its bill stays: a ``kept_usage`` event holds
        models, tokens and times of the calls. With ``keep_usage`` false the bill is erased too,
        including what earlier erasures kept. `verify` still passes afterwards.

        On SQLite the freed pages are overwritten and the write-ahead log is emptied. A reader that
        stays in a transaction prevents this: after half a second a warning is logged, and the
        receipt has ``log_emptied=False``. The next erasure, `vacuum` or `close` tries again.

        With ``versions``, copies of the same text are erased as well: a turn's input, the pieces of
        an answer, the arguments of a call, and the requests and summaries that contain them. The
        receipt lists these versions (``derived``), and the versions that still repeat a text of at
        least 20 characters, or cannot be read (``quoted_by``). With ``derived`` false only the
        requested versions are erased, and ``quoted_by`` lists copies and repetitions alike.

        Files of tool outputs are deleted from ``state_directory`` and from the directories that
        conversations of this process write to; another erasure tries again. ``vacuum`` calls
        `vacuum` afterwards.

        Raises:
            ConversationNotFound: No conversation has this id.
            OwnerMismatch: The conversation belongs to another tenant or user.
            TypeError: ``versions`` is a text.
            InvalidEvent: No reason was given, or one of ``versions`` does not exist.
            EventDamaged: One of ``versions`` cannot be read, so that its copies cannot be found.
            OutputFileError: Files of erased outputs cannot be deleted; everything else is done, and
                the error's ``receipt`` is what this would have returned.
            KeyUnavailable: The conversation is sealed and the store was opened without keys, or its
                key cannot be read at the moment, which keeping the usage requires; nothing was
                erased. What is sealed with a lost key can be erased. Or everything is done, but
                the key could not be destroyed: the next erasure and the next opening of a store
                try again.
        """
        require_several(versions=versions)
        stream = self.stream(conversation_id, **owner)
        wanted = None if versions is None else frozenset(versions)
        erasing = Erasing(reason, self.clock(), wanted, requested_by, derived, keep_usage)
        return self._erased(stream, erasing, state_directory=state_directory, vacuum=vacuum)

    def _erase_for(
        self,
        conversation_id: StreamId,
        append: Callable[[int], Sequence[NewEvent]],
        *,
        reason: str,
        versions: Iterable[int] | None,
        expected_version: int,
        **owner: Unpack[Owned],
    ) -> int:
        """Erase payloads, and append the events that replace them, in one transaction.

        ``append`` returns the events, given the version that they follow. Returns the last version.

        Raises:
            WrongExpectedVersion: The conversation is at another version.
            EventStoreError: See `erase` and `append`.
        """
        last = 0

        def then(connection: Connection, version: int) -> None:
            nonlocal last
            last = version
            if events := append(version):
                last = self.append(
                    conversation_id,
                    events,
                    expected_version=version,
                    connection=connection,
                    **owner,
                ).version

        require_several(versions=versions)
        wanted = None if versions is None else frozenset(versions)
        erasing = Erasing(reason, self.clock(), wanted, version=expected_version)
        self._erased(self.stream(conversation_id, **owner), erasing, then)
        return last

    def _erased(
        self,
        stream: UUID,
        erasing: Erasing,
        then: Callable[[Connection, int], None] | None = None,
        *,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
    ) -> ErasureReceipt:
        """Erase, and clean up after the commit."""
        with operation("eventstore", "erase", level=INFO, conversation_id=stream) as erased:
            try:
                receipt = erase_in(self, stream, erasing, then)
            except ConversationArchived:
                archives.restore(self, stream)
                receipt = erase_in(self, stream, erasing, then)
            erased.note(version=receipt.version, events=len(receipt.versions))
            failed = self._leave_nothing((stream,), state_directory, vacuum)
            receipt = replace(receipt, log_emptied=not self._log_to_empty)
            _raise_any(failed, receipt)
        return receipt

    def erase_user(
        self,
        user_id: str,
        *,
        reason: str,
        tenant_id: str | None = None,
        requested_by: str | None = None,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
        keep_usage: bool = True,
    ) -> UserErasure:
        """Erase all conversations of a user, one after another, as `erase` does.

        Each conversation has its own transaction. If the process dies in between, call this again:
        erased conversations are skipped and the rest are erased. Conversations that are written to
        in the meantime are found by another call, which returns ``conversations=()`` once nothing
        is left. A conversation that cannot be erased does not stop the others: the first error is
        raised when they are done, with the others as notes; its ``receipt`` is the result, whose
        ``left`` lists these conversations. Another call tries them again. Events that the user's
        conversations share with other users' forks are erased there as well. Events that the user's
        forks share with other users' conversations belong to those users, and stay.

        Args:
            user_id: The user.
            reason: Why; stored in every receipt.
            tenant_id: The user's tenant; without it, the user's conversations without a tenant.
            requested_by: Who requested it.
            state_directory: The product's directory of tool output files.
            vacuum: Call `vacuum` at the end.
            keep_usage: Whether to keep the usage of model calls.

        Raises:
            OwnerMismatch: The store is bound to another tenant or user.
            InvalidEvent: No reason or no user was given.
            OutputFileError: Files of erased outputs cannot be deleted; everything else is done, and
                the error's ``receipt`` is what this would have returned.
            KeyUnavailable: See `erase`.
        """
        if user_id is None:
            raise InvalidEvent("erase_user needs a user_id")
        owner = self._owners.resolve(Owner.of(tenant_id, user_id, exact=True))
        if not self.owner.asks and self._is_limited():
            # Otherwise row-level security would show none of the user's conversations.
            return self.for_owner(tenant_id=tenant_id, user_id=user_id).erase_user(
                user_id,
                reason=reason,
                tenant_id=tenant_id,
                requested_by=requested_by,
                state_directory=state_directory,
                vacuum=vacuum,
                keep_usage=keep_usage,
            )
        erasing = Erasing(reason, self.clock(), None, requested_by, True, keep_usage)
        erasing.check()
        with operation("eventstore", "erase_user", level=INFO) as erased:
            archived = archives.restore_all(self, owner)
            done, streams, failed = erase_all(self, owner, erasing)
            erased.note(conversations=len(done.conversations), events=done.event_count)
            failed += archived + self._leave_nothing(streams, state_directory, vacuum)
            done = replace(done, log_emptied=not self._log_to_empty)
            _raise_any(failed, done)
        return done

    def purge(
        self,
        conversation_id: StreamId,
        *,
        reason: str,
        forks: bool = False,
        requested_by: str | None = None,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
        **owner: Unpack[Owned],
    ) -> PurgeReceipt:
        """Delete a conversation and its events without a trace, except for a receipt.

        One transaction deletes its events with their headers, hashes and earlier receipts, its
        blobs, its own row with owner, key and title, all projected rows, and its usage; its key is
        destroyed. Many forks are purged before it, in transactions of their own, each with its own
        receipt; if the process dies in between, the next call completes this.

        The receipt stays, as a row of ``purges``: the conversation's id, when, why, who
        requested it, and how many events and blobs were deleted. `verify`, the feed and its
        cursors, lists and rebuilds work as if the conversation had never existed. The id, and so
        the product's key, can start a new conversation. If the process dies after the commit, call
        this again: it does the remaining work and returns the receipt again (except on a store
        bound to an owner, or if an owner is named: there the conversation is gone).

        Args:
            conversation_id: The conversation.
            reason: Why; stored in the receipt.
            forks: Also purge the forks that share its events, and their forks.
            requested_by: Who requested it.
            state_directory: The product's directory of tool output files.
            vacuum: Call `vacuum` afterwards.
            **owner: The owner that the conversation and its forks must have.

        Raises:
            ConversationNotFound: No conversation has this id.
            ConversationForked: Forks share its events, and ``forks`` is false; nothing is purged.
            OwnerMismatch: The conversation or one of its forks belongs to another tenant or user.
            InvalidEvent: No reason was given.
            OutputFileError: Files of outputs cannot be deleted; everything else is done, and the
                error's ``receipt`` is what this would have returned.
            KeyUnavailable: The conversation is sealed and the store was opened without keys;
                nothing was purged. Or everything is done, but the key could not be destroyed.
        """
        stream = self.stream(conversation_id, **owner)
        resolved_owner = self.resolve_owner(owner.get("tenant_id"), owner.get("user_id"))
        purging = Purging(reason, self.clock(), requested_by, forks, resolved_owner)
        with operation("eventstore", "purge", level=INFO, conversation_id=stream) as purged:
            try:
                receipt = purge_in(self, stream, purging)
            except ConversationArchived:
                archives.restore(self, stream, resolved_owner)
                receipt = purge_in(self, stream, purging)
            purged.note(events=receipt.event_count)
            failed = self._leave_nothing((stream, *receipt.forks), state_directory, vacuum)
            receipt = replace(receipt, log_emptied=not self._log_to_empty)
            _raise_any(failed, receipt)
        return receipt

    def archive(
        self,
        url: str | Path,
        *,
        inactive_for: timedelta,
        limit: int | None = None,
        on_progress: Callable[[archives.ArchiveReport], None] = lambda _: None,
    ) -> archives.ArchiveReport:
        """Move the conversations that rest into compressed files outside of the database.

        Each is verified, written to a file, read back, and only then deleted, in a transaction that
        finds it unchanged. Until it is restored, its id and key stay taken, everything that names
        it raises `ConversationArchived`, and lists, searches and totals lack it. Erasing or purging
        it restores it first. A process that dies leaves it in the database or in the archive, never
        in neither; the next run deletes the file of one that is in both.

        Conversations stay that a session has open or that share events with a fork. Needs the extra
        ``archive``.

        Args:
            url: A directory, or a URL that fsspec understands, such as ``s3://bucket/path``.
            inactive_for: How long they must not have gained events.
            limit: The most conversations to move.
            on_progress: Called after each conversation with the report so far.

        Raises:
            ArchiveFailed: Files cannot be written there. Those that are complete count.
            OwnerMismatch: The store is bound to one owner.
        """
        self._owners.everything("archive")
        if inactive_for <= timedelta(0):
            raise ValueError("inactive_for must be a positive timedelta")
        with operation("eventstore", "archive", level=INFO) as moved:
            before = self.clock() - inactive_for
            try:
                report = archives.archive_inactive(
                    self, str(url), before, self.clock, limit=limit, on_progress=on_progress
                )
            finally:
                if self._standby is not None:
                    self._standby.wrote_elsewhere()
            moved.note(conversations=report.conversations, events=report.events)
        return report

    def archived(
        self,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> builtins.list[archives.ArchivedConversation]:
        """Return the conversations in the archive, in order of id; the arguments are `list`'s."""
        owner = self.resolve_owner(tenant_id, user_id)
        return archives.archived(self, owner, after=after, limit=at_most(limit))

    def restore(
        self, conversation_id: StreamId, **owner: Unpack[Owned]
    ) -> archives.ArchivedConversation:
        """Bring a conversation back from the archive, and delete its file.

        One transaction inserts and verifies what it had, under the same ids and versions. The feed
        returns its events again, as the newest ones.

        Raises:
            ConversationNotFound: The archive does not have it.
            OwnerMismatch: It belongs to another tenant or user.
            ArchiveFailed: The file cannot be read, or is not as it was written.
            NotWritable: Row-level security limits this login.
        """
        stream = self.stream(conversation_id, **owner)
        resolved_owner = self.resolve_owner(owner.get("tenant_id"), owner.get("user_id"))
        with operation("eventstore", "restore", level=INFO, conversation_id=stream) as restored:
            found = archives.restore(self, stream, resolved_owner)
            restored.note(events=found.event_count)
            if self._standby is not None:
                self._standby.wrote_elsewhere()
        return found

    def verify_archive(
        self, *, progress: Callable[[int], None] = lambda _: None
    ) -> builtins.list[ArchiveFailed]:
        """Read every file of the archive, and return what is wrong with any of them.

        A file whose bytes are those that were written holds a conversation that verified.

        Args:
            progress: Called after each file with the number of files so far.

        Raises:
            OwnerMismatch: The store is bound to one owner.
        """
        self._owners.everything("verify_archive")
        return archives.verify_archive(self, progress=progress)

    def vacuum(self) -> None:
        """Rewrite all tables that hold content, and their indexes, without the erased data.

        Time and disk space grow with the size of the tables. On PostgreSQL each table is locked
        during its rewrite, for readers too (``VACUUM FULL``); the write-ahead log, replicas and
        backups are not rewritten.

        Raises:
            NotWritable: A table belongs to another role.
        """
        with operation("eventstore", "vacuum", level=INFO):
            with self.reading() as connection:
                tables = tables_with_content(connection)
            residues.vacuum(self, tables)
            self._empty_log()

    def _leave_nothing(
        self, streams: Iterable[UUID], state_directory: str | Path | None, vacuum: bool
    ) -> builtins.list[EventStoreError]:
        """Clean up after the commit: keys, SQLite's log, files, and all pages with ``vacuum``.

        No failure prevents the other steps; return them all.
        """
        streams = tuple(streams)
        if self._standby is not None:
            self._standby.wrote_elsewhere()
        failed: list[EventStoreError] = []
        directories = () if state_directory is None else (state_root(state_directory),)
        steps: list[Callable[[], None]] = []
        if self.keys is not None:
            steps += [partial(destroy_retired, self, self.keys, stream) for stream in streams]
        steps += [self._empty_log, partial(archives.leave_no_file, self, streams)]
        for directory in sorted(self.state_directories.union(directories)):
            steps += [
                partial(delete_erased, self, self.read, stream, directory) for stream in streams
            ]
        if vacuum:
            steps.append(self._vacuum_erased)
        for step in steps:
            try:
                step()
            except EventStoreError as error:
                failed.append(error)
        return failed

    def _vacuum_erased(self) -> None:
        try:
            self.vacuum()
        except StoreUnavailable as error:
            reason = str(error).removeprefix(f"{error.url}: ")
            message = f"the erasure is committed, but tables were not rewritten: {reason}"
            raise type(error)(error.url, message) from error

    def _empty_log(self) -> None:
        self._log_to_empty = not empty_log(self)
        if self._log_to_empty:
            _log.warning("erased pages are still in the file or its log: a reader holds them")

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
        self.database = operations.database(engine.url)
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
        self._worker: Any = None
        self._appending = Appending(self.url, self._at_hand, self.clock)
        self._owners = Owners(self)
        self._standby: Standby[EventStore] | None = None
        operations.discover()

    @classmethod
    def open(
        cls,
        url: str | URL,
        *,
        pool_size: int = 5,
        read_url: str | URL | None = None,
        **options: Unpack[StoreOptions],
    ) -> Self:
        """Open a database, and create or upgrade its schema unless ``migrate`` is false.

        Args:
            url: ``sqlite:///file.db`` or ``postgresql+psycopg://user@host/database``.
            pool_size: Connections kept open; up to twice as many are used at the same time.
            read_url: A streaming standby of that PostgreSQL. It answers what screens and reports
                read through `Views`, unless it lacks what this store has written, or cannot be
                reached: then the primary answers. See ``docs/scale.md``.
            **options: See `StoreOptions`.

        Raises:
            StoreUnavailable: One of its subclasses says what is wrong with the URL, server, file or
                schema.
            InvalidUrl: Also: ``read_url`` names another store than ``url``.
            ValueError: An option has an invalid value.
            TypeError: An option is unknown or has the wrong type.
            ImportError: ``keys`` is given, but the extra ``encryption`` is not installed.
        """
        require_known(options, StoreOptions)
        if pool_size < 1:
            raise ValueError(f"pool_size is {pool_size}: give at least 1")
        schema, read_only = options.get("schema"), options.get("read_only", False)
        if read_url is not None:
            require_standby(url, read_url, schema, read_only=read_only)
        store = cls._opened(partial(open_engine, url, pool_size=pool_size), **options)
        if read_url is not None:
            connect = partial(
                cls.open, read_url, pool_size=pool_size, read_only=True, schema=schema
            )
            keys = options.get("keys")
            store._standby = Standby(store, partial(connect, keys=keys), read_url)
            try:
                store._standby.open()
            except BaseException:
                store.close()
                raise
        return store

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
        worker: bool | Sequence[Any] = False,
        distributed: bool = False,
        **options: Any,
    ) -> Self:
        if synchronous not in get_args(Synchronous):
            # SQLite reads an unknown level as NORMAL, under which a power cut may undo commits.
            levels = ", ".join(get_args(Synchronous))
            raise ValueError(f"synchronous is {synchronous!r}: choose from {levels}")
        if busy_timeout_ms < 0:
            raise ValueError(f"busy_timeout_ms is {busy_timeout_ms}: give a number, or 0 for none")
        if worker and read_only:
            raise ValueError("worker needs a store that it may write: open it without read_only")
        engine = connect(
            schema=schema,
            synchronous=synchronous,
            busy_timeout_ms=busy_timeout_ms,
            read_only=read_only,
        )
        try:
            store = cls(engine, read_only=read_only, **options)
            store._prepare_schema(migrate and not read_only)
            if distributed:
                require_distributed(engine)
            if worker:  # The read side is above this package, so it is found by name.
                own = () if worker is True else (worker,)
                store._worker = import_module("projections.worker").WorkerThread(store, *own)
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
            named = speaks_for(self._at_hand.backend, theirs.tenant_id, theirs.user_id)
            bound.engine = self.engine.execution_options(**{OWNER: named})
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
            epoch = streams.raise_writer_epoch(connection, stream)
        self._writer_raised(stream, epoch)
        return epoch

    def writer(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> Lease | None:
        """Return who has a conversation open and since when; None if it is not open.

        A lease that is not ``live`` was left by a process that has ended or cannot be reached.

        Raises:
            OwnerMismatch: It belongs to another tenant or user.
        """
        stream = self.stream(conversation_id, **owner)
        with self.reading() as connection:
            return writer_of(connection, stream)

    def writers(self, limit: int = 100, **owner: Unpack[Owned]) -> builtins.list[Lease]:
        """Return who has which conversation open, those opened last first; see `writer`.

        Args:
            limit: Maximum number of leases to return.
            owner: The required owner (``tenant_id``, ``user_id``).

        Raises:
            OwnerMismatch: The store is bound to another owner.
        """
        owned_by, most = self.resolve_owner(**owner), at_most(limit, needed=True)
        with self.reading() as connection:
            return writers(connection, owned_by, most)

    def unwritten(self, conversation_id: StreamId | None = None) -> builtins.list[Unwritten]:
        """Return the events that closed conversations of this process could not write yet.

        They are retried; see `eventstore.outbox`. A store that is bound to an owner returns those
        that were recorded through stores bound to the same owner.
        """
        stream = None if conversation_id is None else self.stream(conversation_id)
        return OUTBOX.of(self, stream, self._owners.bound if self._owners.bound.asks else None)

    def close(self) -> None:
        """Close every connection; those in use are closed when they are returned.

        Before that, stops the store's worker, if it has one, and tries to write the events that
        closed conversations have left. The store can still be used: it then opens a connection for
        each transaction and keeps none. Leases of conversations that are still open are no longer
        renewed.

        Raises:
            FactsNotWritten: Some of these events could not be written; the store is closed.
        """
        if self._worker is not None:
            self._worker.stop()
        try:
            OUTBOX.close(self)
        finally:
            if self._standby is not None:
                self._standby.close()
            KEEPER.forget(self)
            self._at_hand.close()
            if self._log_to_empty:
                self._log_to_empty = not empty_log(self)
            super().close()

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
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
        message = f"clock returned {moment}: in UTC that is before the year 1 or after 9999"
        raise InvalidEvent(message, field="clock") from error
