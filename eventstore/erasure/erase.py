"""Erasure: deletes payloads of a conversation, its blobs and all derived rows for good.

Headers, digests and the chain stay, so `verify` still proves order and completeness. The same
transaction deletes the projections' rows from the tables of every generation; the next read folds
them again from the erased events.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Connection,
    column,
    delete,
    insert,
    literal_column,
    select,
    table,
    update,
)
from sqlalchemy import Table as SqlTable

from eventstore.blobs import stub_of
from eventstore.erasure.bill import bills, nameless, readable, usage_events
from eventstore.erasure.plan import copies_of, group_by_kind, quotations_of, ranges
from eventstore.errors import (
    DeletionIncomplete,
    EventDamaged,
    EventsShared,
    EventStoreError,
    InvalidEvent,
    KeyUnavailable,
    WrongExpectedVersion,
)
from eventstore.events import BilledCall, Erasure, RetainedUsage, ToolResult
from eventstore.events.codec import decode
from eventstore.events.records import NewEvent, RecordedEvent
from eventstore.events.values import Quoting
from eventstore.ids import new_id
from eventstore.security.hash_chain import unwrapped
from eventstore.security.key_directory import retire
from eventstore.security.sealing import DATA, SEALED, Keyring, key_of, opened
from eventstore.sql.append import append
from eventstore.sql.append_requests import ANY, Append, prepare
from eventstore.sql.backend import AnyConnection, Statement, backend_of, keys_of
from eventstore.sql.migrate import schema_stays
from eventstore.sql.residues import clear_statistics
from eventstore.sql.row_security import is_limited, require_forks_visible
from eventstore.sql.schema import derived_tables, metadata_for
from eventstore.sql.streams import absent, descendants, forget, fork_point, pages
from eventstore.sql.transactions import Transactions
from eventstore.sql.types import Id

__all__ = [
    "ERASURES",
    "FORKS_AT_ONCE",
    "Erasing",
    "ErasurePlan",
    "ErasureReceipt",
    "Outdated",
    "erase",
    "erase_blobs",
    "erase_events",
    "erase_in",
    "erase_projected",
    "erasure_count",
    "erasure_lock",
    "lock_stream",
    "require_all",
    "survey",
    "survey_fork",
    "tables_with_content",
]


_DIGEST = re.compile("[0-9a-f]{64}")


def require_all(conversation_id: UUID, table: str, planned: int, done: int) -> None:
    """Refuse to go on if the database changed fewer rows of a table than were to be erased.

    Raises:
        DeletionIncomplete: It did; the caller's transaction must not be committed.
    """
    if done < planned:
        raise DeletionIncomplete(conversation_id, table, planned, done)


def erase_events(
    connection: Connection,
    tables: Mapping[str, SqlTable],
    conversation_id: UUID,
    erasure_id: UUID,
    versions: Sequence[int],
) -> None:
    """Erase payloads; rows of ``erased_versions`` let the triggers permit these versions only.

    Raises:
        DeletionIncomplete: The database erased fewer payloads.
    """
    events = tables["events"]
    if versions:
        rows = [
            {
                "conversation_id": conversation_id,
                "erasure_id": erasure_id,
                "first_version": first,
                "last_version": last,
            }
            for first, last in ranges(versions)
        ]
        connection.execute(insert(tables["erased_versions"]), rows)
    done = 0
    for start in range(0, len(versions), 500):
        done += connection.execute(
            update(events)
            .where(
                events.c.conversation_id == conversation_id,
                events.c.version.in_(versions[start : start + 500]),
            )
            .values(data=None, salt=None)
        ).rowcount
    require_all(conversation_id, "events", len(versions), done)


def erase_blobs(
    connection: Connection, tables: Mapping[str, SqlTable], conversation_id: UUID
) -> list[int]:
    """Delete the blobs that no remaining payload refers to, and return their sizes in bytes."""
    blobs, events = tables["blobs"], tables["events"]
    existing = connection.execute(
        select(blobs.c.digest, blobs.c.size_bytes).where(blobs.c.conversation_id == conversation_id)
    ).all()
    if not existing:
        return []
    stored = map(backend_of(connection).as_stored, ("type", "data", "event_id"))
    rows = connection.execute(
        select(events.c.schema_version, *map(literal_column, stored)).where(
            events.c.conversation_id == conversation_id, events.c.data.is_not(None)
        )
    )
    keys = keys_of(connection)
    used = {name for row in rows for name in _names(keys, conversation_id, *row)}
    gone = {digest: int(size) for digest, size in existing if digest not in used}
    for digest in gone:
        query = delete(blobs).where(
            blobs.c.conversation_id == conversation_id, blobs.c.digest == digest
        )
        require_all(conversation_id, "blobs", 1, connection.execute(query).rowcount)
    return list(gone.values())


def _names(
    keys: Keyring | None,
    conversation_id: UUID,
    schema_version: int,
    *stored: Any,
) -> list[str]:
    """Return the names under which the blobs of a payload are stored."""
    kind, data, event_id = (
        each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in stored
    )
    if not data.startswith(SEALED):
        return _digests(kind, schema_version, data)
    try:
        key = key_of(keys, conversation_id, data)
        text = opened(key, DATA, event_id, data)
    except ValueError:  # It was altered: nobody can read to what it refers.
        return []
    if key is None or text is None:
        return []
    return [key.name_of(digest) for digest in _digests(kind, schema_version, text)]


def _digests(kind: str, schema_version: int, data: str) -> list[str]:
    with suppress(RecursionError, ValueError):  # raised for a damaged payload
        text, _ = unwrapped(data)
        stub = stub_of(text)
        if stub is not None:
            return [stub.digest]
        if kind != ToolResult.type:
            return []
        payload = decode(kind, schema_version, text)
        if isinstance(payload, ToolResult):
            return [payload.blob.digest] if payload.blob else []
    # Damaged, or a schema version that this code does not know: keep all that it may refer to.
    return _DIGEST.findall(data)


def erase_projected(
    connection: Connection, tables: Mapping[str, SqlTable], conversations: Sequence[UUID]
) -> None:
    """Delete the conversations' projected rows in every generation, and their heads."""
    derived = [table(name, column("conversation_id", Id)) for name in derived_tables(connection)]
    for rows in (tables["projection_heads"], *derived):
        for some in pages(conversations):
            connection.execute(delete(rows).where(rows.c.conversation_id.in_(some)))


