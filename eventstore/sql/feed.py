"""The feed of all events of the store, in an order in which none is ever skipped.

SQLite has one writer at a time, so ``position`` is the order of commits. PostgreSQL has many, and
takes positions before it commits: ordering by position would skip what commits late. There the
order is ``(epoch, tx_id, position)``, and only what lies below the snapshot's ``xmin`` is handed
out: every transaction below it has ended, so nothing can still appear there. Transaction ids do
not survive a dump and restore into another cluster, so the epoch rises when the cluster's system
identifier has changed (`eventstore.sql.engines`).

A cursor is a place in that order and the beginning of the chain of the event there. Salts are
random, so that the same cursor stands for the same history in any database: one of another store,
or of a log that has gone back to an older state since, is found out instead of skipping events.

What the feed does not hand out yet, and whose transaction it waits for.

On PostgreSQL an event is handed out once every transaction that began before its own has ended (see
`eventstore.sql.feed`), so that one transaction left open holds back the feed of the whole server.
Here it is found and named. On SQLite nothing is ever held back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from eventstore.errors import InvalidCursor
from eventstore.events.records import RecordedEvent
from eventstore.sql.dialect import AnyConnection, Dialect, Statement, cursor, dialect_of, keys_of
from eventstore.sql.read import COLUMNS, decode_rows

__all__ = [
    "Behind",
    "FeedPage",
    "HeldBack",
    "Holder",
    "behind",
    "feed_end",
    "gained",
    "held_back",
    "holds",
    "read_feed",
]


_COLUMNS = len(COLUMNS["sqlite"].split(","))
_DIGEST_BYTES = 8
_NOTHING = "00" * _DIGEST_BYTES
_CURSOR = {
    "sqlite": re.compile("s2:([0-9]{1,19}):([0-9a-f]{16})"),
    "postgresql": re.compile("p2:([0-9]{1,19}):([0-9]{1,19}):([0-9]{1,19}):([0-9a-f]{16})"),
}
_PREFIX = {"sqlite": "s2", "postgresql": "p2"}

# What an older epoch holds has ended long ago; in the current one xmin is the border.
_BELOW_XMIN = """
    (epoch < (SELECT max(epoch) FROM store_epochs)
     OR tx_id < pg_snapshot_xmin(pg_current_snapshot()))
"""
_DIGEST = f"substr(chain, 1, {_DIGEST_BYTES})"
_AFTER = "(epoch, tx_id, position) > (:epoch, (:tx_id)::text::xid8, :position)"
# `ORDER BY tx_id` alone would mean the selected text, in which 10 comes before 9.
# From the cursor's own event on, which shows that it is still there.
_FEED = Statement(
    f"SELECT {COLUMNS['sqlite']} FROM events WHERE position >= :position "  # noqa: S608 - likewise
    "ORDER BY position LIMIT :page_size",
    f"""
    SELECT {COLUMNS["postgresql"]}, epoch, tx_id::text FROM events
    WHERE {_AFTER.replace(">", ">=")} AND {_BELOW_XMIN}
    ORDER BY epoch, events.tx_id, position LIMIT :page_size
    """,  # noqa: S608 - constants of this module
)
_END = Statement(
    f"SELECT position, {_DIGEST} FROM events ORDER BY position DESC LIMIT 1",  # noqa: S608
    f"""
    SELECT epoch, tx_id::text, position, {_DIGEST} FROM events WHERE {_BELOW_XMIN}
    ORDER BY epoch DESC, events.tx_id DESC, position DESC LIMIT 1
    """,  # noqa: S608 - constants of this module
)
# Also what is not yet safe to pass: it makes a conversation known as behind.
_BEHIND = Statement(
    f"SELECT conversation_id, position, {_DIGEST} FROM events WHERE position > :position "  # noqa: S608
    "ORDER BY position LIMIT :page_size",
    f"""
    SELECT conversation_id, epoch, tx_id::text, position, {_DIGEST}, {_BELOW_XMIN}
    FROM events WHERE {_AFTER} ORDER BY epoch, events.tx_id, position LIMIT :page_size
    """,  # noqa: S608 - constants of this module
)

_AT = Statement(
    f"SELECT position, {_DIGEST} FROM events WHERE position = :position",  # noqa: S608 - likewise
    f"SELECT epoch, tx_id::text, position, {_DIGEST} FROM events "  # noqa: S608 - likewise
    "WHERE (epoch, tx_id, position) = (:epoch, (:tx_id)::text::xid8, :position)",
)
_GAINED = Statement(
    "SELECT DISTINCT conversation_id FROM events WHERE position > :position",
    f"SELECT DISTINCT conversation_id FROM events WHERE {_AFTER}",  # noqa: S608 - likewise
)


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A page of the feed; pass ``cursor`` to read on, also when the page is empty."""

    events: tuple[RecordedEvent, ...]
    cursor: str

    def __iter__(self) -> Iterator[RecordedEvent]:
        """Iterate over the events."""
        return iter(self.events)

    def __len__(self) -> int:
        """Return how many events the page holds."""
        return len(self.events)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an event stands in the feed, and the beginning of its chain."""

    numbers: tuple[int, ...]
    digest: str = _NOTHING

    @classmethod
    def of(cls, numbers: Sequence[Any], chain: Any) -> _Place:
        """Take it from what the database gives; a damaged row's chain may be anything."""
        digest = chain[:_DIGEST_BYTES].hex() if isinstance(chain, bytes) else ""
        return cls(tuple(int(number) for number in numbers), digest.ljust(len(_NOTHING), "0"))

    @property
    def parameters(self) -> dict[str, object]:
        """The numbers as the statements take them."""
        if len(self.numbers) == 1:
            return {"position": self.numbers[0]}
        epoch, tx_id, position = self.numbers
        return {"epoch": epoch, "tx_id": str(tx_id), "position": position}


