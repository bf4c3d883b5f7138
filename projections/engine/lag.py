"""Lag: how far each projection's live generation is behind the committed events.

Lag is computed from the events themselves, so it cannot be zero while the feed is held back or no
worker runs. Its cost grows with the events since the generation's cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import and_, func, select

from eventstore import EventStore
from eventstore.database import (
    AnyConnection,
    Statement,
    backend_of,
    delayed_events,
    driver_transaction,
    feed,
    metadata_for,
)
from eventstore.errors import StatementRefused, StoreUnavailable
from eventstore.telemetry.gauges import Measurement
from projections.engine import generations
from projections.engine.generations import Generation, find_all_live
from projections.engine.projection import Projection
from projections.engine.set_aside import FoldFailure, noted

__all__ = ["Lag", "ProjectionStatus", "lags", "measure", "status"]


_LAG = Statement(
    """
    SELECT count(*), min(event.recorded_at)
    FROM conversations AS stream
    LEFT JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
        AND head.projection = :projection AND head.generation = :generation
    JOIN events AS event ON event.conversation_id = stream.conversation_id
        AND event.version > coalesce(head.version, 0)
    WHERE stream.conversation_id = ANY(:ids)
    """
)


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of committed events that are not folded, and the age of the oldest in seconds."""

    events: int
    seconds: float


def lags(connection: AnyConnection, generations: Sequence[Generation | None]) -> list[Lag]:
    """Return the lag of each generation, in the caller's transaction; None has folded nothing.

    A conversation that was set aside counts until the cursor has passed it; it is listed as such.
    """
    gained: dict[str | None, list[UUID]] = {}
    found = []
    for generation in generations:
        after = generation.cursor if generation else None
        if after not in gained:
            gained[after] = feed.gained(connection, after)
        found.append(_lag(connection, generation, gained[after]))
    return found


def measure(store: EventStore, projections: Sequence[Projection]) -> list[Measurement]:
    """Return the lag of every projection, and what the feed holds back, as gauge measurements.

    Empty while the database is unreachable: the values are then unknown, and zero would be wrong.
    """
    try:
        with driver_transaction(store, snapshot=True) as connection:
            behind = lags(connection, find_all_live(connection, projections))
            delayed = delayed_events(connection)
    except (StoreUnavailable, StatementRefused):
        return []
    found: list[Measurement] = []
    for projection, lag in zip(projections, behind, strict=True):
        about = {**store.database, "eventstore.projection": projection.name}
        found.append(Measurement("eventstore.projection.lag", lag.events, about))
        found.append(Measurement("eventstore.projection.lag.duration", lag.seconds, about))
    found.append(Measurement("eventstore.feed.held_back", delayed.events, store.database))
    found.append(Measurement("eventstore.feed.held_back.duration", delayed.seconds, store.database))
    return found


def _lag(
    connection: AnyConnection, generation: Generation | None, conversations: Sequence[UUID]
) -> Lag:
    if not conversations:
        return Lag(0, 0.0)
    [(events, oldest)] = _LAG.rows(
        connection,
        ids=list(conversations),
        projection=generation.projection.name if generation else "",
        generation=generation.number if generation else 0,
    )
    if oldest is None:
        return Lag(0, 0.0)
    age = datetime.now(UTC) - backend_of(connection).to_time(oldest)
    return Lag(events, max(0.0, round(age.total_seconds(), 3)))


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """One projection: the code's version, the live generation and its version, and the lag.

    ``behind`` counts conversations with events that the live generation has not folded, ``lag``
    those events. ``building`` is the generation of an unfinished rebuild, ``built`` the number of
    conversations that it has up to date. ``set_aside`` lists what could not be folded.
    """

    name: str
    version: int
    generation: int | None
    live_version: int | None
    conversations: int
    behind: int
    lag: Lag
    building: int | None
    built: int | None
    set_aside: tuple[FoldFailure, ...] = ()


def status(store: EventStore, projections: Sequence[Projection]) -> list[ProjectionStatus]:
    """Return the status of every projection, read in one snapshot.

    The cost grows with the number of conversations and with the events since the live generations'
    cursors.
    """
    with store.reading(snapshot=True) as connection:
        tables = metadata_for(connection.dialect.name).tables
        streams, heads = tables["conversations"], tables["projection_heads"]
        total = connection.execute(select(func.count()).select_from(streams)).scalar_one()

        def folded(generation: Generation) -> int:
            same = and_(
                heads.c.conversation_id == streams.c.conversation_id,
                heads.c.projection == generation.projection.name,
                heads.c.generation == generation.number,
                heads.c.version == streams.c.version,
            )
            query = select(func.count()).select_from(streams.join(heads, same))
            return int(connection.execute(query).scalar_one())

        own = find_all_live(connection, projections)
        newest = [generations.newest_live(connection, each) for each in projections]
        lag = lags(connection, [live[0] if live else None for live in newest])
        found = []
        for projection, mine, live, behind in zip(projections, own, newest, lag, strict=True):
            building = generations.building(connection, projection)
            shown = (mine, live[0] if live else None, building)
            found.append(
                ProjectionStatus(
                    name=projection.name,
                    version=projection.version,
                    generation=live[0].number if live else None,
                    live_version=live[1] if live else None,
                    conversations=total,
                    behind=total - (folded(live[0]) if live else 0),
                    lag=behind,
                    building=building.number if building else None,
                    built=folded(building) if building else None,
                    set_aside=tuple(noted(connection, shown)),
                )
            )
        return found
