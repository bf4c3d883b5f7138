"""The feed of all events of the store, in an order in which none is ever skipped.

SQLite has one writer at a time, so ``position`` is the order of commits. PostgreSQL has many, and
assigns positions before they commit: ordering by position would skip events that commit late. There
the order is ``(epoch, tx_id, position)``, and only events below the snapshot's ``xmin`` are
returned: every transaction below it has ended, so no event can still appear there. Transaction ids
do not survive a dump and restore into another cluster, so the epoch increases when the cluster's
system identifier changes (`eventstore.sql.engines`).

One open transaction therefore holds back the feed of the whole PostgreSQL server; `delayed_events`
finds and names it. On SQLite nothing is ever held back.

A cursor is a place in that order and the first bytes of the chain value of the event there. Salts
are random, so a cursor identifies one history in any database: a cursor of another store, or of a
log that has been restored to an older state since, is detected instead of skipping events.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

from eventstore.errors import BlobDamaged, BlobNotFound, EventDamaged, InvalidCursor, KeyUnavailable
from eventstore.events.records import RecordedEvent
from eventstore.sql import vector_feed
from eventstore.sql.backend import (
    EVENT_COLUMNS,
    AnyConnection,
    FeedOrder,
    Nodes,
    Statement,
    backend_of,
    fetch,
    keys_of,
)
from eventstore.sql.read import VERSION, decode_rows
from eventstore.sql.vector_feed import DIGEST_BYTES, Vector, digest_of
from eventstore.telemetry.log import get_logger

__all__ = [
    "Behind",
    "DelayedEvents",
    "FeedPage",
    "Holder",
    "PassedEvents",
    "behind",
    "delayed_events",
    "feed_end",
    "gained",
    "holds",
    "read_feed",
]


UNREADABLE = (BlobDamaged, BlobNotFound, EventDamaged, KeyUnavailable)
"""The errors of an event that cannot be read; each names its conversation."""

_log = get_logger("eventstore")
_COLUMNS = len(EVENT_COLUMNS.split(","))
_EVENT = itemgetter(slice(_COLUMNS))
_NOTHING = "00" * DIGEST_BYTES
_PURGED = Statement(
    "SELECT 1 FROM purges WHERE :position BETWEEN first_position AND last_position LIMIT 1"
)
_OLDER_EPOCHS = "SELECT epoch FROM store_epochs WHERE epoch < %s"
_NUMBER = re.compile("[0-9]{1,19}")
_DIGEST = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class PassedEvents:
    """Events of a conversation that the feed passed because they cannot be read.

    Attributes:
        conversation_id: The conversation.
        first: The version of the first of them.
        last: The version of the last of them.
        count: How many there are.
        reason: Why the first one cannot be read.
    """

    conversation_id: UUID
    first: int
    last: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A page of the feed; pass ``cursor`` to get the next one, even if this one is empty.

    ``passed`` lists the events before the cursor that cannot be read, by conversation.
    """

    events: tuple[RecordedEvent, ...]
    cursor: str
    passed: tuple[PassedEvents, ...] = ()

    def __iter__(self) -> Iterator[RecordedEvent]:
        """Iterate over the events."""
        return iter(self.events)

    def __len__(self) -> int:
        """Return how many events the page holds."""
        return len(self.events)


@dataclass(frozen=True, slots=True)
class _FeedPlace:
    """An event's place in the feed, and the first bytes of its chain value."""

    numbers: tuple[int, ...]
    digest: str = _NOTHING

    @classmethod
    def of(cls, numbers: Sequence[Any], chain: Any) -> _FeedPlace:
        """Create a place from a row of the database; a damaged row's chain may be anything."""
        return cls(tuple(int(number) for number in numbers), digest_of(chain))

    def parameters(self, order: FeedOrder) -> dict[str, int]:
        """Return the numbers as parameters of the queries."""
        return dict(zip(order.place, self.numbers, strict=True))


