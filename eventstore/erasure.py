"""Erasure: the payloads of a conversation, its blobs and every row derived from them, for good.

Headers, digests and chain stay, so that `verify` still proves order and completeness. What a
projection made of the payloads is deleted in the same transaction, from the tables of every
generation, and is folded anew from the erased events when it is next read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, column, delete, insert, inspect, select, table, update
from sqlalchemy import Table as SqlTable

from eventstore.blobs import stub_of
from eventstore.errors import ConversationNotFound, EventsShared, InvalidEvent, KeyUnavailable
from eventstore.events import Erasure, ToolResult
from eventstore.events.codec import decode
from eventstore.events.records import NewEvent
from eventstore.events.values import Quoting
from eventstore.ids import new_id
from eventstore.integrity import unwrapped
from eventstore.quoting import Outdated, Survey, copies_in, ranges, survey, told
from eventstore.retired_keys import retire
from eventstore.sealing import DATA, SEALED, Keyring, key_of, opened
from eventstore.sql.append import append
from eventstore.sql.backend import AnyConnection, Statement, backend_of, cursor, keys_of
from eventstore.sql.lineage import descendants, fork_point
from eventstore.sql.migrate import schema_stays
from eventstore.sql.requests import ANY, Append, prepare
from eventstore.sql.schema import SHARED_TABLES, metadata_for
from eventstore.sql.streams import forget
from eventstore.sql.traces import clear_statistics
from eventstore.sql.transactions import Transactions
from eventstore.sql.types import Id

__all__ = [
    "ErasureReceipt",
    "erase",
    "erase_in",
    "erasure_count",
    "erasure_lock",
    "tables_with_content",
]

_ATTEMPTS = 3  # in which others may come between looking and erasing
_DIGEST = re.compile("[0-9a-f]{64}")
_ERASURES = Statement("SELECT count(*) FROM erasures WHERE conversation_id = ANY(:ids)")


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """What was erased; the same facts stand in the stream as an ``erasure`` event.

    ``versions`` lost their payload; ``blob_count`` blobs of together ``blob_bytes`` bytes went;
    ``version`` is the receipt's own. ``derived`` are those of ``versions`` that went along, as they
    held the words of those asked for; ``quoted_by`` hold such words still. Unless ``log_emptied``,
    a reader has kept erased pages in SQLite's file or its write-ahead log.
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


def erasure_lock(connection: AnyConnection, *conversations: UUID, exclusive: bool = False) -> None:
    """Keep erasing and projecting of conversations apart until the transaction ends.

    Without it a projection could write, after the erasure, what it had read before. SQLite needs
    none: it has one writer at a time.
    """
    keys = [str(conversation_id) for conversation_id in conversations]
    backend_of(connection).lock(connection, "erasures", keys, exclusive=exclusive)


def erasure_count(connection: AnyConnection, conversations: Sequence[UUID]) -> int:
    """Return how often any of these was erased: the same as before, if nothing is gone since."""
    backend, run = backend_of(connection), cursor(connection)
    ids = [backend.from_id(conversation_id) for conversation_id in conversations]
    run.execute(_ERASURES.on(backend), {"ids": backend.array(ids)})
    [(found,)] = run.fetchall()
    run.close()
    return int(found)


def erase_in(
    store: Transactions,
    conversation_id: UUID,
    *,
    reason: str,
    now: datetime,
    versions: Iterable[int] | None,
    requested_by: str | None,
    derived: bool,
) -> ErasureReceipt:
    """Erase payloads in a transaction of its own, as `erase` does.

    What goes along with some versions is looked for before, in a transaction that reads. If the
    conversation has moved on meanwhile it is looked for again, and after some attempts under the
    lock.
    """
    wanted = None if versions is None else frozenset(versions)
    erasing = partial(
        erase,
        conversation_id=conversation_id,
        reason=reason,
        now=now,
        versions=wanted,
        requested_by=requested_by,
        derived=derived,
    )
    for _ in range(0 if wanted is None else _ATTEMPTS):
        with store.reading() as connection:
            erasures = erasure_count(connection, [conversation_id])
            found = survey(connection, conversation_id, wanted, erasures=erasures, derived=derived)
        with suppress(Outdated), store.writing() as connection:
            return erasing(connection, found=found)
    with store.writing() as connection:
        return erasing(connection)