def tables_with_content(connection: Connection) -> list[str]:
    """Return the tables that hold content or rows derived from it."""
    log = ("events", "blobs", "import_sources", "projection_heads")
    return [*log, *derived_tables(connection)]


class Outdated(Exception):
    """The conversation has gained events or was erased since the survey: survey it again."""


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What to erase of a conversation, as of a version.

    Attributes:
        version: The conversation's version.
        erasures: Its `eventstore.erasure.erase.erasure_count`.
        chosen: The requested versions that have a payload, in order.
        copies: The versions erased with them, each with its kind.
        quoting: The versions that hold the same text and stay, each with its kind.
        bill: The model calls that lose text and whose usage is kept.
    """

    version: int
    erasures: int
    chosen: tuple[int, ...]
    copies: Mapping[int, str] = field(default_factory=dict)
    quoting: Mapping[int, str] = field(default_factory=dict)
    bill: tuple[BilledCall, ...] = ()


def survey(
    connection: Connection,
    conversation_id: UUID,
    versions: Collection[int] | None,
    *,
    erasures: int,
    derived: bool,
    keep_usage: bool,
) -> ErasurePlan:
    """Search a conversation for events that hold the text of these versions.

    Only reads, in the caller's transaction.

    Args:
        connection: In a transaction.
        conversation_id: The conversation; if it does not exist, nothing is found.
        versions: The versions to erase; None for all.
        erasures: The conversation's `erasure_count`, read earlier in this transaction.
        derived: Whether to erase copies as well.
        keep_usage: Whether to keep the usage of model calls.

    Raises:
        KeyUnavailable: The conversation is sealed, and its key is not available at the moment.
        EventDamaged: One of ``versions`` cannot be read, so that its copies cannot be found.
    """
    # Read the version first, so that events appended in between are noticed later.
    version = _version_of(connection, conversation_id)
    stays = (Erasure.type, RetainedUsage.type) if keep_usage else (Erasure.type,)
    present = _chosen(connection, conversation_id, versions, stays)
    copies: dict[int, str] = {}
    quoting: dict[int, str] = {}
    if versions is not None:
        copies, quoting = _quoting(connection, conversation_id, version, present, derived)
    if copies and (parent := fork_point(connection, conversation_id)) is not None:
        # Shared events belong to the parent; a fork cannot erase them.
        theirs = {each: what for each, what in copies.items() if each <= parent.version}
        copies = {each: what for each, what in copies.items() if each not in theirs}
        quoting = quoting | theirs
    going = {*present, *copies} if keep_usage else set()
    bill = bills(readable(connection, conversation_id), going) if going else ()
    return ErasurePlan(version, erasures, present, copies, quoting, bill)


def survey_fork(
    connection: Connection,
    fork: UUID,
    shared: Collection[int],
    *,
    erasures: int,
    derived: bool,
    keep_usage: bool,
) -> ErasurePlan:
    """Search a fork's own events for copies of these versions, which it shares: they are chosen.

    The arguments and errors are those of `survey`.
    """
    newest = _version_of(connection, fork)
    point = fork_point(connection, fork)
    least = point.version if point else 0
    copies, quoting = _quoting(connection, fork, newest, shared, derived)
    own = {version for version in copies if version > least}
    stays = (Erasure.type, RetainedUsage.type) if keep_usage else (Erasure.type,)
    chosen = _chosen(connection, fork, own, stays) if own else ()
    quoting = {version: what for version, what in quoting.items() if version > least}
    bill = bills(readable(connection, fork), {*chosen}) if chosen and keep_usage else ()
    return ErasurePlan(newest, erasures, chosen, quoting=quoting, bill=bill)


def _version_of(connection: Connection, conversation_id: UUID) -> int:
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    found = connection.execute(
        select(streams.c.version).where(streams.c.conversation_id == conversation_id)
    )
    return found.scalar() or 0


def _chosen(
    connection: Connection,
    conversation_id: UUID,
    versions: Collection[int] | None,
    stays: Collection[str],
) -> tuple[int, ...]:
    """Return the versions with a payload that will be erased, in order."""
    events = metadata_for(connection.dialect.name).tables["events"]
    query = (
        select(events.c.version)
        .where(
            events.c.conversation_id == conversation_id,
            events.c.data.is_not(None),
            events.c.type.not_in(stays),
        )
        .order_by(events.c.version)
    )
    present = connection.execute(query).scalars()
    return tuple(version for version in present if versions is None or version in versions)


@dataclass(frozen=True, slots=True)
class _Readable:
    """The events of a conversation that can be read; each iteration reads them again."""

    connection: Connection
    conversation_id: UUID
    newest: int
    unread: dict[int, EventStoreError | None] = field(default_factory=dict)
    """The versions up to ``newest`` that the last iteration could not read, and why."""

    def __iter__(self) -> Iterator[RecordedEvent]:
        self.unread.clear()
        last = 0
        errors: dict[int, EventStoreError] = {}
        for event in readable(self.connection, self.conversation_id, errors):
            self.unread.update((each, errors.get(each)) for each in range(last + 1, event.version))
            last = event.version
            yield event
        self.unread.update((each, errors.get(each)) for each in range(last + 1, self.newest + 1))


def _quoting(
    connection: Connection,
    conversation_id: UUID,
    newest: int,
    requested: Collection[int],
    derived: bool,
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the versions to erase with these, and those that will or may still hold their text.

    Raises:
        EventDamaged: One of ``requested`` cannot be read, so that its copies cannot be found.
    """
    if not requested:
        return {}, {}
    events = _Readable(connection, conversation_id, newest)
    copies = copies_of(events, requested)
    for version, error in events.unread.items():
        # What is sealed with a lost key has no readable copies: they were sealed with it too.
        if version in requested and not isinstance(error, KeyUnavailable):
            raise EventDamaged(conversation_id, version)
    quotations = quotations_of(events, {*requested, *copies} if derived else requested)
    quotations |= dict.fromkeys(
        (each for each in events.unread if each not in requested), "unreadable"
    )
    if not derived:
        return {}, quotations | copies
    requests = {version: what for version, what in quotations.items() if what == "request"}
    left = {version: what for version, what in quotations.items() if version not in requests}
    return copies | requests, left


