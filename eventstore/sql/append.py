"""Append: lock the stream's row, check what the writer expects, insert, move the head.

Everything happens in the caller's transaction. An error is raised before anything is written, so
a failed append leaves nothing behind, whoever owns the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from eventstore.blobs import store_blob
from eventstore.errors import (
    EventIdConflict,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.events.records import RecordedEvent
from eventstore.integrity import chain_start, chain_step
from eventstore.sql.dialect import (
    AnyConnection,
    Dialect,
    Statement,
    cursor,
    dialect_of,
    text_in,
    text_out,
)
from eventstore.sql.read import read_page
from eventstore.sql.requests import ANY, NO_STREAM, Append, Appended

__all__ = ["Head", "Heads", "append"]


@dataclass(slots=True)
class _Stored:
    """The stream's id and the time, as the database takes them."""

    conversation_id: Any
    now: Any


@dataclass(slots=True)
class Head:
    """What `conversations` says of a stream."""

    version: int
    chain: bytes
    epoch: int
    tenant_id: str | None
    user_id: str | None
    stored_id: Any


Heads = dict[UUID, Head]
"""Heads as a store saw them last; a guess, which the database confirms or refuses."""

_MOST_HEADS = 1024


# `FOR UPDATE` serialises the writers of one stream; SQLite's writer holds the only lock there is.
_LOCK = Statement(
    """
    SELECT version, chain, writer_epoch, tenant_id, user_id FROM conversations
    WHERE conversation_id = :conversation_id
    """,
    """
    SELECT version, chain, writer_epoch, tenant_id, user_id FROM conversations
    WHERE conversation_id = :conversation_id FOR UPDATE
    """,
)
_CREATE = Statement(
    """
    INSERT INTO conversations (conversation_id, version, chain, writer_epoch, tenant_id, user_id,
        created_at, last_active_at, parent_conversation_id, parent_version)
    VALUES (:conversation_id, 0, :chain, 0, :tenant_id, :user_id, :now, :now,
        :parent_conversation_id, :parent_version)
    ON CONFLICT (conversation_id) DO NOTHING
    """
)
_INSERT = Statement(
    """
    INSERT INTO events (conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, salt, data_digest, chain)
    VALUES (:conversation_id, :version, :event_id, :type, :schema_version, :recorded_at,
        :data, :meta, :salt, :data_digest, :chain)
    """,
    """
    INSERT INTO events (conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, salt, data_digest, chain, epoch, tx_id)
    VALUES (:conversation_id, :version, :event_id, :type, :schema_version, :recorded_at,
        :data, :meta, :salt, :data_digest, :chain, :epoch, (:tx_id)::text::xid8)
    RETURNING position
    """,
)
_SET_HEAD = """
    UPDATE conversations SET version = :version, chain = :chain, last_active_at = :now
    WHERE conversation_id = :conversation_id
    """
# From a head that was only guessed: no row is updated if the stream has moved meanwhile.
_IF_UNMOVED = """
    AND version = :known_version AND chain = :known_chain AND writer_epoch = :known_epoch
    """
# Where the events go in the feed. `tx_id` never falls within a stream: a transaction that began
# first may lock the stream last, and its events would be handed out before those they follow.
_FEED_PLACE = """
    RETURNING (SELECT max(epoch) FROM store_epochs),
        GREATEST(pg_current_xact_id(), (
            SELECT last.tx_id FROM events AS last
            WHERE last.conversation_id = :conversation_id AND last.version = :known_version
            AND last.epoch = (SELECT max(epoch) FROM store_epochs)))::text
    """
_ADVANCE = Statement(_SET_HEAD, _SET_HEAD + _FEED_PLACE)
_ADVANCE_FROM = Statement(_SET_HEAD + _IF_UNMOVED, _SET_HEAD + _IF_UNMOVED + _FEED_PLACE)
_FIND_IDS = "SELECT event_id, version FROM events WHERE conversation_id = {} AND event_id IN ({})"


