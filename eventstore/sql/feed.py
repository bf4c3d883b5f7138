"""The feed of all events of the store, in an order in which none is ever skipped.

SQLite has one writer at a time, so ``position`` is the order of commits. PostgreSQL has many, and
takes positions before it commits: ordering by position would skip what commits late. There the
order is ``(epoch, tx_id, position)``, and only what lies below the snapshot's ``xmin`` is handed
out: every transaction below it has ended, so nothing can still appear there. Transaction ids do
not survive a dump and restore into another cluster, so the epoch rises when the cluster's system
identifier has changed (`renew_epoch`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, text

from eventstore.errors import InvalidCursor
from eventstore.events.records import RecordedEvent
from eventstore.sql.dialect import AnyConnection, Statement, cursor, dialect_of
from eventstore.sql.rows import COLUMNS, decode_rows

__all__ = ["Behind", "FeedPage", "behind", "feed_end", "gained", "read_feed", "renew_epoch"]

_START = {"sqlite": (0,), "postgresql": (0, 0, 0)}
_PREFIX = {"sqlite": "s1", "postgresql": "p1"}
_NUMBER = re.compile("[0-9]{1,19}")

# What an older epoch holds has ended long ago; in the current one xmin is the border.
_BELOW_XMIN = """
    (epoch < (SELECT max(epoch) FROM store_epochs)
     OR tx_id < pg_snapshot_xmin(pg_current_snapshot()))
"""
_AFTER = "(epoch, tx_id, position) > (:epoch, (:tx_id)::text::xid8, :position)"
# `ORDER BY tx_id` alone would mean the selected text, in which 10 comes before 9.
_FEED = Statement(
    f"SELECT {COLUMNS['sqlite']} FROM events WHERE position > :position "  # noqa: S608 - likewise
    "ORDER BY position LIMIT :page_size",
    f"""
    SELECT {COLUMNS["postgresql"]}, epoch, tx_id::text FROM events
    WHERE {_AFTER} AND {_BELOW_XMIN}
    ORDER BY epoch, events.tx_id, position LIMIT :page_size
    """,  # noqa: S608 - constants of this module
)
_END = Statement(
    "SELECT max(position) FROM events",
    f"""
    SELECT epoch, tx_id::text, position FROM events WHERE {_BELOW_XMIN}
    ORDER BY epoch DESC, events.tx_id DESC, position DESC LIMIT 1
    """,  # noqa: S608 - constants of this module
)
# Also what is not yet safe to pass: it makes a conversation known as behind.
_BEHIND = Statement(
    "SELECT conversation_id, position FROM events WHERE position > :position "
    "ORDER BY position LIMIT :page_size",
    f"""
    SELECT conversation_id, epoch, tx_id::text, position, {_BELOW_XMIN}
    FROM events WHERE {_AFTER} ORDER BY epoch, events.tx_id, position LIMIT :page_size
    """,  # noqa: S608 - constants of this module
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


def read_feed(connection: AnyConnection, after: str | None, limit: int) -> FeedPage:
    """Return the next events of the feed, in the caller's transaction.

    Raises:
        InvalidCursor: ``after`` did not come from a feed of this kind of database.
    """
    dialect, cur = dialect_of(connection), cursor(connection, binary=True)
    place = _parse(dialect.name, after)
    cur.execute(_FEED.on(dialect), {**_parameters(place), "page_size": limit})
    rows = cur.fetchall()
    if rows:
        last = rows[-1]
        place = (last[0],) if dialect.is_sqlite else (last[-2], int(last[-1]), last[0])
    if not dialect.is_sqlite:
        rows = [row[:-2] for row in rows]
    return FeedPage(tuple(decode_rows(cur, dialect, rows)), _render(dialect.name, place))


def feed_end(connection: AnyConnection) -> str:
    """Return the cursor after all that is safe to pass now."""
    dialect, cur = dialect_of(connection), cursor(connection)
    cur.execute(_END.on(dialect))
    row = cur.fetchone()
    if row is None or row[0] is None:
        return _render(dialect.name, _START[dialect.name])
    return _render(dialect.name, tuple(int(value) for value in row))


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
    cur.execute(_BEHIND.on(dialect), {**_parameters(place), "page_size": limit})
    rows = cur.fetchall()
    seen = safe = place
    for row in rows:
        if dialect.is_sqlite:
            seen = safe = (row[1],)
            continue
        seen = (row[1], int(row[2]), row[3])
        safe = seen if row[4] else safe
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
    cur.execute(_GAINED.on(dialect), _parameters(_parse(dialect.name, after)))
    return [dialect.to_id(row[0]) for row in cur.fetchall()]


def renew_epoch(connection: Connection) -> None:
    """Begin a new epoch if the database is now in another cluster, in the caller's transaction."""
    if connection.dialect.name != "postgresql":
        return
    connection.execute(
        text(
            """
            INSERT INTO store_epochs (epoch, system_identifier, started_at)
            SELECT last.epoch + 1, now.system_identifier::text, :at
            FROM pg_control_system() AS now,
                (SELECT epoch, system_identifier FROM store_epochs
                 ORDER BY epoch DESC LIMIT 1) AS last
            WHERE last.system_identifier <> now.system_identifier::text
            ON CONFLICT (epoch) DO NOTHING
            """
        ),
        {"at": datetime.now(UTC)},
    )


def _parameters(place: tuple[int, ...]) -> dict[str, object]:
    if len(place) == 1:
        return {"position": place[0]}
    return {"epoch": place[0], "tx_id": str(place[1]), "position": place[2]}


def _parse(dialect: str, cursor_text: str | None) -> tuple[int, ...]:
    if cursor_text is None:
        return _START[dialect]
    prefix, *numbers = str(cursor_text).split(":")
    well_formed = all(_NUMBER.fullmatch(number) for number in numbers)
    if prefix != _PREFIX[dialect] or len(numbers) != len(_START[dialect]) or not well_formed:
        raise InvalidCursor(cursor_text)
    place = tuple(int(number) for number in numbers)
    if max(place) >= 2**63:
        raise InvalidCursor(cursor_text)
    return place


def _render(dialect: str, place: tuple[int, ...]) -> str:
    return ":".join([_PREFIX[dialect], *(str(number) for number in place)])