_ATTEMPTS = 3  # to survey and then erase; other writers may append in between


FORKS_AT_ONCE = 25


"""How many forks lose copies, or are purged, in one transaction, while SQLite's writers wait."""


ERASURES = (
    "(SELECT count(*) FROM erasures WHERE conversation_id {0})"
    " + 1000000 * (SELECT count(*) FROM purges WHERE conversation_id {0})"
)


"""The SQL of `erasure_count`; the braces take the condition on ``conversation_id``."""


_ERASURES = Statement(f"SELECT {ERASURES.format('= ANY(:ids)')}")


_ERASURES_OF_ONE = Statement(f"SELECT {ERASURES.format('= :ids')}")  # SQLite unpacks no list.


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """What was erased; the stream records the same facts as an ``erasure`` event.

    Attributes:
        conversation_id: The conversation.
        erasure_id: The erasure.
        erased_at: When.
        reason: Why.
        versions: The versions that lost their payload.
        blob_count: How many blobs were deleted.
        blob_bytes: Their total size in bytes.
        version: The version of the receipt itself.
        derived: Those of ``versions`` that were not requested, but held the same text.
        quoted_by: Versions that still hold such text, or cannot be read.
        log_emptied: False if a reader keeps erased pages in SQLite's file or write-ahead log.
        billed_calls: How many model calls lost text and are still billed.
        forks: The forks that lost the events they shared.
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
    billed_calls: int = 0
    forks: tuple[UUID, ...] = ()


def erasure_lock(connection: AnyConnection, *conversations: UUID, exclusive: bool = False) -> None:
    """Keep erasing and projecting conversations apart until the transaction ends.

    Without this lock a projection could write, after an erasure, what it had read before. SQLite
    does not need it: it has one writer at a time.
    """
    keys = [str(conversation_id) for conversation_id in conversations]
    backend_of(connection).lock(connection, "erasures", keys, exclusive=exclusive)


def erasure_count(connection: AnyConnection, conversations: Sequence[UUID]) -> int:
    """Return a number that changes with each erasure or purge; 0 if nothing was ever erased.

    It grows with each erasure. A purge deletes the erasures, and counts for more than all of them.
    """
    if len(conversations) == 1:
        [(found,)] = _ERASURES_OF_ONE.rows(connection, ids=conversations[0])
    else:
        [(found,)] = _ERASURES.rows(connection, ids=list(conversations))
    return int(found)


@dataclass(frozen=True, slots=True)
class Erasing:
    """What to erase of a conversation, and why.

    Attributes:
        reason: Why; stored in the receipt.
        now: When.
        versions: Which events; None for all.
        requested_by: Who requested it.
        derived: Whether to erase the copies of these versions as well.
        keep_usage: Whether to keep the usage of model calls.
        version: The version that the conversation must have; None for any.
    """

    reason: str
    now: datetime
    versions: frozenset[int] | None = None
    requested_by: str | None = None
    derived: bool = True
    keep_usage: bool = True
    version: int | None = None

    def check(self) -> None:
        """Refuse an erasure without a reason, or of something that is not a version.

        Raises:
            InvalidEvent: The reason is empty or not text, or a version is not a number.
        """
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise InvalidEvent("an erasure needs a reason")
        for each in self.versions or ():
            if type(each) is not int:
                raise InvalidEvent(f"{each!r:.80} is not a version: versions are numbers from 1")


def erase_in(
    store: Transactions,
    conversation_id: UUID,
    erasing: Erasing,
    then: Callable[[Connection, int], None] | None = None,
) -> ErasureReceipt:
    """Erase payloads in a separate transaction, as `erase` does.

    A read transaction surveys the conversation and its forks first. If one of them has changed by
    the time of the erasure, they are surveyed again; after some attempts, under the lock. If many
    forks hold copies, these are erased first, some forks in each transaction, so that other writers
    of SQLite's file get their turn; the conversation's own payloads and all receipts of the
    erasure follow in the last transaction. If the process dies in between, nothing says that the
    erasure is done, and the next one completes it. ``then`` is called in the last transaction,
    after the erasure, with the receipt's version, to append what replaces it.
    """
    erasing.check()
    for attempt in range(_ATTEMPTS + 1):
        plan: _Plan | None = None
        if attempt < _ATTEMPTS:
            with store.reading() as connection:
                plan = _planned(connection, conversation_id, erasing)
        with suppress(Outdated):
            if plan is not None and len(copying := plan.copying) > FORKS_AT_ONCE:
                # Forks of forks first: what they copied from a fork is found by the fork's text.
                for some in pages(copying[::-1], FORKS_AT_ONCE):
                    with store.writing() as connection:
                        _erase_copies(
                            connection, erasing, {each: plan.forks[each] for each in some}
                        )
                continue  # The rest is surveyed again, with what was written in the meantime.
            with store.writing() as connection:
                receipt = erase(connection, conversation_id, erasing, plan)
                if then is not None:
                    then(connection, receipt.version)
                return receipt
    raise AssertionError("a survey under the lock is not outdated")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to erase of a conversation and of the forks that share some of it."""

    own: ErasurePlan
    forks: Mapping[UUID, ErasurePlan]

    @property
    def copying(self) -> list[UUID]:
        """The forks with copies of their own, each after the one it was forked from."""
        return [fork for fork, found in self.forks.items() if found.chosen]