def append(connection: AnyConnection, request: Append, heads: Heads | None = None) -> Appended:
    """Append to one stream, in the caller's transaction.

    With ``heads``, the stream's head is first taken to be what it was last, which saves asking for
    it. Then an event id that is already in the stream shows as the driver's integrity error, and
    the append has to be repeated without ``heads`` in another transaction.

    Raises:
        WrongExpectedVersion: The stream is at another version.
        WriterFenced: A newer writer has opened the stream.
        EventIdConflict: Some event ids are already there, elsewhere or only in part.
        OwnerMismatch: The stream belongs to another tenant or user.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    now = datetime.now(UTC)
    known = None if heads is None else heads.get(request.conversation_id)
    stored_id = dialect.from_id(request.conversation_id) if known is None else known.stored_id
    stored = _Stored(stored_id, dialect.from_time(now))
    if known is not None and _may_follow(request, known):
        rows = _rows(dialect, request, known, stored, now)
        if _advance(cur, dialect, _ADVANCE_FROM, stored, known, rows):
            return _insert(connection, cur, dialect, request, known, rows, now, heads)
    head = _lock(cur, dialect, stored)
    outcome = _check(connection, request, head)
    if outcome is None and head is None:
        head = _create(cur, dialect, request, stored)
        # Another writer may have created the stream since we looked; then its head counts.
        outcome = _check(connection, request, head)
    if outcome is not None:
        return outcome
    assert head is not None  # noqa: S101 - created above, by us or by somebody else
    rows = _rows(dialect, request, head, stored, now)
    _advance(cur, dialect, _ADVANCE, stored, head, rows)
    return _insert(connection, cur, dialect, request, head, rows, now, heads)


def _may_follow(request: Append, head: Head) -> bool:
    """Whether the append would go on from this head; if not, the database is asked why."""
    return (
        (request.expected is ANY or request.expected == head.version)
        and (request.writer_epoch is None or request.writer_epoch == head.epoch)
        and (request.tenant_id is None or request.tenant_id == head.tenant_id)
        and (request.user_id is None or request.user_id == head.user_id)
    )


def _advance(
    cur: Any,
    dialect: Dialect,
    statement: Statement,
    stored: _Stored,
    known: Head,
    rows: list[dict[str, Any]],
) -> bool:
    """Move the stream's head to the last row, and learn the rows' place in the feed."""
    cur.execute(
        statement.on(dialect),
        {
            "conversation_id": stored.conversation_id,
            "version": rows[-1]["version"],
            "chain": rows[-1]["chain"],
            "now": stored.now,
            "known_version": known.version,
            "known_chain": known.chain,
            "known_epoch": known.epoch,
        },
    )
    if cur.rowcount != 1:
        return False
    if not dialect.is_sqlite:
        epoch, tx_id = cur.fetchone()
        for row in rows:
            row["epoch"], row["tx_id"] = epoch, tx_id
    return True


def _lock(cur: Any, dialect: Dialect, stored: _Stored) -> Head | None:
    cur.execute(_LOCK.on(dialect), {"conversation_id": stored.conversation_id})
    row = cur.fetchone()
    if row is None:
        return None
    version, chain, epoch, tenant_id, user_id = row
    return Head(
        version, bytes(chain), epoch, text_out(tenant_id), text_out(user_id), stored.conversation_id
    )


def _create(cur: Any, dialect: Dialect, request: Append, stored: _Stored) -> Head | None:
    parent_id, parent_version = request.parent or (None, None)
    cur.execute(
        _CREATE.on(dialect),
        {
            "conversation_id": stored.conversation_id,
            "chain": chain_start(request.conversation_id),
            "tenant_id": text_in(request.tenant_id),
            "user_id": text_in(request.user_id),
            "now": stored.now,
            "parent_conversation_id": None if parent_id is None else dialect.from_id(parent_id),
            "parent_version": parent_version,
        },
    )
    return _lock(cur, dialect, stored)


def _check(connection: AnyConnection, request: Append, head: Head | None) -> Appended | None:
    """Return the first result of a repeated append, or None for one that may go on."""
    _check_writer(request, head)
    repeated = _repeated(connection, request)
    if repeated is None:
        _check_version(request, head)
    return repeated


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
    chosen = [event.event_id for event in request.events if event.chosen]
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
        connection, request.conversation_id, after=first - 1, limit=len(request.events)
    )
    return Appended(request.conversation_id, events[-1].version, tuple(events))


def _find(connection: AnyConnection, conversation_id: UUID, ids: Sequence[UUID]) -> dict[UUID, int]:
    dialect, cur = dialect_of(connection), cursor(connection)
    mark = "?" if dialect.is_sqlite else "%s"
    found: dict[UUID, int] = {}
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        sql = _FIND_IDS.format(mark, ", ".join([mark] * len(part)))
        cur.execute(sql, [dialect.from_id(key) for key in (conversation_id, *part)])
        found.update((dialect.to_id(row[0]), row[1]) for row in cur.fetchall())
    return found


def _rows(
    dialect: Dialect, request: Append, head: Head, stored: _Stored, now: datetime
) -> list[dict[str, Any]]:
    chain = head.chain
    rows: list[dict[str, Any]] = []
    for version, event in enumerate(request.events, start=head.version + 1):
        data = event.data
        chain = chain_step(
            chain,
            version,
            event.event_id,
            data.type,
            data.schema_version,
            now,
            event.meta_text,
            event.digest,
        )
        rows.append(
            {
                "conversation_id": stored.conversation_id,
                "version": version,
                "event_id": dialect.from_id(event.event_id),
                "type": data.type,
                "schema_version": data.schema_version,
                "recorded_at": stored.now,
                "data": event.text,
                "meta": event.meta_text,
                "salt": event.salt,
                "data_digest": event.digest,
                "chain": chain,
            }
        )
    return rows


def _insert(
    connection: AnyConnection,
    cur: Any,
    dialect: Dialect,
    request: Append,
    head: Head,
    rows: list[dict[str, Any]],
    now: datetime,
    heads: Heads | None,
) -> Appended:
    for event in request.events:
        if event.blob is not None:
            store_blob(connection, request.conversation_id, event.blob)
    positions = _execute_insert(cur, dialect, rows)
    last = rows[-1]
    if heads is not None:
        if len(heads) >= _MOST_HEADS:
            heads.clear()
        heads[request.conversation_id] = Head(
            last["version"],
            last["chain"],
            head.epoch,
            head.tenant_id,
            head.user_id,
            head.stored_id,
        )

    def recorded() -> tuple[RecordedEvent, ...]:
        return tuple(
            RecordedEvent(
                request.conversation_id,
                row["version"],
                event.event_id,
                position,
                event.data.type,
                event.data.schema_version,
                now,
                event.data,
                event.meta,
                event.digest,
                row["chain"],
            )
            for event, row, position in zip(request.events, rows, positions, strict=True)
        )

    return Appended(request.conversation_id, last["version"], recorded)


def _execute_insert(cur: Any, dialect: Dialect, rows: list[dict[str, Any]]) -> list[int]:
    if dialect.is_sqlite:
        if len(rows) == 1:
            cur.execute(_INSERT.on(dialect), rows[0])
            return [cur.lastrowid]
        cur.executemany(_INSERT.on(dialect), rows)
        # The only writer: AUTOINCREMENT has counted without a gap up to the last row.
        cur.execute("SELECT last_insert_rowid()")
        last = cur.fetchone()[0]
        return list(range(last - len(rows) + 1, last + 1))
    if len(rows) == 1:
        cur.execute(_INSERT.on(dialect), rows[0])
        return [cur.fetchone()[0]]
    cur.executemany(_INSERT.on(dialect), rows, returning=True)
    positions = []
    while True:
        positions.append(cur.fetchone()[0])
        if not cur.nextset():
            return positions
