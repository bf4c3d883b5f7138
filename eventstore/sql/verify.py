"""Verification: reads a stream row by row, as it is stored, and recomputes its chain."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any
from uuid import UUID

from eventstore.blobs import read_blob, stub_of
from eventstore.errors import BlobDamaged, BlobNotFound, ConversationDamaged, KeyUnavailable
from eventstore.events import BlobRef, Erasure, ToolResult
from eventstore.events.codec import decode
from eventstore.events.own import UNINTERPRETED, class_of
from eventstore.security.hash_chain import (
    Problem,
    ProblemKind,
    Verification,
    chain_start,
    chain_step,
    commit_to,
    fork_start,
    microseconds_of,
    unwrapped,
)
from eventstore.security.sealing import DATA, SEALED, SealingKey, key_of, opened
from eventstore.sql.backend import (
    AnyConnection,
    Backend,
    backend_of,
    cursor,
    fetch,
    keys_of,
    text_out,
)
from eventstore.sql.read import chain_at
from eventstore.sql.streams import (
    count_events,
    descendants,
    fork_point,
    get_stream,
    lineage,
    next_ids,
    without_row,
)
from eventstore.sql.transactions import Transactions

__all__ = ["Progress", "verify", "verify_stream"]

_PAGE = 500
_IDS = 1_000
_COLUMNS = (
    "version, {event_id}, {type}, schema_version, {recorded_at}, {data}, {meta}, salt, "
    "data_digest, chain, {place}"
)
_ROWS = (
    f"SELECT {_COLUMNS} FROM events "  # noqa: S608 - a constant of this module
    "WHERE conversation_id = :conversation_id AND version > :after "
    "ORDER BY version LIMIT :page_size"
)
_HEAD = """
    SELECT version, chain, {tenant_id}, {user_id}, {parent_conversation_id}, parent_version, {key}
    FROM conversations WHERE conversation_id = :conversation_id
    """
_RECEIPTS = (
    f"SELECT {_COLUMNS} FROM events WHERE conversation_id = :conversation_id "  # noqa: S608 - likewise
    "AND type = 'erasure' AND data IS NOT NULL"
)

_ERASURES = """
    SELECT {erasure_id}, first_version, last_version FROM erased_versions
    WHERE conversation_id = :conversation_id
    UNION ALL SELECT {erasure_id}, 1, 0 FROM erasures WHERE conversation_id = :conversation_id
    """

_FORKED_OTHERWISE = (
    "tenant, user, parent, the parent's chain at the fork or the first event's header has changed "
    "since the fork was created"
)
_STARTED_OTHERWISE = (
    "tenant, user, parent, key or the first event's header has changed since the conversation began"
)

Progress = Callable[[int, int], None]
"""Called after each conversation with the number of events read so far and the total."""


def verify(
    transactions: Transactions, conversation_id: UUID | None, progress: Progress | None = None
) -> Verification:
    """Verify one conversation or all, each in one transaction with its own snapshot.

    Problems of events that a fork shares are reported for the fork as well.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    count, events, problems, total = 0, 0, [], 0
    types: Counter[Any] = Counter()
    if progress is not None:
        with transactions.reading() as connection:
            total = count_events(connection)
    ids = _all_ids(transactions) if conversation_id is None else [conversation_id]
    for stream in ids:
        with transactions.reading(snapshot=True) as connection:
            seen, found = verify_stream(connection, stream, types)
            if conversation_id is not None:
                if not seen and not found:
                    get_stream(connection, stream)
                more, shared = _shared(connection, stream, types)
                seen, found = seen + more, shared + found
            else:
                found += _reached(connection, found)
        count, events = count + 1, events + seen
        problems.extend(found)
        if progress is not None:
            progress(events, max(total, events))
    return Verification(count, events, tuple(problems), _unregistered(types))


