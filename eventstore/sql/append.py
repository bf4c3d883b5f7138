"""Append, the plain way: lock the stream's row, check the writer's expectations, insert.

Everything happens in the caller's transaction. Errors are raised before anything is written, so a
failed append leaves nothing behind, whoever owns the transaction. `eventstore.sql.append` has
the short way for streams whose heads are remembered; the plain way handles everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from eventstore.blobs import store_blob
from eventstore.errors import (
    CannotConnect,
    ConversationArchived,
    ConversationDamaged,
    DatabaseBusy,
    EventIdConflict,
    EventStoreError,
    KeyUnavailable,
    LogWentBack,
    OwnerMismatch,
    StoreUnavailable,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.events.base import Clock
from eventstore.security.hash_chain import chain_start
from eventstore.security.sealing import SealingKey
from eventstore.sql.append_requests import ANY, OUTLIVING, Anchor, Append, Appended, Expected
from eventstore.sql.backend import (
    AnyConnection,
    Backend,
    DriverConnection,
    Statement,
    backend_of,
    cursor,
    run_each,
    text_in,
    text_out,
)
from eventstore.sql.connection_cache import ConnectionCache
from eventstore.sql.driver_errors import lacks_connection, translated
from eventstore.sql.read import chain_at, read_page
from eventstore.sql.steps import AppendStep, Heads, StreamHead
from eventstore.sql.streams import owner_of
from eventstore.telemetry.log import get_logger

__all__ = ["AppendGroup", "Appending", "append", "refuse_left"]


# `FOR UPDATE` serialises the writers of one stream; a SQLite writer already has the only lock.
_LOCK = Statement(
    """
    SELECT version, chain, writer_epoch, tenant_id, user_id, key_id FROM conversations
    WHERE conversation_id = :conversation_id FOR UPDATE
    """
)


_CREATE = Statement(
    """
    INSERT INTO conversations (conversation_id, version, chain, writer_epoch, tenant_id, user_id,
        created_at, last_active_at, parent_conversation_id, parent_version, key)
    VALUES (:conversation_id, 0, :chain, 0, :tenant_id, :user_id, :now, :now,
        :parent_conversation_id, :parent_version, :key)
    ON CONFLICT (conversation_id) DO NOTHING
    """
)


# Rows that a new conversation would take over; row-level security shows them once it has its row.
_LEFT = Statement(
    """
    SELECT EXISTS (SELECT 1 FROM events WHERE conversation_id = :conversation_id)
        OR EXISTS (SELECT 1 FROM blobs WHERE conversation_id = :conversation_id),
        EXISTS (SELECT 1 FROM archives
            WHERE conversation_id = :conversation_id AND state = 'archived')
    """
)


_DISCARD = Statement("DELETE FROM conversations WHERE conversation_id = :conversation_id")


_SET_KEY = Statement(
    "UPDATE conversations SET key_id = :key_id WHERE conversation_id = :conversation_id"
)


_FIND_IDS = "SELECT event_id, version FROM events WHERE conversation_id = {} AND event_id IN ({})"


def append(
    connection: AnyConnection,
    request: Append,
    now: datetime,
    heads: Heads | None = None,
) -> Appended:
    """Append to one stream, in the caller's transaction, and remember its new head in ``heads``.

    Raises:
        WrongExpectedVersion: The stream is at another version.
        LogWentBack: The stream no longer has the event of the append's anchor.
        WriterFenced: A newer writer has opened the stream.
        EventIdConflict: The stream already holds some event ids, elsewhere or only in part.
        OwnerMismatch: The stream or its parent belongs to another tenant or user.
        ConversationArchived: The stream is in the archive.
        ConversationDamaged: The stream's row is missing, or holds values that no append has
            written.
        InvalidEvent: The id of a new stream is reserved for keys.
        KeyUnavailable: The stream is sealed, and its key is not available.
    """
    backend, cur = backend_of(connection), cursor(connection)
    stream = str(request.conversation_id)
    backend.pin(connection, request.conversation_id)
    head, key_id = _lock(cur, backend, stream)
    outcome = _check(connection, request, head)
    if outcome is None and head is None:
        head, key_id = _create(connection, cur, request, stream, now)
        # Another writer may have created the stream in the meantime; then its head counts.
        outcome = _check(connection, request, head)
    if outcome is not None:
        return outcome
    if head is None:  # The stream exists, but row-level security hides it.
        raise OwnerMismatch(request.conversation_id)
    head.key = _seal(cur, backend, request, key_id)
    for event in request.events:
        if event.blob is not None:
            store_blob(connection, request.conversation_id, event.blob)
    step = AppendStep(request.conversation_id, head, now)
    places = step.add(request)
    backend.advance(cur, [step])
    if step.positions is None:
        reason = "its row was changed despite the lock: the append is undone, and may be repeated"
        raise DatabaseBusy(str(request.conversation_id), reason)
    if heads is not None:
        heads.reach(step)
    return step.appended(places)


def _seal(cur: Any, backend: Backend, request: Append, key_id: str | None) -> SealingKey | None:
    """Seal the events with the stream's current key, while the stream's row is locked.

    An erasure may have changed the key since the request was prepared.
    """
    conversation_id, keys = request.conversation_id, request.keys
    if all(event.data.type in OUTLIVING for event in request.events):
        return request.key
    if keys is None:
        if key_id is not None:
            raise KeyUnavailable(conversation_id, "the store was opened without keys")
        return None
    key = None if key_id is None else keys.find(conversation_id, key_id)
    if key is None:  # also if it was destroyed after the backup that this database came from
        key = keys.create(conversation_id)
        changed = {"key_id": key.key_id, "conversation_id": str(conversation_id)}
        cur.execute(_SET_KEY.on(backend), changed)
    if request.key is not key:
        request.seal(key)
    return key


def _lock(cur: Any, backend: Backend, stream: str) -> tuple[StreamHead | None, str | None]:
    cur.execute(_LOCK.on(backend), {"conversation_id": stream})
    row = cur.fetchone()
    if row is None:
        return None, None
    version, chain, epoch, tenant_id, user_id, key_id = row
    try:
        head = StreamHead(
            int(version),
            bytes(memoryview(chain)),
            int(epoch),
            text_out(tenant_id),
            text_out(user_id),
            stream,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ConversationDamaged(UUID(stream)) from error
    return head, key_id


def _create(
    connection: AnyConnection, cur: Any, request: Append, stream: str, now: datetime
) -> tuple[StreamHead | None, str | None]:
    backend = backend_of(connection)
    parent_id, parent_version = request.parent or (None, None)
    request.require_free_id()
    if parent_id is not None:
        # A parent may be unknown here: it was purged, or is not imported yet.
        owner = owner_of(connection, parent_id)
        if owner is not None and not request.owns(*owner):
            raise OwnerMismatch(parent_id)
    cur.execute(
        _CREATE.on(backend),
        {
            "conversation_id": stream,
            "chain": chain_start(
                request.conversation_id,
                request.tenant_id,
                request.user_id,
                parent_id,
                parent_version,
                request.stream_key,
            ),
            "tenant_id": text_in(request.tenant_id),
            "user_id": text_in(request.user_id),
            "now": backend.from_time(now),
            "parent_conversation_id": None if parent_id is None else backend.from_id(parent_id),
            "parent_version": parent_version,
            "key": text_in(request.stream_key),
        },
    )
    head, key_id = _lock(cur, backend, stream)
    if head is not None and head.version == 0:  # Nobody else has created it in the meantime.
        refuse_left(connection, request.conversation_id)
    return head, key_id


def refuse_left(connection: AnyConnection, conversation_id: UUID) -> None:
    """Refuse a row that was just created for an id under which events are stored.

    Raises:
        ConversationArchived: The conversation is in the archive; the new row is deleted again.
        ConversationDamaged: Events have this id; the new row is deleted again.
    """
    [(is_left, is_archived)] = _LEFT.rows(connection, conversation_id=conversation_id)
    if is_left or is_archived:
        backend = backend_of(connection)
        run_each(connection, _DISCARD.on(backend), [{"conversation_id": str(conversation_id)}])
        if is_archived:
            raise ConversationArchived(conversation_id)
        raise ConversationDamaged(
            conversation_id, "is missing, but events have its id: eventstore doctor names them"
        )


def _check(connection: AnyConnection, request: Append, head: StreamHead | None) -> Appended | None:
    """Return the first result if the append is a repetition, or None if it may proceed."""
    if head is not None and not request.owns(head.tenant_id, head.user_id):
        raise OwnerMismatch(request.conversation_id)
    _check_anchor(connection, request, head)
    epoch = 0 if head is None else head.epoch
    if request.writer_epoch is not None and request.writer_epoch != epoch:
        raise WriterFenced(request.conversation_id, request.writer_epoch, epoch)
    repeated = _repeated(connection, request)
    if repeated is None:
        _check_version(request, head)
    return repeated


def _check_anchor(connection: AnyConnection, request: Append, head: StreamHead | None) -> None:
    anchor = request.anchor
    if anchor is None or (head is not None and head.chain == anchor.chain):
        return
    stream = request.conversation_id
    if anchor.chain != chain_at(connection, stream, anchor.version):
        raise LogWentBack(stream, anchor.version, 0 if head is None else head.version)


def _check_version(request: Append, head: StreamHead | None) -> None:
    actual = 0 if head is None else head.version
    if request.expected is ANY:
        return
    expected = 0 if isinstance(request.expected, Expected) else request.expected
    if expected != actual:
        raise WrongExpectedVersion(request.conversation_id, expected, actual)


def _repeated(connection: AnyConnection, request: Append) -> Appended | None:
    """Return the first result if exactly these events were appended before."""
    chosen = [event.chosen for event in request.events if event.chosen is not None]
    if not chosen:
        return None
    versions = _find(connection, request.conversation_id, chosen)
    if not versions:
        return None
    places = [versions.get(event.event_id) for event in request.events]
    first = places[0]
    expected = request.expected
    if isinstance(expected, Expected):
        start = first if expected is ANY else 1
    else:
        start = expected + 1
    if first is None or first != start or places != list(range(first, first + len(places))):
        raise EventIdConflict(request.conversation_id, versions)
    events = read_page(
        connection,
        request.conversation_id,
        after=first - 1,
        limit=len(request.events),
        keys=request.keys,
    )
    last = events[-1]
    anchor = Anchor(last.version, last.chain)
    return Appended(request.conversation_id, last.version, tuple(events), anchor)


def _find(connection: AnyConnection, conversation_id: UUID, ids: Sequence[UUID]) -> dict[UUID, int]:
    backend, cur = backend_of(connection), cursor(connection)
    mark = backend.mark
    found: dict[UUID, int] = {}
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        sql = _FIND_IDS.format(mark, ", ".join([mark] * len(part)))
        cur.execute(sql, [backend.from_id(key) for key in (conversation_id, *part)])
        found.update((backend.to_id(row[0]), row[1]) for row in cur.fetchall())
    return found


_log = get_logger("eventstore")


_MOMENT_MS = 100


class Appending:
    """Runs appends on a store's connections, and remembers the resulting heads.

    Safe to share between threads.
    """

    def __init__(self, url: str, at_hand: ConnectionCache, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._at_hand = at_hand
        self._heads = Heads()

    def within(self, at_hand: ConnectionCache) -> Appending:
        """Return a copy that uses other connections and shares the remembered heads."""
        made = copy(self)
        made._at_hand = at_hand
        return made

    def run(self, requests: Sequence[Append], *, wait: bool = True) -> list[Appended | Exception]:
        """Run appends and return their outcomes in the order of the requests, once all are durable.

        Appends whose streams are at their remembered heads share one transaction, all others a
        second one. Without ``wait``, an append to a locked stream fails with `DatabaseBusy` at
        once, as do later appends to that stream; on SQLite after a tenth of a second.
        """
        outcomes = self._from_heads(requests, wait)
        left = [place for place, outcome in enumerate(outcomes) if outcome is None]
        if left:
            # The same order everywhere, so that two groups cannot wait for each other's streams.
            left.sort(key=lambda place: requests[place].conversation_id)
            plain = self._locked([requests[place] for place in left], wait, set())
            for place, outcome in zip(left, plain, strict=True):
                outcomes[place] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def seen_version(self, conversation_id: UUID) -> int:
        """Return the version that this store last appended to a stream; 0 if none is remembered.

        The stream's real version is higher if others append to it, and lower if a commit failed.
        """
        known = self._heads.get(conversation_id.int)
        return 0 if known is None else known.version

    def seen_key(self, conversation_id: UUID) -> SealingKey | None:
        """Return the key that sealed a stream's events at its remembered head, if any."""
        known = self._heads.get(conversation_id.int)
        return None if known is None else known.key

    def writer_raised(self, conversation_id: UUID, epoch: int) -> None:
        """Remember a stream's new writer, so that its first append is a short one too."""
        known = self._heads.get(conversation_id.int)
        if known is not None:
            self._heads[conversation_id.int] = replace(known, epoch=epoch)

    def _from_heads(
        self, requests: Sequence[Append], wait: bool
    ) -> list[Appended | Exception | None]:
        """Run the appends that follow remembered heads, and return None for the rest."""
        try:
            group = AppendGroup(requests, self._heads, self._clock())
            if group:
                patience_ms = self._patience_ms(wait)
                statement = self._at_hand.statement(patience_ms=patience_ms)
                with translated(self._url), statement as connection:
                    return [*group.write(connection, wait=wait)]
        except StoreUnavailable as error:
            # After a lost connection it is unknown whether they were committed: callers decide.
            if len(requests) == 1 or self._concerns_all(error):
                return [error] * len(requests)
        except Exception as error:
            # Not the error's text, in which a driver may quote the data.
            _log.debug("append_plainly", appends=len(requests), error=type(error).__name__)
        return [None] * len(requests)

    def _locked(
        self, requests: Sequence[Append], wait: bool, busy: set[UUID]
    ) -> list[Appended | Exception]:
        """Append in one transaction, locking each stream's row first; if that fails, in many."""
        patience_ms = self._patience_ms(wait)
        transaction = self._at_hand.transaction(write=True, patience_ms=patience_ms)
        try:
            with translated(self._url), transaction as connection:
                return [self._append(connection, request, busy, wait) for request in requests]
        except Exception as error:
            if len(requests) == 1 or self._concerns_all(error):
                return [error] * len(requests)
        return [outcome for request in requests for outcome in self._locked([request], wait, busy)]

    def _patience_ms(self, wait: bool) -> int | None:
        """Return how long to wait for SQLite's lock, or None for the default."""
        return None if wait or not self._at_hand.backend.locks_all else _MOMENT_MS

    def _concerns_all(self, error: Exception) -> bool:
        """Whether each append of a group would fail the same way alone, after the same wait."""
        if isinstance(error, DatabaseBusy):
            # SQLite locks the whole database; on PostgreSQL a single stream may be locked.
            return self._at_hand.backend.locks_all or lacks_connection(error)
        return isinstance(error, CannotConnect)

    def _append(
        self, connection: DriverConnection, request: Append, busy: set[UUID], wait: bool
    ) -> Appended | Exception:
        stream = request.conversation_id
        try:
            locked = connection.backend.is_locked
            if not wait and (stream in busy or locked(cursor(connection), stream)):
                busy.add(stream)
                raise DatabaseBusy(self._url, f"conversation {stream} is being written: try again")
            return append(connection, request, self._clock(), self._heads)
        except EventStoreError as error:
            # Raised before anything was written, so the others of the group are not affected.
            return error


