"""Appending to one stream, the plain way, or on from a head that the store remembers.

The short way to append: from the heads that a store remembers, many streams at once.

What the database would be asked first is taken from memory: an append that would go on from the
remembered head is written at once, and the database refuses it if the stream has moved. Everything
else comes back undone: unknown streams, conflicts, fenced writers, retries, large payloads. Those
go the plain way (`eventstore.sql.append`), which finds out what is the matter.

Append, the plain way: lock the stream's row, check what the writer expects, insert.

Everything happens in the caller's transaction. An error is raised before anything is written, so
a failed append leaves nothing behind, whoever owns the transaction. `eventstore.sql.append` is the
short way for streams whose heads are remembered; what it cannot do is done here.
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
from eventstore.events import Erasure
from eventstore.integrity import chain_start
from eventstore.sealing import SealingKey
from eventstore.sql.advance import Head, Step, advance
from eventstore.sql.dialect import (
    AnyConnection,
    Dialect,
    Statement,
    cursor,
    dialect_of,
    for_psycopg,
    text_in,
    text_out,
)
from eventstore.sql.read import chain_at, read_page
from eventstore.sql.requests import ANY, NO_STREAM, Anchor, Append, Appended

__all__ = ["Group", "Heads", "append", "is_locked", "remember"]


Heads = dict[int, Head]
"""Heads as a store saw them last, by the number that a stream's UUID is; guesses, all of them."""

_MOST_HEADS = 8192


class Group:
    """Appends, chained to remembered heads where that is possible.

    Appends to one stream keep their order: once one of them has to go the plain way, those after
    it do as well.
    """

    def __init__(self, requests: Sequence[Append], heads: Heads, now: datetime) -> None:
        self._heads = heads
        self._steps: dict[int, Step] = {}
        self._places: list[tuple[Step, slice] | None] = []
        plain: set[int] = set()
        for request in requests:
            stream = request.conversation_id.int
            step = self._steps.get(stream)
            if step is None and (known := heads.get(stream)) is not None:
                step = Step(request.conversation_id, known, now)
            if step is None or stream in plain or not _may_follow(request, step.head):
                plain.add(stream)
                self._places.append(None)
                continue
            self._steps[stream] = step
            self._places.append((step, step.add(request)))

    def __bool__(self) -> bool:
        """Whether any append can go the short way."""
        return bool(self._steps)

    def write(self, connection: AnyConnection, *, wait: bool = True) -> list[Appended | None]:
        """Write what can be written, and return None in the place of all else.

        On PostgreSQL it is one statement, so that it needs no transaction around it. An event id
        that is already in its stream shows as the driver's integrity error. Of several streams
        those that somebody has locked are left out; a single one is waited for, if ``wait``.
        """
        steps = list(self._steps.values())
        advance(cursor(connection), dialect_of(connection), steps, wait=wait)
        for stream, step in self._steps.items():
            if step.positions is None:
                self._heads.pop(stream, None)
            else:
                remember(self._heads, step)
        return [
            None if place is None or place[0].positions is None else place[0].appended(place[1])
            for place in self._places
        ]


def remember(heads: Heads, step: Step) -> None:
    """Keep the head that a step has reached."""
    if len(heads) >= _MOST_HEADS:
        heads.clear()
    heads[step.conversation_id.int] = step.head


def _may_follow(request: Append, head: Head) -> bool:
    return (
        (request.expected is ANY or request.expected == head.version)
        and (request.writer_epoch is None or request.writer_epoch == head.epoch)
        and (request.tenant_id is None or request.tenant_id == head.tenant_id)
        and (request.user_id is None or request.user_id == head.user_id)
        and not request.has_blobs
        and request.key is head.key
        and (request.anchor is None or _descends(head, request.anchor))
    )


def _descends(head: Head, anchor: Anchor) -> bool:
    # The database compares the head's chain, which covers all that came before it.
    return anchor.line is head.line or anchor.chain == head.chain