def _planned(connection: Connection, conversation_id: UUID, erasing: Erasing) -> _Plan:
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    query = select(streams.c.version, streams.c.key_id)
    row = connection.execute(query.where(streams.c.conversation_id == conversation_id)).first()
    if row is None:
        raise absent(connection, conversation_id)
    require_forks_visible(connection, conversation_id)
    _require_erasable(connection, conversation_id, erasing, int(row.version), row.key_id)
    own = _surveyed(connection, conversation_id, erasing)
    shared = _sharing(connection, conversation_id, own)
    return _Plan(own, _forks_surveyed(connection, shared, erasing))


def _surveyed(connection: Connection, conversation_id: UUID, erasing: Erasing) -> ErasurePlan:
    return survey(
        connection,
        conversation_id,
        erasing.versions,
        erasures=erasure_count(connection, [conversation_id]),
        derived=erasing.derived,
        keep_usage=erasing.keep_usage,
    )


def _forks_surveyed(
    connection: Connection, shared: Mapping[UUID, Sequence[int]], erasing: Erasing
) -> dict[UUID, ErasurePlan]:
    return {
        fork: survey_fork(
            connection,
            fork,
            versions,
            erasures=erasure_count(connection, [fork]),
            derived=erasing.derived,
            keep_usage=erasing.keep_usage,
        )
        for fork, versions in shared.items()
    }


