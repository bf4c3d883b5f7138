"""Moving streams from known heads: the events go in, each chained to the one before it.

The one way in which events are written. Whoever holds a stream's lock knows its head; a store also
remembers the heads that it saw last, and then the database confirms or refuses them: a stream that
has moved meanwhile is left as it is. All streams of a call are written by a few statements,
however many events they get.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain as concatenated
from typing import Any
from uuid import UUID

from eventstore.events.records import RecordedEvent
from eventstore.integrity import chain_step, microseconds_of
from eventstore.sealing import SealingKey
from eventstore.sql.dialect import Dialect, for_psycopg
from eventstore.sql.requests import Anchor, Append, Appended, Prepared
from eventstore.sql.types import time_to_text

__all__ = ["Head", "Step", "advance"]


@dataclass(slots=True)
class Head:
    """What `conversations` says of a stream."""

    version: int
    chain: bytes
    epoch: int
    tenant_id: str | None
    user_id: str | None
    stream: str
    """The conversation's id as text, which both databases take."""
    key: SealingKey | None = None
    """What its events are sealed with, as far as that is known."""
    line: object = field(default_factory=object)
    """The same for all heads that a store has appended from one to the next."""


class Step:
    """One stream's way from a head, by one append or by several."""

    __slots__ = (
        "chains",
        "conversation_id",
        "events",
        "head",
        "known",
        "microseconds",
        "now",
        "positions",
    )

    def __init__(self, conversation_id: UUID, known: Head, now: datetime) -> None:
        self.conversation_id = conversation_id
        self.known = self.head = known
        self.now, self.microseconds = now, microseconds_of(now)
        self.events: list[Prepared] = []
        self.chains: list[bytes] = []
        self.positions: Sequence[int] | None = None
        """Those of the events, once `advance` has written them; None if the stream has moved."""

    def add(self, request: Append) -> slice:
        """Chain an append's events to the head, and return their places within the step."""
        head, chains, microseconds = self.head, self.chains, self.microseconds
        version, chain = head.version, head.chain
        for event in request.events:
            version += 1
            data = event.data
            chain = chain_step(
                chain,
                version,
                event.id_bytes,
                data.type,
                data.schema_version,
                microseconds,
                event.meta_text,
                event.digest,
            )
            chains.append(chain)
        self.head = Head(
            version,
            chain,
            head.epoch,
            head.tenant_id,
            head.user_id,
            head.stream,
            head.key,
            head.line,
        )
        start = len(self.events)
        self.events.extend(request.events)
        return slice(start, len(self.events))

    def appended(self, places: slice) -> Appended:
        """Return the result of the append at these places, once it is written."""
        recorded = partial(self._recorded, places)
        version = self.known.version + places.stop
        anchor = Anchor(version, self.chains[places.stop - 1], self.known.line)
        size = 0
        for event in self.events[places]:
            size += len(event.text) if event.blob is None else event.blob.size_bytes
        return Appended(self.conversation_id, version, recorded, anchor, size)

    def _recorded(self, places: slice) -> tuple[RecordedEvent, ...]:
        assert self.positions is not None  # noqa: S101 - it is written
        return tuple(
            RecordedEvent(
                self.conversation_id,
                version,
                event.event_id,
                position,
                event.data.type,
                event.data.schema_version,
                self.now,
                event.data,
                event.meta,
                event.digest,
                chain,
            )
            for version, (event, position, chain) in enumerate(
                zip(self.events[places], self.positions[places], self.chains[places], strict=True),
                start=self.known.version + places.start + 1,
            )
        )


def advance(cur: Any, dialect: Dialect, steps: Sequence[Step], *, wait: bool = True) -> None:
    """Take the steps whose streams are still at their known heads, in the caller's transaction.

    All steps are of one time and of different streams. Each learns the positions of its events.
    On PostgreSQL a single step waits for whoever has locked its stream, unless told not to; of
    many, those whose streams are locked are not taken, so that the others do not wait for them.
    """
    if dialect.is_sqlite:
        _on_sqlite(cur, steps)
    else:
        _on_postgresql(cur, steps, wait)


