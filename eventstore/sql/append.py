"""Append, the plain way: lock the stream's row, check the writer's expectations, insert.

Everything happens in the caller's transaction. Errors are raised before anything is written, so a
failed append leaves nothing behind, whoever owns the transaction. `eventstore.sql.appending` has
the short way for streams whose heads are remembered; the plain way handles everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from eventstore.blobs import store_blob
from eventstore.errors import (
    ConversationDamaged,
    EventIdConflict,
    KeyUnavailable,
    LogWentBack,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.integrity import chain_start
from eventstore.sealing import SealingKey
from eventstore.sql.backend import (
    AnyConnection,
    Backend,
    Statement,
    backend_of,
    cursor,
    run_each,
    text_in,
    text_out,
)
from eventstore.sql.read import chain_at, read_page
from eventstore.sql.requests import ANY, OUTLIVING, Anchor, Append, Appended, Expected
from eventstore.sql.steps import Head, Heads, Step
from eventstore.sql.streams import owner_of

__all__ = ["append", "refuse_left"]


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
        OR EXISTS (SELECT 1 FROM blobs WHERE conversation_id = :conversation_id)
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
        ConversationDamaged: The stream's row is missing, or holds values that no append has
            written.
        InvalidEvent: The id of a new stream is reserved for keys.
        KeyUnavailable: The stream is sealed, and its key is not available.
    """
    backend, cur = backend_of(connection), cursor(connection)
    stream = str(request.conversation_id)
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
    step = Step(request.conversation_id, head, now)
    places = step.add(request)
    backend.advance(cur, [step])
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


def _lock(cur: Any, backend: Backend, stream: str) -> tuple[Head | None, str | None]:
    cur.execute(_LOCK.on(backend), {"conversation_id": stream})
    row = cur.fetchone()
    if row is None:
        return None, None
    version, chain, epoch, tenant_id, user_id, key_id = row
    try:
        head = Head(
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
) -> tuple[Head | None, str | None]:
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
        ConversationDamaged: Events have this id; the new row is deleted again.
    """
    if _LEFT.rows(connection, conversation_id=conversation_id)[0][0]:
        backend = backend_of(connection)
        run_each(connection, _DISCARD.on(backend), [{"conversation_id": str(conversation_id)}])
        raise ConversationDamaged(
            conversation_id, "is missing, but events have its id: eventstore doctor names them"
        )


def _check(connection: AnyConnection, request: Append, head: Head | None) -> Appended | None:
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


def _check_anchor(connection: AnyConnection, request: Append, head: Head | None) -> None:
    anchor = request.anchor
    if anchor is None or (head is not None and head.chain == anchor.chain):
        return
    stream = request.conversation_id
    if anchor.chain != chain_at(connection, stream, anchor.version):
        raise LogWentBack(stream, anchor.version, 0 if head is None else head.version)


def _check_version(request: Append, head: Head | None) -> None:
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
    asked = request.expected
    if isinstance(asked, Expected):
        start = first if asked is ANY else 1
    else:
        start = asked + 1
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
