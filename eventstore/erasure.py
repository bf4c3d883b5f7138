"""Erasure: the payloads of a conversation, its blobs and every row derived from them, for good.

Headers, digests and chain stay, so that `verify` still proves order and completeness. What a
projection made of the payloads is deleted in the same transaction, from the tables of every
generation, and is folded anew from the erased events when it is next read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, insert, select

from eventstore.bill import kept, nameless
from eventstore.erased_rows import erase_blobs, erase_events, erase_projected, tables_with_content
from eventstore.errors import ConversationNotFound, EventsShared, InvalidEvent, KeyUnavailable
from eventstore.events import Erasure
from eventstore.events.records import NewEvent
from eventstore.events.values import Quoting
from eventstore.ids import new_id
from eventstore.key_directory import retire
from eventstore.quoting import Outdated, Survey, copies_in, survey, told
from eventstore.sql.append import append
from eventstore.sql.backend import AnyConnection, Statement, backend_of, keys_of
from eventstore.sql.lineage import descendants, fork_point
from eventstore.sql.migrate import schema_stays
from eventstore.sql.requests import ANY, Append, prepare
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import forget
from eventstore.sql.traces import clear_statistics
from eventstore.sql.transactions import Transactions

__all__ = [
    "ERASURES",
    "Erasing",
    "ErasureReceipt",
    "erase",
    "erase_in",
    "erasure_count",
    "erasure_lock",
    "lock_stream",
]

_ATTEMPTS = 3  # in which others may come between looking and erasing
ERASURES = (
    "(SELECT count(*) FROM erasures WHERE conversation_id {0})"
    " + 1000000 * (SELECT count(*) FROM purges WHERE conversation_id {0})"
)
"""The SQL of `erasure_count`, for conversations of which the braces say which."""

_ERASURES = Statement(f"SELECT {ERASURES.format('= ANY(:ids)')}")
_ERASURES_OF_ONE = Statement(f"SELECT {ERASURES.format('= :ids')}")  # SQLite unpacks no list.


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """What was erased; the same facts stand in the stream as an ``erasure`` event.

    ``versions`` lost their payload; ``blob_count`` blobs of together ``blob_bytes`` bytes went;
    ``version`` is the receipt's own. ``derived`` are those of ``versions`` that went along, as they
    held the words of those asked for; ``quoted_by`` hold such words still. Unless ``log_emptied``,
    a reader has kept erased pages in SQLite's file or its write-ahead log. ``kept_calls`` model
    calls lost words, and are billed still. ``forks`` have lost what they shared.
    """

    conversation_id: UUID
    erasure_id: UUID
    erased_at: datetime
    reason: str
    versions: tuple[int, ...]
    blob_count: int
    blob_bytes: int
    version: int
    derived: tuple[Quoting, ...] = ()
    quoted_by: tuple[Quoting, ...] = ()
    log_emptied: bool = True
    kept_calls: int = 0
    forks: tuple[UUID, ...] = ()


def erasure_lock(connection: AnyConnection, *conversations: UUID, exclusive: bool = False) -> None:
    """Keep erasing and projecting of conversations apart until the transaction ends.

    Without it a projection could write, after the erasure, what it had read before. SQLite needs
    none: it has one writer at a time.
    """
    keys = [str(conversation_id) for conversation_id in conversations]
    backend_of(connection).lock(connection, "erasures", keys, exclusive=exclusive)


def erasure_count(connection: AnyConnection, conversations: Sequence[UUID]) -> int:
    """Return a number that is the same as before, if nothing is gone since; 0 if nothing ever was.

    It grows with each erasure. A purge takes the erasures along, and weighs more than all of them.
    """
    if len(conversations) == 1:
        [(found,)] = _ERASURES_OF_ONE.rows(connection, ids=conversations[0])
    else:
        [(found,)] = _ERASURES.rows(connection, ids=list(conversations))
    return int(found)


@dataclass(frozen=True, slots=True)
class Erasing:
    """What is to be erased of a conversation, and why.

    Attributes:
        reason: Why; it stands in the receipt.
        now: When.
        versions: Which events; None for all.
        requested_by: Who asked for it.
        derived: Whether what copies some versions goes along.
        keep_usage: Whether the usage of model calls stays.
    """

    reason: str
    now: datetime
    versions: frozenset[int] | None = None
    requested_by: str | None = None
    derived: bool = True
    keep_usage: bool = True

    def check(self) -> None:
        """Refuse an erasure without a reason.

        Raises:
            InvalidEvent: None was given.
        """
        if not self.reason.strip():
            raise InvalidEvent("an erasure needs a reason")


def erase_in(store: Transactions, conversation_id: UUID, erasing: Erasing) -> ErasureReceipt:
    """Erase payloads in a transaction of its own, as `erase` does.

    What has to be read for it is read before, in a transaction that reads. If the conversation has
    moved on meanwhile it is read again, and after some attempts under the lock.
    """
    for _ in range(_ATTEMPTS):
        with store.reading() as connection:
            found = _surveyed(connection, conversation_id, erasing)
        with suppress(Outdated), store.writing() as connection:
            return erase(connection, conversation_id, erasing, found)
    with store.writing() as connection:
        return erase(connection, conversation_id, erasing)


def _surveyed(connection: Connection, conversation_id: UUID, erasing: Erasing) -> Survey:
    return survey(
        connection,
        conversation_id,
        erasing.versions,
        erasures=erasure_count(connection, [conversation_id]),
        derived=erasing.derived,
        keep_usage=erasing.keep_usage,
    )


def erase(
    connection: Connection,
    conversation_id: UUID,
    erasing: Erasing,
    found: Survey | None = None,
) -> ErasureReceipt:
    """Erase payloads of a conversation, all or some, in the caller's transaction.

    Earlier receipts are kept. Erasing again finds nothing and leaves another receipt. Forks lose
    what they share, and what of their own copies it, for which they get a receipt of theirs. What
    copies single versions goes along, unless it is asked for otherwise; ``found`` is what an
    earlier transaction has found of it, without which it is looked for here.

    Raises:
        Outdated: The conversation has moved on since then; nothing was written.
        ConversationNotFound: No conversation has this id.
        InvalidEvent: No reason was given.
        EventsShared: A version is one that the conversation shares with the one it was forked from.
        KeyUnavailable: The conversation is sealed, and there are no keys.
    """
    erasing.check()
    tables = metadata_for(connection.dialect.name).tables
    version, key_id = lock_stream(connection, conversation_id)
    _require_own(connection, conversation_id, erasing.versions)
    if key_id is not None and keys_of(connection) is None:
        raise KeyUnavailable(conversation_id, "the store was opened without keys")
    if found is None:
        found = _surveyed(connection, conversation_id, erasing)
    elif (found.version, found.erasures) != (version, erasure_count(connection, [conversation_id])):
        raise Outdated
    if erasing.versions is None and key_id is not None:
        retire(connection, conversation_id, key_id, erasing.now)
        # What is written from here on is not sealed.
        found = replace(found, bill=tuple(map(nameless, found.bill)))
    erased = tuple(sorted({*found.chosen, *found.copies}))
    forks = _copies_in_forks(connection, conversation_id, erased, erasing.derived)
    erasure_id = new_id()
    connection.execute(
        insert(tables["erasures"]).values(
            conversation_id=conversation_id,
            erasure_id=erasure_id,
            erased_at=erasing.now,
            reason=erasing.reason,
            requested_by=erasing.requested_by,
        )
    )
    erase_events(connection, tables, conversation_id, erasure_id, erased)
    sizes = erase_blobs(connection, tables, conversation_id)
    forget(connection, conversation_id)
    erase_projected(connection, tables, conversation_id)
    for fork, (copies, quoting) in forks.items():
        of_fork = replace(erasing, versions=frozenset(copies))
        lock_stream(connection, fork)
        held = _surveyed(connection, fork, of_fork)
        # What quotes the parent's words was looked for while they stood there.
        held = replace(held, quoting={**quoting, **held.quoting})
        erase(connection, fork, of_fork, held)
    clear_statistics(connection, tables_with_content(connection))
    receipt = _receive(connection, conversation_id, erasing, found, erasure_id, sizes)
    return replace(receipt, forks=tuple(forks))


def lock_stream(connection: Connection, conversation_id: UUID) -> tuple[int, str | None]:
    """Keep all others from writing and projecting; return the version and the key's id.

    Raises:
        ConversationNotFound: There is none of this id.
    """
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    schema_stays(connection)
    erasure_lock(connection, conversation_id, exclusive=True)
    locked = connection.execute(
        select(streams.c.version, streams.c.key_id)
        .where(streams.c.conversation_id == conversation_id)
        .with_for_update()
    ).first()
    if locked is None:
        raise ConversationNotFound(conversation_id)
    return int(locked.version), locked.key_id


def _receive(
    connection: Connection,
    conversation_id: UUID,
    erasing: Erasing,
    found: Survey,
    erasure_id: UUID,
    sizes: Sequence[int],
) -> ErasureReceipt:
    """Append the usage that is kept, and the receipt."""
    erased = tuple(sorted({*found.chosen, *found.copies}))
    receipt = Erasure(
        erasure_id=str(erasure_id),
        reason=erasing.reason,
        whole=erasing.versions is None,
        versions=erased,
        event_count=len(erased),
        blob_count=len(sizes),
        blob_bytes=sum(sizes),
        requested_by=erasing.requested_by,
        derived=told(found.copies),
        quoted_by=told(found.quoting),
    )
    left = [NewEvent(each) for each in (*kept(found.bill), receipt)]
    request = Append(conversation_id, prepare(left, None, 1 << 30), ANY)
    done = append(connection, request, erasing.now)
    return ErasureReceipt(
        conversation_id,
        erasure_id,
        erasing.now,
        erasing.reason,
        erased,
        len(sizes),
        sum(sizes),
        done.version,
        receipt.derived,
        receipt.quoted_by,
        kept_calls=len(found.bill),
    )


def _require_own(
    connection: Connection, conversation_id: UUID, versions: Collection[int] | None
) -> None:
    parent = None if versions is None else fork_point(connection, conversation_id)
    if parent is not None and min(versions or (), default=parent.version + 1) <= parent.version:
        raise EventsShared(conversation_id, *parent)


def _copies_in_forks(
    connection: Connection, conversation_id: UUID, erased: Sequence[int], derived: bool
) -> dict[UUID, tuple[dict[int, str], dict[int, str]]]:
    """Return the forks that share some of these versions, with what copies and what quotes them.

    They cannot be projected from now on until the transaction ends; nobody makes another one, as
    the conversation's row is locked.
    """
    found: dict[UUID, tuple[dict[int, str], dict[int, str]]] = {}
    for fork, version in descendants(connection, conversation_id):
        shared = [each for each in erased if each <= version]
        if not shared:
            continue
        erasure_lock(connection, fork, exclusive=True)
        found[fork] = copies_in(connection, fork, shared, derived=derived)
    return found