_SQLITE_HEAD = """
    UPDATE conversations SET version = ?, chain = ?, last_active_at = ?
    WHERE conversation_id = ? AND version = ? AND chain = ? AND writer_epoch = ?
    """
_SQLITE_EVENTS = """
    INSERT INTO events (conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, salt, data_digest, chain)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    """


def _on_sqlite(cur: Any, steps: Sequence[Step]) -> None:
    rows: list[tuple[Any, ...]] = []
    taken: list[Step] = []
    now = time_to_text(steps[0].now)
    for step in steps:
        known, head = step.known, step.head
        cur.execute(
            _SQLITE_HEAD,
            (head.version, head.chain, now, head.stream, known.version, known.chain, known.epoch),
        )
        if cur.rowcount == 1:
            rows += _sqlite_rows(step, now)
            taken.append(step)
    if not rows:
        return
    if len(rows) == 1:
        cur.execute(_SQLITE_EVENTS, rows[0])
        last = cur.lastrowid
    else:
        cur.executemany(_SQLITE_EVENTS, rows)
        cur.execute("SELECT last_insert_rowid()")
        last = cur.fetchone()[0]
    # The only writer: positions are counted without a gap up to the last row.
    position = last - len(rows) + 1
    for step in taken:
        step.positions = range(position, position + len(step.events))
        position += len(step.events)


def _sqlite_rows(step: Step, now: str) -> list[tuple[Any, ...]]:
    stream = step.known.stream
    return [
        (
            stream,
            version,
            event.id_text,
            event.data.type,
            event.data.schema_version,
            now,
            event.text,
            event.meta_text,
            event.salt,
            event.digest,
            chain,
        )
        for version, (event, chain) in enumerate(
            zip(step.events, step.chains, strict=True), start=step.known.version + 1
        )
    ]


# Where the events go in the feed. `tx_id` never falls within a stream: a transaction that began
# first may lock the stream last, and its events would be handed out before those they follow.
_FEED_PLACE = """
    (SELECT max(epoch) FROM store_epochs) AS epoch,
    GREATEST(pg_current_xact_id(), (
        SELECT last.tx_id FROM events AS last
        WHERE last.conversation_id = stream.conversation_id AND last.version = {known_version}
        AND last.epoch = (SELECT max(epoch) FROM store_epochs))) AS tx_id
    """
_MOVE_ONE = f"""
    WITH moved AS (
        UPDATE conversations AS stream
        SET version = :version, chain = :heads, last_active_at = :now
        WHERE conversation_id = :stream AND version = :known_version AND chain = :known_heads
            AND writer_epoch = :known_epoch
        RETURNING 1 AS step, conversation_id, {_FEED_PLACE.format(known_version=":known_version")}
    )
    """  # noqa: S608 - built from constants of this module
# Nobody waits here, so that two groups cannot wait for each other.
_MOVE_MANY = f"""
    WITH given AS (
        SELECT * FROM unnest(
            (:stream)::uuid[], (:version)::bigint[], (:known_version)::bigint[],
            (:known_epoch)::bigint[]
        ) WITH ORDINALITY AS given (conversation_id, version, known_version, known_epoch, step)
    ), locked AS (
        SELECT conversation_id FROM conversations JOIN given USING (conversation_id)
        FOR UPDATE OF conversations SKIP LOCKED
    ), moved AS (
        UPDATE conversations AS stream
        SET version = given.version, chain = substr(:heads, given.step::int * 32 - 31, 32),
            last_active_at = :now
        FROM given JOIN locked USING (conversation_id)
        WHERE stream.conversation_id = given.conversation_id
            AND stream.version = given.known_version
            AND stream.chain = substr(:known_heads, given.step::int * 32 - 31, 32)
            AND stream.writer_epoch = given.known_epoch
        RETURNING given.step, stream.conversation_id,
            {_FEED_PLACE.format(known_version="given.known_version")}
    )
    """  # noqa: S608 - built from constants of this module