_START = {"sqlite": _Place((0,)), "postgresql": _Place((0, 0, 0))}


def read_feed(connection: AnyConnection, after: str | None, limit: int) -> FeedPage:
    """Return the next events of the feed, in the caller's transaction.

    Raises:
        InvalidCursor: ``after`` did not come from this store's feed, or the log has gone back to
            an older state since.
    """
    dialect, cur = dialect_of(connection), cursor(connection, binary=True)
    place = _parse(dialect.name, after)
    begun = 0 if place == _START[dialect.name] else 1
    cur.execute(_FEED.on(dialect), {**place.parameters, "page_size": limit + begun})
    rows = cur.fetchall()
    if begun and not (rows and place == _place_of(dialect, rows[0])):
        if not rows and _is_replica(dialect, cur):
            return FeedPage((), str(after))  # It may not have come that far.
        raise InvalidCursor(str(after))
    if rows:
        place = _place_of(dialect, rows[-1])
    events = decode_rows(
        cur, dialect, [row[:_COLUMNS] for row in rows[begun:]], keys_of(connection)
    )
    return FeedPage(tuple(events), _render(dialect.name, place))


def feed_end(connection: AnyConnection) -> str:
    """Return the cursor after all that is safe to pass now."""
    dialect, cur = dialect_of(connection), cursor(connection)
    cur.execute(_END.on(dialect))
    row = cur.fetchone()
    place = _START[dialect.name] if row is None else _Place.of(row[:-1], row[-1])
    return _render(dialect.name, place)


@dataclass(frozen=True, slots=True)
class Behind:
    """Conversations with events after a cursor, and two cursors to go on from.

    ``seen`` follows the last event that was looked at; ``safe`` follows the last one before
    which nothing can appear any more, and is the one to remember. ``more`` tells whether the look
    was cut short.
    """

    conversations: tuple[UUID, ...]
    seen: str
    safe: str
    more: bool


def behind(connection: AnyConnection, after: str | None, limit: int) -> Behind:
    """Return which conversations have visible events after the cursor, looking at ``limit`` events.

    Raises:
        InvalidCursor: ``after`` did not come from a feed of this kind of database.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    place = _parse(dialect.name, after)
    cur.execute(_BEHIND.on(dialect), {**place.parameters, "page_size": limit})
    rows = cur.fetchall()
    seen = safe = place
    if dialect.is_sqlite:
        for row in rows[-1:]:
            seen = safe = _Place.of(row[1:2], row[2])
    else:
        for row in rows[-1:]:
            seen = _Place.of(row[1:4], row[4])
        for row in [row for row in rows if row[5]][-1:]:
            safe = _Place.of(row[1:4], row[4])
    return Behind(
        tuple(dict.fromkeys(dialect.to_id(row[0]) for row in rows)),
        _render(dialect.name, seen),
        _render(dialect.name, safe),
        len(rows) == limit,
    )


def gained(connection: AnyConnection, after: str | None) -> list[UUID]:
    """Return every conversation with visible events after the cursor, in no order.

    Raises:
        InvalidCursor: ``after`` did not come from a feed of this kind of database.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    cur.execute(_GAINED.on(dialect), _parse(dialect.name, after).parameters)
    return [dialect.to_id(row[0]) for row in cur.fetchall()]