# `FOR UPDATE` serialises the writers of one stream; SQLite's writer holds the only lock there is.
_LOCK = Statement(
    """
    SELECT version, chain, writer_epoch, tenant_id, user_id, key_id FROM conversations
    WHERE conversation_id = :conversation_id
    """,
    """
    SELECT version, chain, writer_epoch, tenant_id, user_id, key_id FROM conversations
    WHERE conversation_id = :conversation_id FOR UPDATE
    """,
)
_TAKE_LOCK = for_psycopg(
    """
    WITH taken AS (
        SELECT 1 FROM conversations WHERE conversation_id = :conversation_id
        FOR UPDATE SKIP LOCKED
    )
    SELECT NOT EXISTS (SELECT FROM taken)
        AND EXISTS (SELECT FROM conversations WHERE conversation_id = :conversation_id)
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
_SET_KEY = Statement(
    "UPDATE conversations SET key_id = :key_id WHERE conversation_id = :conversation_id"
)
_FIND_IDS = "SELECT event_id, version FROM events WHERE conversation_id = {} AND event_id IN ({})"


def append(
    connection: AnyConnection, request: Append, now: datetime, heads: Heads | None = None
) -> Appended:
    """Append to one stream, in the caller's transaction; ``heads`` are told where it ended.

    Raises:
        WrongExpectedVersion: The stream is at another version.
        LogWentBack: The stream no longer has the event that the append insists on.
        WriterFenced: A newer writer has opened the stream.
        EventIdConflict: Some event ids are already there, elsewhere or only in part.
        OwnerMismatch: The stream belongs to another tenant or user.
        ConversationDamaged: The stream's row holds what no append has written.
        KeyUnavailable: The stream is sealed, and its key is not to be had.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    stream = str(request.conversation_id)
    head, key_id = _lock(cur, dialect, stream)
    outcome = _check(connection, request, head)
    if outcome is None and head is None:
        head, key_id = _create(cur, dialect, request, stream, now)
        # Another writer may have created the stream since we looked; then its head counts.
        outcome = _check(connection, request, head)
    if outcome is not None:
        return outcome
    assert head is not None  # noqa: S101 - created above, by us or by somebody else
    head.key = _seal(cur, dialect, request, key_id)
    for event in request.events:
        if event.blob is not None:
            store_blob(connection, request.conversation_id, event.blob)
    step = Step(request.conversation_id, head, now)
    places = step.add(request)
    advance(cur, dialect, [step])
    if heads is not None:
        remember(heads, step)
    return step.appended(places)


def is_locked(connection: AnyConnection, conversation_id: UUID) -> bool:
    """Whether somebody else writes to a stream now; if not, its row is locked, without waiting.

    On SQLite nobody else writes while the caller's transaction does.
    """
    if dialect_of(connection).is_sqlite:
        return False
    run = cursor(connection)
    return bool(run.execute(_TAKE_LOCK, {"conversation_id": conversation_id}).fetchone()[0])


def _seal(cur: Any, dialect: Dialect, request: Append, key_id: str | None) -> SealingKey | None:
    """Have the events sealed with the key that the stream has now, while its row is locked.

    It may have got another one, by an erasure, since the request was made ready.
    """
    conversation_id, keys = request.conversation_id, request.keys
    if all(event.data.type == Erasure.type for event in request.events):
        return request.key
    if keys is None:
        if key_id is not None:
            raise KeyUnavailable(conversation_id, "the store was opened without keys")
        return None
    key = None if key_id is None else keys.find(conversation_id, key_id)
    if key is None:  # also where it was destroyed since the backup that this database comes from
        key = keys.create(conversation_id)
        changed = {"key_id": key.key_id, "conversation_id": str(conversation_id)}
        cur.execute(_SET_KEY.on(dialect), changed)
    if request.key is not key:
        request.seal(key)
    return key


def _lock(cur: Any, dialect: Dialect, stream: str) -> tuple[Head | None, str | None]:
    cur.execute(_LOCK.on(dialect), {"conversation_id": stream})
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
    cur: Any, dialect: Dialect, request: Append, stream: str, now: datetime
) -> tuple[Head | None, str | None]:
    parent_id, parent_version = request.parent or (None, None)
    cur.execute(
        _CREATE.on(dialect),
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
            "now": dialect.from_time(now),
            "parent_conversation_id": None if parent_id is None else dialect.from_id(parent_id),
            "parent_version": parent_version,
            "key": text_in(request.stream_key),
        },
    )
    return _lock(cur, dialect, stream)


def _check(connection: AnyConnection, request: Append, head: Head | None) -> Appended | None:
    """Return the first result of a repeated append, or None for one that may go on."""
    _check_anchor(connection, request, head)
    _check_writer(request, head)
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


def _check_writer(request: Append, head: Head | None) -> None:
    epoch = 0 if head is None else head.epoch
    if request.writer_epoch is not None and request.writer_epoch != epoch:
        raise WriterFenced(request.conversation_id, request.writer_epoch, epoch)
    if head is None:
        return
    for asked, owner in ((request.tenant_id, head.tenant_id), (request.user_id, head.user_id)):
        if asked is not None and asked != owner:
            raise OwnerMismatch(request.conversation_id)


def _check_version(request: Append, head: Head | None) -> None:
    actual = 0 if head is None else head.version
    if request.expected is ANY:
        return
    expected = 0 if request.expected is NO_STREAM else int(request.expected)  # type: ignore[arg-type]
    if expected != actual:
        raise WrongExpectedVersion(request.conversation_id, expected, actual)


def _repeated(connection: AnyConnection, request: Append) -> Appended | None:
    """Return the first result, if exactly these events were appended before."""
    chosen = [event.chosen for event in request.events if event.chosen is not None]
    if not chosen:
        return None
    versions = _find(connection, request.conversation_id, chosen)
    if not versions:
        return None
    places = [versions.get(event.event_id) for event in request.events]
    first = places[0]
    asked = request.expected
    start = first if asked is ANY else 1 if asked is NO_STREAM else int(asked) + 1  # type: ignore[arg-type]
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
    dialect, cur = dialect_of(connection), cursor(connection)
    mark = dialect.mark
    found: dict[UUID, int] = {}
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        sql = _FIND_IDS.format(mark, ", ".join([mark] * len(part)))
        cur.execute(sql, [dialect.from_id(key) for key in (conversation_id, *part)])
        found.update((dialect.to_id(row[0]), row[1]) for row in cur.fetchall())
    return found