# JSON holds no control character as it is, so that U+001E can stand between two texts. The order
# of insertion is that of the positions, and so that of the feed within a transaction.
_INSERT = """
    INSERT INTO events (conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, salt, data_digest, chain, epoch, tx_id)
    SELECT moved.conversation_id, given.version, given.event_id, given.type,
        given.schema_version, :now, given.data::json, given.meta::json,
        substr(:salts, given.n::int * 16 - 15, 16), substr(:digests, given.n::int * 32 - 31, 32),
        substr(:chains, given.n::int * 32 - 31, 32), moved.epoch, moved.tx_id
    FROM unnest(
        (:steps)::int[], (:versions)::bigint[], (:ids)::uuid[], (:types)::text[],
        (:schema_versions)::int[], string_to_array(:data, chr(30)), string_to_array(:meta, chr(30))
    ) WITH ORDINALITY AS given (step, version, event_id, type, schema_version, data, meta, n)
    JOIN moved USING (step)
    ORDER BY given.n
    RETURNING conversation_id::text, position
    """
_POSTGRESQL_ONE = for_psycopg(_MOVE_ONE + _INSERT)
_POSTGRESQL_MANY = for_psycopg(_MOVE_MANY + _INSERT)


def _on_postgresql(cur: Any, steps: Sequence[Step], wait: bool) -> None:
    """One statement, which is whole or nothing by itself."""
    parameters, alone = _events(steps), wait and len(steps) == 1
    if alone:
        known, head = steps[0].known, steps[0].head
        parameters |= {
            "stream": head.stream,
            "version": head.version,
            "heads": head.chain,
            "known_version": known.version,
            "known_heads": known.chain,
            "known_epoch": known.epoch,
        }
    else:
        parameters |= {
            "stream": _array([step.head.stream for step in steps]),
            "version": _array([str(step.head.version) for step in steps]),
            "heads": b"".join([step.head.chain for step in steps]),
            "known_version": _array([str(step.known.version) for step in steps]),
            "known_heads": b"".join([step.known.chain for step in steps]),
            "known_epoch": _array([str(step.known.epoch) for step in steps]),
        }
    cur.execute(_POSTGRESQL_ONE if alone else _POSTGRESQL_MANY, parameters)
    positions: dict[str, list[int]] = {}
    for stream, position in cur.fetchall():
        positions.setdefault(stream, []).append(position)
    for step in steps:
        step.positions = positions.get(step.head.stream)


def _events(steps: Sequence[Step]) -> dict[str, Any]:
    events = [event for step in steps for event in step.events]
    numbers = concatenated.from_iterable(
        [str(number)] * len(step.events) for number, step in enumerate(steps, start=1)
    )
    versions = concatenated.from_iterable(
        range(step.known.version + 1, step.head.version + 1) for step in steps
    )
    return {
        "now": steps[0].now,
        "steps": _array(numbers),
        "versions": _array(map(str, versions)),
        "ids": _array([event.id_text for event in events]),
        "types": _array([_quoted(event.data.type) for event in events]),
        "schema_versions": _array([str(event.data.schema_version) for event in events]),
        "data": "\x1e".join([event.text for event in events]),
        "meta": "\x1e".join([event.meta_text for event in events]),
        "salts": b"".join([event.salt for event in events]),
        "digests": b"".join([event.digest for event in events]),
        "chains": b"".join([chain for step in steps for chain in step.chains]),
    }


def _array(values: Iterable[str]) -> str:
    """Return PostgreSQL's text of an array; the driver takes ten times as long for a list."""
    return "{" + ",".join(values) + "}"


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
