"""What a store takes away for good: payloads, all that a user said, or a whole conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from logging import INFO
from pathlib import Path
from typing import Unpack
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.erased_rows import tables_with_content
from eventstore.erasure import Erasing, ErasureReceipt, erase_in
from eventstore.errors import EventStoreError, InvalidEvent, NotWritable
from eventstore.events import Erasure, KeptUsage
from eventstore.events.base import Clock
from eventstore.ids import StreamId
from eventstore.key_directory import destroy_retired
from eventstore.log import get_logger
from eventstore.owners import Owned, Owner
from eventstore.purging import PurgeReceipt, Purging, purge_in
from eventstore.sql import traces
from eventstore.sql.read import read_page
from eventstore.sql.schema import metadata_for
from eventstore.sql.transactions import Transactions, empty_log
from eventstore.state_files import delete_erased
from eventstore.telemetry import operation
from eventstore.writer import EventWriter

__all__ = ["EventEraser", "UserErasure"]


_PAGE = 500


@dataclass(frozen=True, slots=True)
class UserErasure:
    """What was erased of a user; each conversation has a receipt of its own.

    Attributes:
        user_id: The user.
        tenant_id: The user's tenant.
        conversations: Those that lost something now, in order of id.
        erased_before: How many an earlier run had erased already.
        event_count: Payloads that were erased.
        blob_count: Blobs that went.
        blob_bytes: Their size in bytes.
        kept_calls: Model calls that lost words, and are billed still.
        forks: Others' conversations that have lost what they shared with the user's.
        log_emptied: Unless it is, a reader has kept erased pages in SQLite's files.
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

    def with_receipt(self, receipt: ErasureReceipt) -> UserErasure:
        """Return the same with one more conversation."""
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
) -> tuple[UserErasure, list[UUID], EventStoreError | None]:
    """Erase every conversation of an owner; return what was done, to which, and the first error.

    One that cannot be erased does not keep the others from it.
    """
    done = UserErasure(owner.user_id or "", owner.tenant_id)
    streams: list[UUID] = []
    failed: EventStoreError | None = None
    for stream in _streams(store, owner):
        streams.append(stream)
        with store.reading() as connection:
            is_erased = _is_erased(connection, stream, erasing.keep_usage)
        if is_erased:
            done = replace(done, erased_before=done.erased_before + 1)
            continue
        try:
            done = done.with_receipt(erase_in(store, stream, erasing))
        except EventStoreError as error:
            failed = failed or error
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
    """Whether the erasure of the whole conversation is the last that happened to it."""
    newest = read_page(connection, conversation_id, backward=True, limit=1)
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


_log = get_logger("eventstore")