def read_feed(
    connection: AnyConnection, after: str | None, limit: int, *, skip_unreadable: bool = False
) -> FeedPage:
    """Return the next events of the feed, in the caller's transaction.

    Events whose key is lost are passed, and with ``skip_unreadable`` all others that cannot be
    read; then the page goes on until it has an event, or the feed ends.

    Raises:
        InvalidCursor: ``after`` did not come from this store's feed, or the log has been restored
            to an older state since.
        EventDamaged, BlobNotFound, BlobDamaged, KeyUnavailable: An event cannot be read.
    """
    backend = backend_of(connection)
    order, cur = backend.feed, backend.reading(connection)
    passed: dict[UUID, PassedEvents] = {}
    if (nodes := backend.nodes(connection)) is not None:
        vector = _vector(nodes, after)
        while True:
            try:
                found = vector_feed.page(nodes, vector, limit)
            except InvalidCursor as error:
                raise InvalidCursor(str(after)) from error
            vector = found.after
            events = _decoded(connection, cur, found.rows, skip_unreadable, passed)
            if events or not found.rows:
                return _page(events, str(vector), passed)
    place = _parse(order, after)
    overlap = 0 if place == _start(order) else 1
    while True:
        # Read from the cursor's own event, to check that it still exists.
        rows = _rows(cur, order, {**place.parameters(order), "page_size": limit + overlap})
        if overlap and _is_purged(connection, place, rows):
            overlap, rows = 0, rows[:limit]
        if overlap and not (rows and place == _place_of(rows[0])):
            if not rows and cur.execute(order.follows).fetchone()[0]:
                return FeedPage((), str(after))  # The replica may lag behind.
            raise InvalidCursor(str(after))
        if rows:
            place = _place_of(rows[-1])
        new = rows[overlap:]
        events = _decoded(connection, cur, new, skip_unreadable, passed)
        if events or len(new) < limit or not limit:
            return _page(events, _render(order, place), passed)
        overlap = 1


def _decoded(
    connection: AnyConnection,
    cur: Any,
    rows: Sequence[Any],
    skip_unreadable: bool,
    passed: dict[UUID, PassedEvents],
) -> Sequence[RecordedEvent]:
    """Return the events of rows; if some cannot be read, see `_readable`."""
    try:
        return decode_rows(cur, backend_of(connection), map(_EVENT, rows), keys_of(connection))
    except UNREADABLE:
        return _readable(connection, rows, skip_unreadable, passed)


def _page(
    events: Sequence[RecordedEvent], cursor_text: str, passed: dict[UUID, PassedEvents]
) -> FeedPage:
    for each in passed.values():
        _log.warning(
            "the feed passed events that cannot be read",
            conversation_id=each.conversation_id,
            count=each.count,
            reason=each.reason,
        )
    return FeedPage(tuple(events), cursor_text, tuple(passed.values()))


def _vector(nodes: Nodes, after: str | None) -> Vector:
    def older(epoch: int) -> list[int]:
        return [each for (each,) in nodes.select(_OLDER_EPOCHS, [epoch])]

    return vector_feed.parse(after, older)