def _sharing(
    connection: Connection, conversation_id: UUID, found: ErasurePlan
) -> dict[UUID, Sequence[int]]:
    """Return the forks that share some of the versions to erase, with these versions."""
    erased = sorted({*found.chosen, *found.copies})
    forks = descendants(connection, conversation_id) if erased else ()
    shared = {fork: erased[: bisect_right(erased, version)] for fork, version in forks}
    return {fork: versions for fork, versions in shared.items() if versions}


def erase(
    connection: Connection,
    conversation_id: UUID,
    erasing: Erasing,
    plan: _Plan | None = None,
) -> ErasureReceipt:
    """Erase all or some payloads of a conversation, in the caller's transaction.

    Earlier receipts are kept. Erasing again finds nothing and appends another receipt. Forks lose
    the shared events and their own copies of them, and get their own receipt. Copies of single
    versions are erased as well, unless ``erasing.derived`` is false. ``plan`` comes from an earlier
    transaction; without it the conversation and its forks are surveyed here.

    Raises:
        Outdated: The conversation or a fork has changed since the survey; roll back.
        WrongExpectedVersion: It is not at the version that ``erasing`` requires.
        ConversationNotFound: No conversation has this id.
        InvalidEvent: No reason was given, or a version does not exist.
        EventsShared: The conversation shares one of the versions with its parent.
        EventDamaged: One of the versions cannot be read, so that its copies cannot be found.
        KeyUnavailable: The conversation is sealed, and the store has no keys.
    """
    erasing.check()
    tables = metadata_for(connection.dialect.name).tables
    version, key_id = lock_stream(connection, conversation_id)
    _require_erasable(connection, conversation_id, erasing, version, key_id)
    found = _surveyed(connection, conversation_id, erasing) if plan is None else plan.own
    if (found.version, found.erasures) != (version, erasure_count(connection, [conversation_id])):
        raise Outdated
    # No new fork can be created: the conversation's row is locked.
    shared = _sharing(connection, conversation_id, found)
    _lock_forks(connection, shared, None if plan is None else plan.forks)
    forks = _forks_surveyed(connection, shared, erasing) if plan is None else plan.forks
    if erasing.versions is None and key_id is not None:
        retire(connection, conversation_id, key_id, erasing.now)
        # From here on, nothing that is written is sealed.
        found = replace(found, bill=tuple(map(nameless, found.bill)))
    erasure_id = _erase_events(connection, conversation_id, erasing, found)
    sizes = erase_blobs(connection, tables, conversation_id)
    _erase_forks(connection, erasing, forks)
    streams = (conversation_id, *forks)
    forget(connection, streams)
    erase_projected(connection, tables, streams)
    clear_statistics(connection, tables_with_content(connection))
    receipt = _receive(connection, conversation_id, erasing, found, erasure_id, sizes)
    return replace(receipt, forks=tuple(sorted(forks)))


