"""Append: lock the stream's row, check what the writer expects, insert, move the head.

Everything happens in the caller's transaction. An error is raised before anything is written, so
a failed append leaves nothing behind, whoever owns the transaction.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

from eventstore.blobs import Blob, externalise, store_blob
from eventstore.errors import (
    EventIdConflict,
    InvalidEvent,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.events.base import Payload
from eventstore.events.codec import dumps, encode
from eventstore.events.meta import NO_META, Meta
from eventstore.events.records import EventData, NewEvent, RecordedEvent
from eventstore.events.registry import UnknownEvent
from eventstore.ids import new_id
from eventstore.integrity import chain_start, chain_step, commit_to
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

__all__ = ["ANY", "NO_STREAM", "Append", "Appended", "Expected", "append", "prepare"]


class Expected(Enum):
    """What a writer may expect of a stream, besides an exact version."""

    ANY = "any"
    """Whatever its version is."""
    NO_STREAM = "no stream"
    """That it has no events yet."""


ANY = Expected.ANY
NO_STREAM = Expected.NO_STREAM


@dataclass(slots=True)
class Prepared:
    """An event, encoded, with its commitment: all that can be done outside the transaction."""

    event_id: UUID
    chosen: bool
    data: EventData
    text: str
    meta: Meta
    meta_text: str
    salt: bytes
    digest: bytes
    blob: Blob | None


@dataclass(slots=True)
class Append:
    """One append: to which stream, what, and under which conditions."""

    conversation_id: UUID
    events: tuple[Prepared, ...]
    expected: Expected | int
    tenant_id: str | None = None
    user_id: str | None = None
    writer_epoch: int | None = None
    parent: tuple[UUID, int] | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did: the stream's version after it, and the events as recorded."""

    conversation_id: UUID
    version: int
    events: tuple[RecordedEvent, ...]


@dataclass(slots=True)
class _Stored:
    """The stream's id and the time, as the database takes them."""

    conversation_id: Any
    now: Any


@dataclass(slots=True)
class _Head:
    version: int
    chain: bytes
    epoch: int
    tenant_id: str | None
    user_id: str | None


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
# `tx_id` never falls within a stream: a transaction that began first may lock the stream last, and
# the feed would hand out its events before those that they follow.
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
        :data, :meta, :salt, :data_digest, :chain,
        (SELECT max(epoch) FROM store_epochs),
        GREATEST(pg_current_xact_id(), (
            SELECT previous.tx_id FROM events AS previous
            WHERE previous.conversation_id = :conversation_id AND previous.version = :version - 1
            AND previous.epoch = (SELECT max(epoch) FROM store_epochs))))
    RETURNING position
    """,
)
_ADVANCE = Statement(
    """
    UPDATE conversations SET version = :version, chain = :chain, last_active_at = :now
    WHERE conversation_id = :conversation_id
    """
)
_FIND_IDS = "SELECT event_id, version FROM events WHERE conversation_id = {} AND event_id IN ({})"


def prepare(
    events: Sequence[NewEvent | EventData], meta: Meta | None, threshold: int
) -> tuple[Prepared, ...]:
    """Encode events for an append; ``meta`` is for those that bring none of their own.

    Raises:
        InvalidEvent: There are none, one cannot be encoded, or an event id is used twice.
    """
    if not events:
        raise InvalidEvent("an append needs at least one event")
    prepared = tuple(_prepare(event, meta, threshold) for event in events)
    chosen = [event.event_id for event in prepared if event.chosen]
    if len(set(chosen)) != len(chosen):
        raise InvalidEvent("an append holds the same event id twice")
    return prepared


def append(connection: AnyConnection, request: Append) -> Appended:
    """Append to one stream, in the caller's transaction.

    Raises:
        WrongExpectedVersion: The stream is at another version.
        WriterFenced: A newer writer has opened the stream.
        EventIdConflict: Some event ids are already there, elsewhere or only in part.
        OwnerMismatch: The stream belongs to another tenant or user.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    now = datetime.now(UTC)
    stored = _Stored(dialect.from_id(request.conversation_id), dialect.from_time(now))
    head = _lock(cur, dialect, stored)
    outcome = _check(connection, request, head)
    if outcome is None and head is None:
        head = _create(cur, dialect, request, stored)
        # Another writer may have created the stream since we looked; then its head counts.
        outcome = _check(connection, request, head)
    if outcome is not None:
        return outcome
    assert head is not None  # noqa: S101 - created above, by us or by somebody else
    for event in request.events:
        if event.blob is not None:
            store_blob(connection, request.conversation_id, event.blob)
    recorded = _insert(cur, dialect, request, head, stored, now)
    cur.execute(
        _ADVANCE.on(dialect),
        {
            "conversation_id": stored.conversation_id,
            "version": recorded[-1].version,
            "chain": recorded[-1].chain,
            "now": stored.now,
        },
    )
    return Appended(request.conversation_id, recorded[-1].version, recorded)


