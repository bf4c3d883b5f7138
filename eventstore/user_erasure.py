"""All conversations of a user, erased one after another, so that it can be taken up again.

Each conversation is a transaction of its own. A run that was killed is repeated: what is
erased is passed over, and what an erasure does after its commit is done for it all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.erasure import Erasing, ErasureReceipt, erase_in
from eventstore.errors import EventStoreError
from eventstore.events import Erasure, KeptUsage
from eventstore.owners import Owner
from eventstore.sql.read import read_page
from eventstore.sql.schema import metadata_for
from eventstore.sql.transactions import Transactions

__all__ = ["UserErasure", "erase_all"]

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
