"""How each projection stands: which generation is live, and how far it is behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import and_, func, select

from eventstore import EventStore
from eventstore.sql.schema import metadata_for
from projections import generations
from projections.base import Projection
from projections.catalogue import PROJECTIONS
from projections.failures import Failure, noted
from projections.generations import Generation
from projections.lag import Lag, lags

__all__ = ["ProjectionStatus", "status"]


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """One projection: the code's version, the live generation and its version, and the lag.

    ``behind`` counts conversations with events that the live generation has not folded, ``lag``
    those events; ``building`` is the generation that a rebuild has begun and not ended, ``built``
    how many conversations it holds. ``set_aside`` names what could not be folded.
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
    set_aside: tuple[Failure, ...] = ()


def status(
    store: EventStore, projections: Sequence[Projection] = PROJECTIONS
) -> list[ProjectionStatus]:
    """Return the standing of every projection, read in one snapshot.

    Costs what there are conversations, and what has happened since the live generations' cursors.
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

        failed = noted(connection)
        newest = [generations.newest_live(connection, each) for each in projections]
        lag = lags(connection, [live[0] if live else None for live in newest])
        found = []
        for projection, live, behind in zip(projections, newest, lag, strict=True):
            building = generations.building(connection, projection)
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
                    set_aside=tuple(one for one in failed if one.projection == projection.name),
                )
            )
        return found