def holds(connection: AnyConnection, cursor_text: str | None) -> bool:
    """Return whether the log still has a cursor's event, in the caller's transaction.

    Raises:
        InvalidCursor: It did not come from a feed of this kind of database.
    """
    dialect, cur = dialect_of(connection), cursor(connection)
    place = _parse(dialect.name, cursor_text)
    if place == _START[dialect.name]:
        return True
    cur.execute(_AT.on(dialect), place.parameters)
    row = cur.fetchone()
    cur.close()
    return row is not None and place == _Place.of(row[:-1], row[-1])


def _place_of(dialect: Dialect, row: Sequence[Any]) -> _Place:
    numbers = row[:1] if dialect.is_sqlite else (*row[_COLUMNS:], row[0])
    return _Place.of(numbers, row[_COLUMNS - 1])


def _is_replica(dialect: Dialect, cur: Any) -> bool:
    if dialect.is_sqlite:
        return False
    return bool(cur.execute("SELECT pg_is_in_recovery()").fetchone()[0])


def _parse(dialect: str, cursor_text: str | None) -> _Place:
    if cursor_text is None:
        return _START[dialect]
    found = _CURSOR[dialect].fullmatch(str(cursor_text))
    if found is None:
        raise InvalidCursor(cursor_text)
    *numbers, digest = found.groups()
    place = _Place(tuple(int(number) for number in numbers), digest)
    if max(place.numbers) >= 2**63:
        raise InvalidCursor(cursor_text)
    return place


def _render(dialect: str, place: _Place) -> str:
    return ":".join([_PREFIX[dialect], *(str(number) for number in place.numbers), place.digest])


_EVENTS = """
    SELECT count(*), min(recorded_at) FROM events
    WHERE epoch = (SELECT max(epoch) FROM store_epochs)
        AND tx_id >= pg_snapshot_xmin(pg_current_snapshot())
"""
# The statement that a session runs is left out: it may quote a payload.
_HOLDER = """
    SELECT pid, application_name, usename, datname, state, xact_start, NULL
    FROM pg_stat_activity WHERE backend_xid = pg_snapshot_xmin(pg_current_snapshot())::xid
    UNION ALL
    SELECT NULL, NULL, owner, database, 'prepared', prepared, gid
    FROM pg_prepared_xacts WHERE transaction = pg_snapshot_xmin(pg_current_snapshot())::xid
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """The oldest transaction that has written and not ended, and the session that it belongs to.

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
    def said(self) -> str:
        """The holder in words."""
        who = f"process {self.pid}" if self.pid else f"the prepared transaction {self.prepared!r}"
        facts = (
            self.application_name,
            self.state if self.pid else None,
            f"user {self.user}",
            f"database {self.database}",
        )
        return f"{who} ({', '.join(fact for fact in facts if fact)}), for {self.seconds:,.1f} s"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Committed events that the feed does not hand out yet.

    ``seconds`` is how long ago the oldest of them was recorded. ``holder`` is also known while it
    holds no event back; it is None if there is none, or if the login may not see other sessions.
    """

    events: int
    seconds: float
    holder: Holder | None

    @property
    def said(self) -> str:
        """What is held back and by whom, in words."""
        if not self.events:
            return "every committed event is handed out"
        by = self.holder.said if self.holder else "a session that this login may not look at"
        events = "1 event" if self.events == 1 else f"{self.events:,} events"
        return f"{events} held back, the oldest for {self.seconds:,.1f} s, by {by}"


def held_back(connection: AnyConnection) -> HeldBack:
    """Return what the feed holds back now, in the caller's transaction."""
    if dialect_of(connection).is_sqlite:
        return HeldBack(0, 0.0, None)
    now, run = datetime.now(UTC), cursor(connection)
    [(events, oldest)] = run.execute(_EVENTS).fetchall()
    found = run.execute(_HOLDER).fetchone()
    run.close()
    holder = None
    if found is not None:
        pid, application, user, database, state, began, prepared = found
        holder = Holder(pid, application, user, database, state, _seconds(began, now), prepared)
    return HeldBack(events, _seconds(oldest, now), holder)


def _seconds(since: datetime | None, now: datetime) -> float:
    return max(0.0, round((now - since).total_seconds(), 3)) if since else 0.0