def erase(
    connection: Connection,
    conversation_id: UUID,
    *,
    reason: str,
    now: datetime,
    versions: Collection[int] | None = None,
    requested_by: str | None = None,
    derived: bool = True,
    found: Survey | None = None,
) -> ErasureReceipt:
    """Erase payloads of a conversation, all or those of ``versions``, in the caller's transaction.

    Earlier receipts are kept. Erasing again finds nothing and leaves another receipt. Forks lose
    what they share, and what of their own copies it, for which they get a receipt of theirs. With
    ``versions``, what copies them goes along, unless ``derived`` is false; ``found`` is what an
    earlier transaction has found of it, without which it is looked for here.

    Raises:
        Outdated: The conversation has moved on since then; nothing was written.
        ConversationNotFound: No conversation has this id.
        InvalidEvent: No reason was given.
        EventsShared: A version is one that the conversation shares with the one it was forked from.
        KeyUnavailable: The conversation is sealed, and there are no keys.
    """
    if not reason.strip():
        raise InvalidEvent("an erasure needs a reason")
    tables = metadata_for(connection.dialect.name).tables
    streams = tables["conversations"]
    schema_stays(connection)
    erasure_lock(connection, conversation_id, exclusive=True)
    locked = connection.execute(
        select(streams.c.version, streams.c.key_id)
        .where(streams.c.conversation_id == conversation_id)
        .with_for_update()
    ).first()
    if locked is None:
        raise ConversationNotFound(conversation_id)
    _require_own(connection, conversation_id, versions)
    if locked.key_id is not None and keys_of(connection) is None:
        raise KeyUnavailable(conversation_id, "the store was opened without keys")
    erasures = erasure_count(connection, [conversation_id])
    if found is None:
        found = survey(connection, conversation_id, versions, erasures=erasures, derived=derived)
    elif (found.version, found.erasures) != (locked.version, erasures):
        raise Outdated
    if versions is None and locked.key_id is not None:
        retire(connection, conversation_id, locked.key_id, now)
    erased = tuple(sorted({*found.chosen, *found.copies}))
    forks = _copies_in_forks(connection, conversation_id, erased, derived)
    erasure_id = new_id()
    asked = {"erased_at": now, "reason": reason, "requested_by": requested_by}
    connection.execute(
        insert(tables["erasures"]).values(
            conversation_id=conversation_id, erasure_id=erasure_id, **asked
        )
    )
    _name(connection, tables["erased_versions"], conversation_id, erasure_id, erased)
    _erase_events(connection, tables["events"], conversation_id, erased)
    sizes = _erase_blobs(connection, tables, conversation_id)
    forget(connection, conversation_id)
    _erase_projected(connection, tables, conversation_id)
    for fork, copies in forks.items():
        erase(
            connection,
            fork,
            reason=reason,
            now=now,
            versions=copies,
            requested_by=requested_by,
            derived=derived,
        )
    clear_statistics(connection, tables_with_content(connection))
    receipt = Erasure(
        erasure_id=str(erasure_id),
        reason=reason,
        versions=erased,
        event_count=len(erased),
        blob_count=len(sizes),
        blob_bytes=sum(sizes),
        requested_by=requested_by,
        derived=told(found.copies),
        quoted_by=told(found.quoting),
    )
    request = Append(conversation_id, prepare([NewEvent(receipt)], None, 1 << 30), ANY)
    done = append(connection, request, now)
    return ErasureReceipt(
        conversation_id,
        erasure_id,
        now,
        reason,
        erased,
        len(sizes),
        sum(sizes),
        done.version,
        receipt.derived,
        receipt.quoted_by,
    )


def _require_own(
    connection: Connection, conversation_id: UUID, versions: Collection[int] | None
) -> None:
    parent = None if versions is None else fork_point(connection, conversation_id)
    if parent is not None and min(versions or (), default=parent.version + 1) <= parent.version:
        raise EventsShared(conversation_id, *parent)