def _rows(cur: Any, order: FeedOrder, wanted: dict[str, int]) -> list[Any]:
    """Return a page's rows; on SQLite the texts of a row may be bytes that are not text."""
    cur.execute(order.page, wanted)
    try:
        return list(cur.fetchall())
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
    # Python's own error. A row that is read as bytes is refused where it is decoded.
    connection = cur.connection
    before, connection.text_factory = connection.text_factory, _text_or_bytes
    try:
        cur.execute(order.page, wanted)
        return list(cur.fetchall())
    finally:
        connection.text_factory = before


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _readable(
    connection: AnyConnection,
    rows: Sequence[Any],
    skip_unreadable: bool,
    passed: dict[UUID, PassedEvents],
) -> list[RecordedEvent]:
    """Return the events that can be read, and add the others to ``passed``.

    Raises:
        EventDamaged, BlobNotFound, BlobDamaged, KeyUnavailable: An event that is not to be passed.
    """
    backend = backend_of(connection)
    cur, keys = backend.reading(connection), keys_of(connection)
    events: list[RecordedEvent] = []
    for row in rows:
        try:
            events += decode_rows(cur, backend, [_EVENT(row)], keys)
        except UNREADABLE as error:
            lost = isinstance(error, KeyUnavailable) and error.lasting
            if not lost and not skip_unreadable:
                raise
            version = row[VERSION] if isinstance(row[VERSION], int) else 0
            stream = error.conversation_id
            found = passed.get(stream) or PassedEvents(stream, version, version, 0, str(error))
            passed[stream] = replace(found, last=version, count=found.count + 1)
    return events


def feed_end(connection: AnyConnection) -> str:
    """Return the cursor after the last event that is safe to pass now."""
    backend = backend_of(connection)
    if (nodes := backend.nodes(connection)) is not None:
        return str(vector_feed.end(nodes))
    order = backend.feed
    rows = fetch(connection, order.end)
    return _render(order, _FeedPlace.of(rows[0][:-1], rows[0][-1]) if rows else _start(order))


@dataclass(frozen=True, slots=True)
class Behind:
    """Conversations with events after a cursor, and two cursors to continue from.

    ``seen`` is after the last event read; ``safe`` is after the last event before which no other
    can still appear: save this one. ``more`` says whether there may be more events to read.
    """

    conversations: tuple[UUID, ...]
    seen: str
    safe: str
    more: bool


def behind(connection: AnyConnection, after: str | None, limit: int) -> Behind:
    """Return the conversations of the next ``limit`` visible events after the cursor.

    Raises:
        InvalidCursor: ``after`` did not come from a feed of this kind of database.
    """
    backend = backend_of(connection)
    order = backend.feed
    if (nodes := backend.nodes(connection)) is not None:
        streams, last, passed, more = vector_feed.behind(nodes, _vector(nodes, after), limit)
        return Behind(tuple(map(backend.to_id, streams)), str(last), str(passed), more)
    place = _parse(order, after)
    rows = fetch(connection, order.behind, {**place.parameters(order), "page_size": limit})
    seen = safe = place
    for row in rows[-1:]:
        seen = _FeedPlace.of(row[1:-2], row[-2])
    for row in [row for row in rows if row[-1]][-1:]:
        safe = _FeedPlace.of(row[1:-2], row[-2])
    return Behind(
        tuple(dict.fromkeys(backend.to_id(row[0]) for row in rows)),
        _render(order, seen),
        _render(order, safe),
        len(rows) == limit,
    )


def gained(connection: AnyConnection, after: str | None) -> list[UUID]:
    """Return every conversation with visible events after the cursor, in no particular order.

    Raises:
        InvalidCursor: ``after`` did not come from a feed of this kind of database.
    """
    backend = backend_of(connection)
    if (nodes := backend.nodes(connection)) is not None:
        return [*map(backend.to_id, vector_feed.gained(nodes, _vector(nodes, after)))]
    place = _parse(backend.feed, after).parameters(backend.feed)
    return [backend.to_id(row[0]) for row in fetch(connection, backend.feed.gained, place)]


def holds(connection: AnyConnection, cursor_text: str | None) -> bool:
    """Return whether the log still has a cursor's event, in the caller's transaction.

    Raises:
        InvalidCursor: It did not come from a feed of this kind of database.
    """
    backend = backend_of(connection)
    if (nodes := backend.nodes(connection)) is not None:
        return vector_feed.holds(nodes, _vector(nodes, cursor_text))
    order = backend.feed
    place = _parse(order, cursor_text)
    if place == _start(order):
        return True
    rows = fetch(connection, order.at, place.parameters(order))
    if not rows:
        return _is_purged(connection, place, ())
    return place == _FeedPlace.of(rows[0][:-1], rows[0][-1])