class AppendGroup:
    """Appends, chained to remembered heads if possible.

    Appends to one stream keep their order: once one of them has to take the plain way, later ones
    do as well.
    """

    def __init__(self, requests: Sequence[Append], heads: Heads, now: datetime) -> None:
        self._heads = heads
        self._steps: dict[int, AppendStep] = {}
        self._places: list[tuple[AppendStep, slice] | None] = []
        plain: set[int] = set()
        for request in requests:
            stream = request.conversation_id.int
            step = self._steps.get(stream)
            if step is None and (known := heads.get(stream)) is not None:
                step = AppendStep(request.conversation_id, known, now)
            if step is None or stream in plain or not _may_follow(request, step.head):
                plain.add(stream)
                self._places.append(None)
                continue
            self._steps[stream] = step
            self._places.append((step, step.add(request)))

    def __bool__(self) -> bool:
        """Whether any append can take the short way."""
        return bool(self._steps)

    def write(self, connection: AnyConnection, *, wait: bool = True) -> list[Appended | None]:
        """Write the appends that can be written, and return None for the others.

        On PostgreSQL this is one statement, which needs no transaction around it. If a stream
        already holds one of the event ids, the driver raises its integrity error. With several
        streams, locked ones are left out; with a single one, wait for its lock if ``wait``.
        """
        steps = list(self._steps.values())
        backend_of(connection).advance(cursor(connection), steps, wait=wait)
        for stream, step in self._steps.items():
            if step.positions is None:
                self._heads.pop(stream, None)
            else:
                self._heads.reach(step)
        return [
            None if place is None or place[0].positions is None else place[0].appended(place[1])
            for place in self._places
        ]


def _may_follow(request: Append, head: StreamHead) -> bool:
    return (
        (request.expected is ANY or request.expected == head.version)
        and (request.writer_epoch is None or request.writer_epoch == head.epoch)
        and request.owns(head.tenant_id, head.user_id)
        and not request.has_blobs
        and request.key is head.key
        and (request.anchor is None or _descends(head, request.anchor))
    )


def _descends(head: StreamHead, anchor: Anchor) -> bool:
    # The database compares the head's chain, which covers all earlier events.
    return anchor.line is head.line or anchor.chain == head.chain
