"""The reads of a store: streams, the feed, blobs, and verification of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from typing import IO, Unpack
from uuid import UUID

from eventstore import blobs
from eventstore.checkpoints import Checkpoint, save_checkpoint, verify_against, write_checkpoint
from eventstore.errors import BlobNotFound, ConversationNotFound, OwnerMismatch
from eventstore.events.base import Clock
from eventstore.events.records import RecordedEvent
from eventstore.ids import StreamId
from eventstore.integrity import Verification
from eventstore.options import at_most
from eventstore.owners import ANYBODY, Owned, Owner, Owners
from eventstore.sql import feed, streams
from eventstore.sql.decoding import VERSION, decoded
from eventstore.sql.failures import translated
from eventstore.sql.lineage import lineage
from eventstore.sql.read import END, read_rows
from eventstore.sql.streams import StreamInfo
from eventstore.sql.transactions import Transactions
from eventstore.sql.verify import Progress, verify

__all__ = ["EventReader"]

_PAGE = 200
"""Events per page. Larger pages make the garbage collector scan more short-lived objects."""


class EventReader(Transactions):
    """Reads conversations and verifies them; `EventStore` is one."""

    clock: Clock
    _owners: Owners

    @property
    def owner(self) -> Owner:
        """The owner that the store is bound to: anybody, unless `for_owner` returned it."""
        return self._owners.bound

    def whose(self, tenant_id: str | None = None, user_id: str | None = None) -> Owner:
        """Return the owner to limit a query to, from the given owner and the store's own.

        Raises:
            OwnerMismatch: The store is bound to another owner.
        """
        nobody = tenant_id is None and user_id is None
        return self._owners.asked(ANYBODY if nobody else Owner.of(tenant_id, user_id))

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
            OwnerMismatch: It belongs to another tenant or user.
            ValueError: The limit is negative, as in all calls that take one.
        """
        stream = self.stream(conversation_id, **owner)
        upper, left = END if before is None else before, at_most(limit)
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            with translated(self.url), self._at_hand.transaction() as connection:
                page = read_rows(
                    connection, stream, after=after, before=upper, backward=backward, limit=size
                )
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
    ) -> list[StreamInfo]:
        """Return conversations in order of id: all of them, or those of a tenant or user.

        Args:
            tenant_id: Only this tenant's.
            user_id: Only this user's.
            after: Only ids above this one: the last id of the previous page.
            limit: The most conversations to return.
        """
        owner = self.whose(tenant_id, user_id)
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
        if self.whose(**owner).asks:
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
