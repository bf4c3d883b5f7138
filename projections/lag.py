"""Lag: how much of what is committed a live generation has not folded.

It is counted from the events themselves, so it cannot read zero while the feed is held back or no
worker runs. Its cost is what has happened since the generation's cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from eventstore import EventStore
from eventstore.errors import StatementRefused, StoreUnavailable
from eventstore.events.codec import dumps
from eventstore.sql import feed
from eventstore.sql.dialect import AnyConnection, Statement, cursor, dialect_of
from eventstore.sql.held_back import held_back
from eventstore.telemetry import Measurement
from projections.base import Projection
from projections.catalogue import PROJECTIONS
from projections.generations import Generation, find_all_live

__all__ = ["Lag", "lags", "measure"]

_UNFOLDED = """
    SELECT count(*), min(event.recorded_at)
    FROM conversations AS stream
    LEFT JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
        AND head.projection = :projection AND head.generation = :generation
    JOIN events AS event ON event.conversation_id = stream.conversation_id
        AND event.version > coalesce(head.version, 0)
    WHERE stream.conversation_id {named}
    """
_LAG = Statement(
    _UNFOLDED.format(named="IN (SELECT value FROM json_each(:ids))"),
    _UNFOLDED.format(named="= ANY(:ids)"),
)


@dataclass(frozen=True, slots=True)
class Lag:
    """Committed events that are not folded, and how long ago the oldest of them was recorded."""

    events: int
    seconds: float


def lags(connection: AnyConnection, generations: Sequence[Generation | None]) -> list[Lag]:
    """Return the lag of each generation, in the caller's transaction; None has folded nothing.

    A conversation that was set aside counts until the cursor has passed it: it is listed as such.
    """
    gained: dict[str | None, list[UUID]] = {}
    found = []
    for generation in generations:
        after = generation.cursor if generation else None
        if after not in gained:
            gained[after] = feed.gained(connection, after)
        found.append(_lag(connection, generation, gained[after]))
    return found


def measure(
    store: EventStore, projections: Sequence[Projection] = PROJECTIONS
) -> list[Measurement]:
    """Return the lag of every projection, and what the feed holds back, as gauges read them.

    Nothing while the database cannot be reached: then nobody knows, and zero would be a lie.
    """
    try:
        with store.on_driver(snapshot=True) as connection:
            behind = lags(connection, find_all_live(connection, projections))
            held = held_back(connection)
    except (StoreUnavailable, StatementRefused):
        return []
    found: list[Measurement] = []
    for projection, lag in zip(projections, behind, strict=True):
        about = {**store.database, "eventstore.projection": projection.name}
        found.append(Measurement("eventstore.projection.lag", lag.events, about))
        found.append(Measurement("eventstore.projection.lag.duration", lag.seconds, about))
    found.append(Measurement("eventstore.feed.held_back", held.events, store.database))
    found.append(Measurement("eventstore.feed.held_back.duration", held.seconds, store.database))
    return found


def _lag(
    connection: AnyConnection, generation: Generation | None, conversations: Sequence[UUID]
) -> Lag:
    if not conversations:
        return Lag(0, 0.0)
    dialect, run = dialect_of(connection), cursor(connection)
    ids = [dialect.from_id(each) for each in conversations]
    run.execute(
        _LAG.on(dialect),
        {
            "ids": dumps(ids) if dialect.is_sqlite else ids,
            "projection": generation.projection.name if generation else "",
            "generation": generation.number if generation else 0,
        },
    )
    [(events, oldest)] = run.fetchall()
    run.close()
    if oldest is None:
        return Lag(0, 0.0)
    age = datetime.now(UTC) - dialect.to_time(oldest)
    return Lag(events, max(0.0, round(age.total_seconds(), 3)))
