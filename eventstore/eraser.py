"""Permanent deletion: payloads, a user's conversations, or a conversation with all its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging import INFO
from pathlib import Path
from typing import Any, Self, Unpack
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.bill import is_unreadable
from eventstore.erased_rows import tables_with_content
from eventstore.erasure import Erasing, ErasureReceipt, erase_in
from eventstore.errors import EventStoreError, InvalidEvent, StoreUnavailable
from eventstore.events import Erasure, KeptUsage
from eventstore.events.base import Clock
from eventstore.events.records import NewEvent
from eventstore.ids import StreamId
from eventstore.key_directory import destroy_retired
from eventstore.log import get_logger
from eventstore.options import require_several
from eventstore.owners import Owned, Owner
from eventstore.purging import PurgeReceipt, Purging, purge_in
from eventstore.sql import traces
from eventstore.sql.read import read_page
from eventstore.sql.schema import metadata_for
from eventstore.sql.transactions import Transactions, empty_log
from eventstore.state_files import delete_erased, state_root
from eventstore.telemetry import operation
from eventstore.writer import EventWriter

__all__ = ["EventEraser", "UserErasure"]


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
        kept_calls: How many model calls lost text and are still billed.
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
    kept_calls: int = 0
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
            kept_calls=self.kept_calls + receipt.kept_calls,
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
        events.c.type == KeptUsage.type,
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


class EventEraser(EventWriter):
    """Erases and purges conversations; `EventStore` is one."""

    clock: Clock
    state_directories: set[Path]
    _log_to_empty: bool

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return this store bound to one owner: see `EventStore.for_owner`."""
        raise NotImplementedError

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
        asked = Erasing(reason, self.clock(), wanted, requested_by, derived, keep_usage)
        return self._erased(stream, asked, state_directory=state_directory, vacuum=vacuum)

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
        asked = Erasing(reason, self.clock(), wanted, version=expected_version)
        self._erased(self.stream(conversation_id, **owner), asked, then)
        return last

    def _erased(
        self,
        stream: UUID,
        asked: Erasing,
        then: Callable[[Connection, int], None] | None = None,
        *,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
    ) -> ErasureReceipt:
        """Erase, and clean up after the commit."""
        with operation("eventstore", "erase", level=INFO, conversation_id=stream) as erased:
            receipt = erase_in(self, stream, asked, then)
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
        owner = self._owners.asked(Owner.of(tenant_id, user_id, exact=True))
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
        asked = Erasing(reason, self.clock(), None, requested_by, True, keep_usage)
        asked.check()
        with operation("eventstore", "erase_user", level=INFO) as erased:
            done, streams, failed = erase_all(self, owner, asked)
            erased.note(conversations=len(done.conversations), events=done.event_count)
            failed += self._leave_nothing(streams, state_directory, vacuum)
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
        whose = self.whose(owner.get("tenant_id"), owner.get("user_id"))
        asked = Purging(reason, self.clock(), requested_by, forks, whose)
        with operation("eventstore", "purge", level=INFO, conversation_id=stream) as purged:
            receipt = purge_in(self, stream, asked)
            purged.note(events=receipt.event_count)
            failed = self._leave_nothing((stream, *receipt.forks), state_directory, vacuum)
            receipt = replace(receipt, log_emptied=not self._log_to_empty)
            _raise_any(failed, receipt)
        return receipt

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
            traces.vacuum(self, tables)
            self._empty_log()

    def _leave_nothing(
        self, streams: Iterable[UUID], state_directory: str | Path | None, vacuum: bool
    ) -> list[EventStoreError]:
        """Clean up after the commit: keys, SQLite's log, files, and all pages with ``vacuum``.

        No failure prevents the other steps; return them all.
        """
        streams = tuple(streams)
        failed: list[EventStoreError] = []
        directories = () if state_directory is None else (state_root(state_directory),)
        steps: list[Callable[[], None]] = []
        if self.keys is not None:
            steps += [partial(destroy_retired, self, self.keys, stream) for stream in streams]
        steps.append(self._empty_log)
        for directory in sorted(self.state_directories.union(directories)):
            steps += [partial(delete_erased, self, stream, directory) for stream in streams]
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
            said = f"the erasure is committed, but tables were not rewritten: {reason}"
            raise type(error)(error.url, said) from error

    def _empty_log(self) -> None:
        self._log_to_empty = not empty_log(self)
        if self._log_to_empty:
            _log.warning("erased pages are still in the file or its log: a reader holds them")