def _erase_copies(
    connection: Connection, erasing: Erasing, forks: Mapping[UUID, ErasurePlan]
) -> None:
    """Erase forks' own copies of what is going to be erased, in a transaction before that."""
    _lock_forks(connection, forks, forks)
    _erase_forks(connection, erasing, forks)
    erase_projected(connection, metadata_for(connection.dialect.name).tables, [*forks])
    clear_statistics(connection, tables_with_content(connection))


def _erase_forks(
    connection: Connection, erasing: Erasing, forks: Mapping[UUID, ErasurePlan]
) -> None:
    """Erase forks' own copies, and append their receipts."""
    tables = metadata_for(connection.dialect.name).tables
    for fork, found in forks.items():
        of_fork = replace(erasing, versions=frozenset(found.chosen), version=None)
        erasure_id = _erase_events(connection, fork, of_fork, found)
        sizes = erase_blobs(connection, tables, fork) if found.chosen else ()
        _receive(connection, fork, of_fork, found, erasure_id, sizes)


def _erase_events(
    connection: Connection, conversation_id: UUID, erasing: Erasing, found: ErasurePlan
) -> UUID:
    """Delete the payloads, which the row of ``erasures`` permits; return the erasure's id."""
    tables = metadata_for(connection.dialect.name).tables
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
    erased = sorted({*found.chosen, *found.copies})
    erase_events(connection, tables, conversation_id, erasure_id, erased)
    return erasure_id


