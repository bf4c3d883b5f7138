"""What a store takes away for good: payloads, all that a user said, or a whole conversation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from logging import INFO
from pathlib import Path
from typing import Unpack
from uuid import UUID

from eventstore.erased_rows import tables_with_content
from eventstore.erasure import Erasing, ErasureReceipt, erase_in
from eventstore.errors import InvalidEvent
from eventstore.events.base import Clock
from eventstore.ids import StreamId
from eventstore.log import get_logger
from eventstore.owners import Owned, Owner
from eventstore.purging import PurgeReceipt, Purging, purge_in
from eventstore.retired_keys import destroy_retired
from eventstore.sql import traces
from eventstore.sql.transactions import empty_log
from eventstore.state_files import delete_erased
from eventstore.telemetry import operation
from eventstore.user_erasure import UserErasure, erase_all
from eventstore.writer import EventWriter

__all__ = ["EventEraser"]

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
        keep the others from it: its error is raised when they are done. What the user's
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
            self._leave_nothing(streams, state_directory, vacuum)
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
            self.vacuum()

    def _empty_log(self) -> None:
        self._log_to_empty = not empty_log(self)
        if self._log_to_empty:
            _log.warning("erased pages are still in the file or its log: a reader holds them")