def _copies_in_forks(
    connection: Connection, conversation_id: UUID, erased: Sequence[int], derived: bool
) -> dict[UUID, list[int]]:
    """Return the forks that share some of these versions, each with what of its own copies them.

    They cannot be projected from now on until the transaction ends; nobody makes another one, as
    the conversation's row is locked.
    """
    found: dict[UUID, list[int]] = {}
    for fork, version in descendants(connection, conversation_id):
        shared = [each for each in erased if each <= version]
        if not shared:
            continue
        erasure_lock(connection, fork, exclusive=True)
        copies = copies_in(connection, fork, shared) if derived else []
        point = fork_point(connection, fork)
        least = point.version if point else 0
        found[fork] = [each for each in copies if each > least]
    return found


def _name(
    connection: Connection,
    named: SqlTable,
    conversation_id: UUID,
    erasure_id: UUID,
    versions: Sequence[int],
) -> None:
    """Name the versions to the triggers, which let no other lose its payload."""
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
        connection.execute(insert(named), rows)


def _erase_events(
    connection: Connection, events: SqlTable, conversation_id: UUID, chosen: Sequence[int]
) -> None:
    for start in range(0, len(chosen), 500):
        connection.execute(
            update(events)
            .where(
                events.c.conversation_id == conversation_id,
                events.c.version.in_(chosen[start : start + 500]),
            )
            .values(data=None, salt=None)
        )


def _erase_blobs(
    connection: Connection, tables: Mapping[str, SqlTable], conversation_id: UUID
) -> list[int]:
    """Delete the blobs that no remaining payload refers to, and return their sizes in bytes."""
    blobs, events = tables["blobs"], tables["events"]
    kept = connection.execute(
        select(blobs.c.digest, blobs.c.size_bytes).where(blobs.c.conversation_id == conversation_id)
    ).all()
    if not kept:
        return []
    rows = connection.execute(
        select(events.c.type, events.c.schema_version, events.c.data, events.c.event_id).where(
            events.c.conversation_id == conversation_id, events.c.data.is_not(None)
        )
    )
    keys = keys_of(connection)
    used = {name for row in rows for name in _names(keys, conversation_id, *row)}
    gone = {digest: int(size) for digest, size in kept if digest not in used}
    for digest in gone:
        connection.execute(
            delete(blobs).where(
                blobs.c.conversation_id == conversation_id, blobs.c.digest == digest
            )
        )
    return list(gone.values())


def _names(
    keys: Keyring | None,
    conversation_id: UUID,
    kind: str,
    schema_version: int,
    data: str,
    event_id: UUID,
) -> list[str]:
    """Return under which names the blobs of a payload are kept."""
    if not data.startswith(SEALED):
        return _digests(kind, schema_version, data)
    key = key_of(keys, conversation_id, data)
    text = opened(key, DATA, str(event_id), data)
    if key is None or text is None:
        return []
    return [key.name_of(digest) for digest in _digests(kind, schema_version, text)]


def _digests(kind: str, schema_version: int, data: str) -> list[str]:
    data, _ = unwrapped(data)
    stub = stub_of(data)
    if stub is not None:
        return [stub.digest]
    if kind != ToolResult.type:
        return []
    payload = decode(kind, schema_version, data)
    if isinstance(payload, ToolResult):
        return [payload.blob.digest] if payload.blob else []
    # Of a version that this code does not know: keep whatever it may refer to.
    return _DIGEST.findall(data)


def _erase_projected(
    connection: Connection, tables: Mapping[str, SqlTable], conversation_id: UUID
) -> None:
    heads = tables["projection_heads"]
    connection.execute(delete(heads).where(heads.c.conversation_id == conversation_id))
    derived = _projected(connection)
    for name in derived:
        rows = table(name, column("conversation_id", Id))
        connection.execute(delete(rows).where(rows.c.conversation_id == conversation_id))


def tables_with_content(connection: Connection) -> list[str]:
    """Return the tables that hold what was said, or what was made of it."""
    log = ("events", "blobs", "import_sources", "projection_heads")
    return [*log, *_projected(connection)]


def _projected(connection: Connection) -> list[str]:
    projections = metadata_for(connection.dialect.name).tables["projections"]
    registered = connection.execute(select(projections.c.tables)).scalars().all()
    derived = [name for names in registered for name in json.loads(names)]
    inspector = inspect(connection)
    return derived + [name for name in SHARED_TABLES if inspector.has_table(name)]