def _is_purged(connection: AnyConnection, place: _FeedPlace, rows: Sequence[Any]) -> bool:
    """Whether a cursor's event is gone because its conversation was purged.

    Positions are never reused, and no two events share one.
    """
    if rows and _place_of(rows[0]).numbers == place.numbers:
        return False
    return bool(_PURGED.rows(connection, position=place.numbers[-1]))


def _start(order: FeedOrder) -> _FeedPlace:
    return _FeedPlace((0,) * len(order.place))


def _place_of(row: Sequence[Any]) -> _FeedPlace:
    return _FeedPlace.of(row[_COLUMNS:], row[_COLUMNS - 1])


def _parse(order: FeedOrder, cursor_text: str | None) -> _FeedPlace:
    if cursor_text is None:
        return _start(order)
    prefix, _, rest = str(cursor_text).partition(":")
    numbers, digest = rest.split(":")[:-1], rest.rpartition(":")[2]
    if (
        prefix != order.prefix
        or len(numbers) != len(order.place)
        or not all(map(_NUMBER.fullmatch, numbers))
        or not _DIGEST.fullmatch(digest)
        or max(map(int, numbers)) >= 2**63
    ):
        raise InvalidCursor(cursor_text)
    return _FeedPlace(tuple(map(int, numbers)), digest)


def _render(order: FeedOrder, place: _FeedPlace) -> str:
    return ":".join([order.prefix, *map(str, place.numbers), place.digest])


@dataclass(frozen=True, slots=True)
class Holder:
    """The oldest open transaction that has written, and the session that it belongs to.

    A prepared transaction (``prepared`` is its name) has no session. ``seconds`` is its age.
    """

    pid: int | None
    application_name: str | None
    user: str | None
    database: str | None
    state: str | None
    seconds: float
    prepared: str | None

    @property
    def description(self) -> str:
        """A description of the holder."""
        who = f"process {self.pid}" if self.pid else f"the prepared transaction {self.prepared!r}"
        facts = (
            self.application_name,
            self.state if self.pid else None,
            f"user {self.user}",
            f"database {self.database}",
        )
        return f"{who} ({', '.join(fact for fact in facts if fact)}), for {self.seconds:,.1f} s"


@dataclass(frozen=True, slots=True)
class DelayedEvents:
    """Committed events that the feed does not return yet.

    ``seconds`` is how long ago the oldest of them was recorded. ``holder`` is set even while it
    holds no event back; it is None if no such transaction exists, or if the login may not see other
    sessions.
    """

    events: int
    seconds: float
    holder: Holder | None

    @property
    def description(self) -> str:
        """A description of what is held back, and by whom."""
        if not self.events:
            return "every committed event is returned"
        by = self.holder.description if self.holder else "a session that this login may not see"
        events = "1 event" if self.events == 1 else f"{self.events:,} events"
        return f"{events} held back, the oldest for {self.seconds:,.1f} s, by {by}"


def delayed_events(connection: AnyConnection) -> DelayedEvents:
    """Return what the feed currently holds back, in the caller's transaction."""
    backend, now = backend_of(connection), datetime.now(UTC)
    order = backend.feed
    if (nodes := backend.nodes(connection)) is not None:
        events, oldest = vector_feed.lag(nodes)
        holders = sorted(nodes.holders(), key=itemgetter(5), reverse=True)
    else:
        [(events, oldest)] = fetch(connection, order.lag)
        holders = fetch(connection, order.holder)
    holder = None
    for pid, application, user, database, state, began, prepared in holders:
        holder = Holder(pid, application, user, database, state, _seconds(began, now), prepared)
    return DelayedEvents(events, _seconds(oldest, now), holder)


def _seconds(since: datetime | None, now: datetime) -> float:
    return max(0.0, round((now - since).total_seconds(), 3)) if since else 0.0