def _shared(
    connection: AnyConnection, fork: UUID, types: Counter[Any]
) -> tuple[int, list[Problem]]:
    """Verify what a fork shares; return how many events were read, and the problems."""
    events, problems = 0, []
    with suppress(ConversationDamaged):  # already reported by `verify_stream`
        for holder, version in lineage(connection, fork):
            seen, found = verify_stream(connection, holder, types)
            events += seen
            problems += [_on_fork(fork, each) for each in found if each.version <= version]
    return events, problems


def _reached(connection: AnyConnection, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems that a conversation's forks share with it."""
    if not problems:
        return []
    return [
        _on_fork(fork, each)
        for fork, version in descendants(connection, problems[0].conversation_id)
        for each in problems
        if each.version <= version
    ]


def _unregistered(types: Counter[Any]) -> dict[str, int]:
    names = {each: str(text_out(_readable(each))) for each in types}
    known = {each for each, name in names.items() if name in UNINTERPRETED or class_of(name)}
    return {names[each]: count for each, count in types.items() if each not in known}


def _readable(kind: Any) -> Any:
    return kind.decode(errors="replace") if isinstance(kind, bytes) else kind


def _on_fork(fork: UUID, problem: Problem) -> Problem:
    detail = f"shared with {problem.conversation_id}: {problem.detail}"
    return replace(problem, conversation_id=fork, detail=detail)


def _all_ids(transactions: Transactions) -> Iterator[UUID]:
    after: UUID | None = None
    while True:
        with transactions.reading() as connection:
            page = next_ids(connection, after, _IDS)
            lost = [] if page else without_row(connection)
        yield from page or lost
        if not page:
            return
        after = page[-1]


def verify_stream(
    connection: AnyConnection, conversation_id: UUID, types: Counter[Any]
) -> tuple[int, list[Problem]]:
    """Return how many events the stream has, and their problems; count the types in ``types``.

    Reading stops at the first break of the chain: later events cannot be judged. Run this in one
    transaction with a snapshot, so that a concurrent append does not look like a difference.
    """
    backend = backend_of(connection)
    owner = {"conversation_id": backend.from_id(conversation_id)}
    head = next(iter(fetch(connection, _as_stored(_HEAD, backend), owner)), None)
    problems: list[Problem] = []
    first, chain = _begin(connection, conversation_id, _start(backend, conversation_id, head))
    version = first
    erased = cache(partial(_erased, connection, conversation_id))
    receipts, place = _Receipts(), tuple[int, ...]()

    def found(at: int, kind: ProblemKind, detail: str) -> None:
        problems.append(Problem(conversation_id, at, kind, detail))

    for row in _rows(cursor(connection), backend, conversation_id, first):
        version += 1
        if row[0] != version:
            found(version, "gap", f"version {version} is missing, the next one is {row[0]}")
            return version - first, problems
        types[row[2]] += 1
        for kind, detail in _row_problems(connection, conversation_id, row, erased):
            found(version, kind, detail)
        for at, detail in receipts.add(row):
            found(at, "data_returned", detail)
        # The feed's order is assigned by the database, so the chain cannot cover it.
        before, place = place, tuple(map(int, row[10:]))
        if place <= before and (place[:1] == before[:1] or not backend.is_distributed):
            found(version, "place_altered", "its place in the feed is before its predecessor's")
        link = _step(backend, chain, row)
        if link is None or (link != row[9] and version > first + 1):
            found(version, "header_altered", "the chain value does not follow from the event")
            return version - first, problems
        if link != row[9] and head is not None:
            found(version, "start_altered", _FORKED_OTHERWISE if first else _STARTED_OTHERWISE)
        # If the start is no longer known, the chain continues from the first event.
        chain = row[9]
    if not problems:  # Otherwise they would only say the same again.
        recorded = _recorded_erasures(connection, conversation_id)
        for at, altered, detail in receipts.differences(recorded):
            found(at, altered, detail)
    for at, detail in _head_problems(head, version, chain):
        found(at, "head_differs", detail)
    return version - first, problems


def _begin(connection: AnyConnection, conversation_id: UUID, start: bytes) -> tuple[int, bytes]:
    """Return the version before a stream's first own event, and the chain value that it follows.

    For a fork it includes the parent's chain, which erasures in the parent leave unchanged.
    """
    try:
        parent = fork_point(connection, conversation_id)
        shared = None if parent is None else chain_at(connection, *parent)
    except ConversationDamaged:
        return 0, start
    if parent is None:
        return 0, start
    return parent.version, fork_start(start, b"" if shared is None else bytes(memoryview(shared)))


def _start(backend: Backend, conversation_id: UUID, head: Any) -> bytes:
    """Return the start of the chain by a row of `conversations`; empty if the row is unusable."""
    if head is None:
        return b""
    tenant_id, user_id, parent, parent_version, key = head[2:]
    try:
        return chain_start(
            conversation_id,
            text_out(_text(tenant_id)),
            text_out(_text(user_id)),
            None if parent is None else backend.to_id(_text(parent)),
            parent_version,
            text_out(_text(key)),
        )
    except (AttributeError, TypeError, ValueError):
        return b""


def _head_problems(head: Any, version: int, chain: bytes) -> Iterator[tuple[int, str]]:
    if head is None:
        if version:
            yield version, "the events have no row in conversations"
    elif head[0] != version:
        lowest = min(head[0], version) if isinstance(head[0], int) else version
        detail = f"the conversation is at version {head[0]}, but its last event is {version}"
        yield lowest + 1, detail
    elif head[1] != chain:
        yield version, "the conversation's chain value is not its last event's"


@cache
def _as_stored(query: str, backend: Backend) -> str:
    """Return a query that can read its columns in braces, whatever they hold."""
    columns = {name: backend.as_stored(name) for name in re.findall("{([a-z_]+)}", query)}
    columns["place"] = ", ".join(f"({name})::text" for name in backend.feed.place)
    return backend.sql(query.format(**columns))


def _rows(cur: Any, backend: Backend, conversation_id: UUID, after: int) -> Iterator[Any]:
    while True:
        cur.execute(
            _as_stored(_ROWS, backend),
            {
                "conversation_id": backend.from_id(conversation_id),
                "after": after,
                "page_size": _PAGE,
            },
        )
        rows = cur.fetchall()
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


def _step(backend: Backend, chain: bytes, row: Any) -> bytes | None:
    """Return the chain value that follows from a row, or None if it cannot be an event."""
    version, event_id, kind, schema_version, at, _data, meta, _salt, digest, _chain = row[:10]
    try:
        return chain_step(
            chain,
            version,
            backend.to_id(_text(event_id)).bytes,
            _text(kind),
            schema_version,
            microseconds_of(backend.to_time(_text(at))),
            _text(meta),
            bytes(memoryview(digest)),
        )
    except (AttributeError, TypeError, ValueError):
        return None


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _commits(salt: Any, data: Any, digest: Any) -> bool:
    try:
        return commit_to(bytes(memoryview(salt)), _text(data)) == bytes(memoryview(digest))
    except (TypeError, ValueError):
        return False


def _erased(connection: AnyConnection, conversation_id: UUID) -> Mapping[int, int]:
    """Return the versions that receipts name, each with the version of the last such receipt."""
    backend = backend_of(connection)
    owner = {"conversation_id": backend.from_id(conversation_id)}
    named: dict[int, int] = {}
    for row in fetch(connection, _as_stored(_RECEIPTS, backend), owner):
        if (receipt := _receipt_in(row)) is not None:
            named.update((each, max(row[0], named.get(each, 0))) for each in receipt.versions)
    return named


def _receipt_in(row: Any) -> Erasure | None:
    """Return the receipt of an erasure in a row of events, if it is as written."""
    if not _commits(row[7], row[5], row[8]):
        return None
    receipt = decode(Erasure.type, row[3], unwrapped(_text(row[5]))[0])
    return receipt if isinstance(receipt, Erasure) else None


class _Receipts:
    """The receipts of a stream's erasures, compared with its payloads and with the tables."""

    def __init__(self) -> None:
        self._present: set[int] = set()
        self._receipts: dict[str, tuple[int, Erasure]] = {}

    def add(self, row: Any) -> Iterator[tuple[int, str]]:
        """Note the next event; yield the earlier versions that it says are erased, but are not."""
        version, kind, data = row[0], row[2], row[5]
        if data is None:
            return
        is_receipt = kind in (Erasure.type, Erasure.type.encode())
        if is_receipt and (receipt := _receipt_in(row)) is not None:
            self._receipts[receipt.erasure_id] = version, receipt
            for each in sorted(self._present.intersection(receipt.versions)):
                yield each, f"there is a payload, but the receipt {version} says it is erased"
        self._present.add(version)

    def differences(
        self, recorded: Mapping[str, Collection[int]]
    ) -> Iterator[tuple[int, ProblemKind, str]]:
        """Yield the erasures that log and tables do not both record with the same versions."""
        for erasure_id, (version, receipt) in self._receipts.items():
            versions = recorded.get(erasure_id)
            if versions is None:
                yield version, "receipt_altered", f"erasures has no row for erasure {erasure_id}"
            elif {*versions} != {*receipt.versions}:
                detail = f"erased_versions has other versions for erasure {erasure_id}"
                yield version, "receipt_altered", detail
        for erasure_id in recorded.keys() - self._receipts.keys():
            detail = f"no event is the receipt of erasure {erasure_id}, which erasures records"
            yield min(recorded[erasure_id], default=1), "receipt_missing", detail


def _recorded_erasures(connection: AnyConnection, conversation_id: UUID) -> dict[str, set[int]]:
    """Return the versions of each erasure by the tables that permit it."""
    backend = backend_of(connection)
    owner = {"conversation_id": backend.from_id(conversation_id)}
    found: dict[str, set[int]] = {}
    for erasure_id, first, last in fetch(connection, _as_stored(_ERASURES, backend), owner):
        found.setdefault(str(_text(erasure_id)), set()).update(range(int(first), int(last) + 1))
    return found


def _row_problems(
    connection: AnyConnection,
    conversation_id: UUID,
    row: Any,
    erased: Callable[[], Mapping[int, int]],
) -> Iterator[tuple[ProblemKind, str]]:
    data, salt, digest = row[5], row[7], row[8]
    if data is None:
        if erased().get(row[0], 0) <= row[0]:
            yield "data_missing", "the payload is gone, but no erasure names it"
        return
    if not _commits(salt, data, digest):
        yield "data_altered", "the payload does not match its digest"
        return
    try:
        text, key = _opened(connection, conversation_id, row[1], _text(data))
    except ValueError as error:
        yield "data_altered", str(error)
        return
    blob = None if text is None else _blob_of(row[2], row[3], text)
    if blob is None:
        return
    try:
        content = read_blob(connection, conversation_id, blob.digest, key)
    except BlobNotFound:
        yield "blob_missing", f"blob {blob.digest} is missing"
        return
    except BlobDamaged:
        content = b""
    if hashlib.sha256(content).hexdigest() != blob.digest:
        yield "blob_altered", f"the bytes of blob {blob.digest} do not match its digest"


def _opened(
    connection: AnyConnection, conversation_id: UUID, event_id: Any, data: str
) -> tuple[str | None, SealingKey | None]:
    """Return a payload's text and its sealing key, if any; no text if its key is unavailable."""
    keys = keys_of(connection)
    if not data.startswith(SEALED):
        return data, None
    if keys is None:
        return None, None
    try:
        key = key_of(keys, conversation_id, data)
    except KeyUnavailable:
        return None, None
    return opened(key, DATA, str(_text(event_id)), data), key


def _blob_of(kind: str | bytes, schema_version: int, data: str) -> BlobRef | None:
    data, _ = unwrapped(data)
    stub = stub_of(data)
    tool_result = kind in (ToolResult.type, ToolResult.type.encode())
    if stub is None and tool_result and '"blob":' in data:
        payload = decode(ToolResult.type, schema_version, data)
        return payload.blob if isinstance(payload, ToolResult) else None
    return stub