def _prepare(event: NewEvent | EventData, meta: Meta | None, threshold: int) -> Prepared:
    if isinstance(event, NewEvent):
        payload, event_id = event.data, event.event_id
        own_meta = meta if meta is not None and event.meta == NO_META else event.meta
    else:
        payload, event_id, own_meta = event, None, meta or NO_META
    if not isinstance(payload, (Payload, UnknownEvent)):
        raise InvalidEvent(f"{payload!r} is no event: use a class of eventstore.events")
    data, text, blob = externalise(payload, encode(payload), threshold)
    salt = os.urandom(16)
    return Prepared(
        event_id=event_id or new_id(),
        chosen=event_id is not None,
        data=data,
        text=text,
        meta=own_meta,
        meta_text="{}" if own_meta is NO_META else _meta_text(own_meta),
        salt=salt,
        digest=commit_to(salt, text),
        blob=blob,
    )


def _meta_text(meta: Meta) -> str:
    try:
        return meta.__pydantic_serializer__.to_json(meta, exclude_defaults=True).decode()
    except ValueError:  # lone surrogates
        return dumps(meta.model_dump(mode="json", exclude_defaults=True))


def _lock(cur: Any, dialect: Dialect, stored: _Stored) -> _Head | None:
    cur.execute(_LOCK.on(dialect), {"conversation_id": stored.conversation_id})
    row = cur.fetchone()
    if row is None:
        return None
    version, chain, epoch, tenant_id, user_id = row
    return _Head(version, bytes(chain), epoch, text_out(tenant_id), text_out(user_id))


def _create(cur: Any, dialect: Dialect, request: Append, stored: _Stored) -> _Head | None:
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


def _check(connection: AnyConnection, request: Append, head: _Head | None) -> Appended | None:
    """Return the first result of a repeated append, or None for one that may go on."""
    _check_writer(request, head)
    repeated = _repeated(connection, request)
    if repeated is None:
        _check_version(request, head)
    return repeated


def _check_writer(request: Append, head: _Head | None) -> None:
    epoch = 0 if head is None else head.epoch
    if request.writer_epoch is not None and request.writer_epoch != epoch:
        raise WriterFenced(request.conversation_id, request.writer_epoch, epoch)
    if head is None:
        return
    for asked, owner in ((request.tenant_id, head.tenant_id), (request.user_id, head.user_id)):
        if asked is not None and asked != owner:
            raise OwnerMismatch(request.conversation_id)


def _check_version(request: Append, head: _Head | None) -> None:
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


def _insert(
    cur: Any, dialect: Dialect, request: Append, head: _Head, stored: _Stored, now: datetime
) -> tuple[RecordedEvent, ...]:
    chain = head.chain
    rows: list[dict[str, Any]] = []
    links: list[bytes] = []
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
        links.append(chain)
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
    positions = _execute_insert(cur, dialect, rows)
    return tuple(
        RecordedEvent(
            conversation_id=request.conversation_id,
            version=row["version"],
            event_id=event.event_id,
            position=position,
            type=event.data.type,
            schema_version=event.data.schema_version,
            recorded_at=now,
            data=event.data,
            meta=event.meta,
            data_digest=event.digest,
            chain=link,
        )
        for event, row, link, position in zip(request.events, rows, links, positions, strict=True)
    )


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
