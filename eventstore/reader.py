"""What a store reads: streams, the feed, blobs, and whether the log is what it was."""

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
"""Events of a page. Of larger ones, the garbage collector goes through more that is soon gone."""


class EventReader(Transactions):
    """Reads conversations and verifies them; `EventStore` is one."""

    clock: Clock
    _owners: Owners

    @property
    def owner(self) -> Owner:
        """Whose conversations it is bound to, which is anybody's unless `for_owner` made it."""
        return self._owners.bound

    def whose(self, tenant_id: str | None = None, user_id: str | None = None) -> Owner:
        """Return whose conversations are meant by naming an owner, here; to limit a query by it.

        Raises:
            OwnerMismatch: The store is bound to another owner.
        """
        nobody = tenant_id is None and user_id is None
        return self._owners.asked(ANYBODY if nobody else Owner.of(tenant_id, user_id))

    def stream(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> UUID:
        """Return the id of a conversation that is named by id or key, whether it exists or not.

        Raises:
            OwnerMismatch: It is another owner's than was named, or than the store is bound to.
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

        Read in pages of 200, each in its own transaction; what is appended meanwhile at the end
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
            with translated(self.url), self._at_hand.transaction() as connection:
                page = read_rows(
                    connection, stream, after=after, before=upper, backward=backward, limit=size
                )
            yield from decoded(self._at_hand.backend, page, stream)
            if len(page) < size:
                return
            left, last = None if left is None else left - size, page[-1][VERSION]
            after, upper = (after, last) if backward else (last, upper)

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
        with translated(self.url), self._at_hand.transaction() as connection:
            return feed.read_feed(connection, after, limit)

    def get(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> StreamInfo:
        """Return what is known of a conversation: version, owner, key, times, parent.

        Raises:
            ConversationNotFound: No conversation has this id or key.
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
            ConversationNotFound: No conversation has this id.
            OwnerMismatch: It belongs to another tenant or user, or all do.
        """
        return verify(self, self._one_or_all("verify", conversation_id, owner), progress)

    def _one_or_all(self, what: str, conversation_id: StreamId | None, owner: Owned) -> UUID | None:
        if conversation_id is not None:
            return self.stream(conversation_id, **owner)
        self._owners.everything(what)
        if self.whose(**owner).asks:
            raise OwnerMismatch(None, f"{what} concerns all owners, unless it names a conversation")
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
            ConversationNotFound: No conversation has this id, neither here nor in the checkpoint.
        """
        stream = self._one_or_all("verify_against", conversation_id, owner)
        return verify_against(
            self, checkpoint, public_key=public_key, conversation_id=stream, progress=progress
        )