class EventEraser(EventWriter):
    """Erases and purges conversations; `EventStore` is one."""

    clock: Clock
    state_directories: set[Path]
    _log_to_empty: bool

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
        """Erase a conversation's payloads for good, all or those of ``versions``.

        One transaction takes payloads, blobs and all that projections made of them, and appends
        the receipt; what it needs to know of them is read before it begins. A conversation that
        was erased as a whole leaves lists until somebody speaks in it again. The bill stays: a
        ``kept_usage`` event has models, tokens and times of the calls; with ``keep_usage`` false
        it goes too, also what earlier erasures have kept. `verify` still passes afterwards.

        On SQLite the freed pages are overwritten and the write-ahead log is emptied. A reader that
        stays in a transaction keeps it from that: after half a second a warning is logged, and the
        receipt says ``log_emptied=False``. The next erasure, `vacuum` or `close` tries again.

        With ``versions``, what holds the same words goes along: a turn's input, the pieces of an
        answer, the arguments of a call, the requests and summaries that they went into. The receipt
        names these versions (``derived``), and those that still repeat a text of at least 20
        characters (``quoted_by``). With ``derived`` false it names all of them, and nothing else
        goes than was asked for.

        Files of tool outputs are deleted from ``state_directory``, and from those in which
        conversations of this process write; erasing again tries again. ``vacuum`` calls `vacuum`
        afterwards.

        Raises:
            ConversationNotFound: No conversation has this id.
            OwnerMismatch: It belongs to another tenant or user.
            InvalidEvent: No reason was given.
            OSError: A file of an erased output cannot be deleted; all else is done.
            KeyUnavailable: The conversation is sealed and the store was opened without keys, so
                that nothing was erased; or all is done but for the key, which could not be
                destroyed: that is tried again by the next erasure, and when a store is opened.
        """
        stream = self.stream(conversation_id, **owner)
        with operation("eventstore", "erase", level=INFO, conversation_id=stream) as erased:
            wanted = None if versions is None else frozenset(versions)
            asked = Erasing(reason, self.clock(), wanted, requested_by, derived, keep_usage)
            receipt = erase_in(self, stream, asked)
            self._leave_nothing((stream,), state_directory, vacuum)
            erased.note(version=receipt.version, events=len(receipt.versions))
        return replace(receipt, log_emptied=not self._log_to_empty)

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
        """Erase all conversations of a user, one after another, as `erase` does each.

        Each is a transaction of its own. Killed in between, call it again: it passes over what is
        erased and goes on with the rest; what still comes in meanwhile is found by another call,
        which says ``conversations=()`` once nothing is left. One that cannot be erased does not
        keep the others from it: its error is raised when they are done, with a note if what
        comes after the erasures fails too; another call tries both again. What the user's
        conversations share with forks of others goes from these as well. What the user's forks
        share with others' conversations is the others', and stays there.

        Args:
            user_id: The user.
            reason: Why; it stands in every receipt.
            tenant_id: The user's tenant; without it the user's conversations without a tenant.
            requested_by: Who asked for it.
            state_directory: Where the product has files of tool outputs.
            vacuum: Call `vacuum` at the end.
            keep_usage: Whether the usage of model calls stays.

        Raises:
            OwnerMismatch: The store is bound to another tenant or user.
            InvalidEvent: No reason was given, or no user.
            OSError: A file of an erased output cannot be deleted; all else is done.
            KeyUnavailable: As of `erase`.
        """
        if user_id is None:
            raise InvalidEvent("erase_user needs a user_id")
        owner = self._owners.asked(Owner.of(tenant_id, user_id, exact=True))
        asked = Erasing(reason, self.clock(), None, requested_by, True, keep_usage)
        asked.check()
        with operation("eventstore", "erase_user", level=INFO) as erased:
            done, streams, failed = erase_all(self, owner, asked)
            try:
                self._leave_nothing(streams, state_directory, vacuum)
            except (EventStoreError, OSError) as error:
                if failed is None:
                    raise
                failed.add_note(f"and of those that are erased: {error}")
            erased.note(conversations=len(done.conversations), events=done.event_count)
        if failed is not None:
            raise failed
        return replace(done, log_emptied=not self._log_to_empty)

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
        """Delete a conversation with its events, for one that must leave no trace but a receipt.

        One transaction deletes its events with their headers, hashes and earlier receipts, its
        blobs, its own row with owner, key and title, all that projections made of it, and its
        usage; its key is destroyed. What stays is the receipt, a row of ``purges``: the
        conversation's id, when, why, who asked, and how many events and blobs went. `verify`, the
        feed and its cursors, lists and rebuilds go on as if it had never been. The id, and so the
        product's key, can begin a new conversation. Killed after the commit, call it again: what
        comes then is done, and the receipt is returned once more (to no owner: there it is gone).

        Args:
            conversation_id: The conversation.
            reason: Why; it stands in the receipt.
            forks: Purge the forks that share its events too, and theirs.
            requested_by: Who asked for it.
            state_directory: Where the product has files of tool outputs.
            vacuum: Call `vacuum` afterwards.
            **owner: Whose it must be, and its forks.

        Raises:
            ConversationNotFound: There is none of this id.
            ConversationForked: Forks share its events, and ``forks`` is false; nothing is purged.
            OwnerMismatch: It belongs to another tenant or user, or a fork of it does.
            InvalidEvent: No reason was given.
            OSError: A file of an output cannot be deleted; all else is done.
            KeyUnavailable: All is done but for the key, which could not be destroyed.
        """
        stream = self.stream(conversation_id, **owner)
        whose = self.whose(owner.get("tenant_id"), owner.get("user_id"))
        asked = Purging(reason, self.clock(), requested_by, forks, whose)
        with operation("eventstore", "purge", level=INFO, conversation_id=stream) as purged:
            receipt = purge_in(self, stream, asked)
            self._leave_nothing((stream, *receipt.forks), state_directory, vacuum)
            purged.note(events=receipt.event_count)
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
                tables = tables_with_content(connection)
            traces.vacuum(self, tables)
            self._empty_log()

    def _leave_nothing(
        self, streams: Iterable[UUID], state_directory: str | Path | None, vacuum: bool
    ) -> None:
        """Do what comes after the commit: keys, SQLite's log, files, and all pages if asked to."""
        streams = tuple(streams)
        try:
            if self.keys is not None:
                for stream in streams:
                    destroy_retired(self, self.keys, stream)
        finally:
            self._empty_log()
            directories = () if state_directory is None else (Path(state_directory),)
            for directory in self.state_directories.union(directories):
                for stream in streams:
                    delete_erased(self, stream, directory)
        if vacuum:
            try:
                self.vacuum()
            except NotWritable as error:
                reason = str(error).removeprefix(f"{error.url}: ")
                said = f"the erasure is committed, but tables were not rewritten: {reason}"
                raise NotWritable(error.url, said) from error

    def _empty_log(self) -> None:
        self._log_to_empty = not empty_log(self)
        if self._log_to_empty:
            _log.warning("erased pages are still in the file or its log: a reader holds them")