def _lock_forks(
    connection: Connection,
    forks: Collection[UUID],
    surveyed: Mapping[UUID, ErasurePlan] | None,
) -> None:
    """Lock forks against writers and projections, in order of id.

    Raises:
        Outdated: They are not those that were surveyed, or have changed since.
        KeyUnavailable: A fork is sealed, and the store has no keys.
    """
    if surveyed is not None and set(forks) != surveyed.keys():
        raise Outdated
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    limited = bool(forks) and is_limited(connection)
    schema_stays(connection)
    # A query that locks rows names one conversation where each may be on another server.
    size = {"size": 1} if backend_of(connection).is_distributed else {}
    for some in pages(sorted(forks), **size):
        erasure_lock(connection, *some, exclusive=True)
        for fork in some:
            backend_of(connection).pin(connection, fork)
        query = (
            select(streams.c.conversation_id, streams.c.version, streams.c.key_id)
            .where(streams.c.conversation_id.in_(some))
            .order_by(streams.c.conversation_id)
            .with_for_update()
        )
        locked = {row.conversation_id: row for row in connection.execute(query)}
        for fork in some:
            if fork not in locked:  # It was purged.
                raise Outdated
            if locked[fork].key_id is not None and keys_of(connection) is None:
                raise KeyUnavailable(fork, "the store was opened without keys")
            if limited:
                require_forks_visible(connection, fork)
            if surveyed is not None:
                now = (locked[fork].version, erasure_count(connection, [fork]))
                if now != (surveyed[fork].version, surveyed[fork].erasures):
                    raise Outdated


def lock_stream(connection: Connection, conversation_id: UUID) -> tuple[int, str | None]:
    """Lock a conversation against writers and projections; return its version and its key's id.

    Raises:
        ConversationNotFound: No conversation has this id.
        OwnerMismatch: Row-level security hides forks that share its events.
    """
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    schema_stays(connection)
    erasure_lock(connection, conversation_id, exclusive=True)
    backend_of(connection).pin(connection, conversation_id)
    locked = connection.execute(
        select(streams.c.version, streams.c.key_id)
        .where(streams.c.conversation_id == conversation_id)
        .with_for_update()
    ).first()
    if locked is None:
        raise absent(connection, conversation_id)
    require_forks_visible(connection, conversation_id)
    return int(locked.version), locked.key_id


def _receive(
    connection: Connection,
    conversation_id: UUID,
    erasing: Erasing,
    found: ErasurePlan,
    erasure_id: UUID,
    sizes: Sequence[int],
) -> ErasureReceipt:
    """Append the kept usage and the receipt."""
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
        derived=group_by_kind(found.copies),
        quoted_by=group_by_kind(found.quoting),
    )
    left = [NewEvent(each) for each in (*usage_events(found.bill), receipt)]
    request = Append(conversation_id, prepare(left, None, 1 << 30, receipts=True), ANY)
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
        billed_calls=len(found.bill),
    )


def _require_erasable(
    connection: Connection,
    conversation_id: UUID,
    erasing: Erasing,
    version: int,
    key_id: str | None,
) -> None:
    """Refuse what cannot be erased, of a conversation of this version and key."""
    if erasing.version not in (None, version):
        raise WrongExpectedVersion(conversation_id, erasing.version, version)
    _require_versions(conversation_id, version, erasing.versions or ())
    _require_own(connection, conversation_id, erasing.versions)
    if key_id is not None and keys_of(connection) is None:
        raise KeyUnavailable(conversation_id, "the store was opened without keys")


def _require_versions(conversation_id: UUID, newest: int, versions: Collection[int]) -> None:
    for each in (min(versions, default=1), max(versions, default=newest)):
        if not 1 <= each <= newest:
            newest_is = f"the newest of {conversation_id} is {newest}"
            raise InvalidEvent(f"there is no event {each}: {newest_is}; nothing was erased")


def _require_own(
    connection: Connection, conversation_id: UUID, versions: Collection[int] | None
) -> None:
    parent = None if versions is None else fork_point(connection, conversation_id)
    if parent is not None and min(versions or (), default=parent.version + 1) <= parent.version:
        raise EventsShared(conversation_id, *parent)
