"""Conversations set aside: those that could not be folded are noted, and all others continue.

The projections' set-up creates the table ``projection_failures``. It is disposable, and erasing a
conversation deletes its notes, because an error's text may quote a payload. A note is valid only
while the generation has not folded its version, so a catch-up need not read the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    and_,
    delete,
    exists,
    insert,
    not_,
    or_,
    select,
)

from eventstore.database import Id, SafeText, Timestamp, has_table, metadata_for
from eventstore.erasure.erase import erasure_count, erasure_lock
from eventstore.errors import KeyUnavailable
from eventstore.telemetry.log import get_logger
from projections.engine import heads
from projections.engine.catch_up import Begin, CatchUp, in_pieces
from projections.engine.folds import is_own_fault
from projections.engine.generations import Generation
from projections.errors import ProjectionFailed

__all__ = [
    "TABLE",
    "UNAVAILABLE",
    "FoldFailure",
    "catch_up_or_set_aside",
    "create",
    "forget",
    "is_there",
    "noted",
]

_log = get_logger("projections.engine.set_aside")
_MOST = 500  # characters of an error's text

UNAVAILABLE = f"{KeyUnavailable.__name__} for now"
"""How the error's text begins if the key may come back."""

TABLE = Table(
    "projection_failures",
    MetaData(),
    Column("conversation_id", Id, nullable=False),
    Column("projection", SafeText, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("error", SafeText, nullable=False),
    Column("failed_at", Timestamp, nullable=False),
    PrimaryKeyConstraint(
        "conversation_id", "projection", "generation", name="pk_projection_failures"
    ),
)


@dataclass(frozen=True, slots=True)
class FoldFailure:
    """A conversation that a generation cannot fold: the version, the time, and the error."""

    conversation_id: UUID
    projection: str
    generation: int
    version: int
    error: str
    failed_at: datetime


def create(connection: Connection) -> None:
    """Create the table if it does not exist, in the caller's transaction."""
    TABLE.create(connection, checkfirst=True)


def is_there(connection: Connection) -> bool:
    """Whether the table exists: a replica's primary may not have created it."""
    return has_table(connection, TABLE.name)


def catch_up_or_set_aside(
    begin: Begin[Connection], generations: Sequence[Generation], conversation_id: UUID
) -> list[FoldFailure]:
    """Catch up each generation by itself; note and return the failures.

    Pieces before the failing one are kept. If a generation can be caught up, its note is deleted.
    """
    tried = (_tried(begin, each, conversation_id) for each in generations)
    return [failure for failure in tried if failure is not None]


def _tried(
    begin: Begin[Connection], generation: Generation, conversation_id: UUID
) -> FoldFailure | None:
    while True:
        catching_up = CatchUp([generation], conversation_id)
        failed: Exception | None = None
        failure: FoldFailure | None = None
        try:
            in_pieces([catching_up], begin)
        except Exception as error:
            if not is_own_fault(error):
                raise
            failed = error
        with begin.writing() as connection:
            erasure_lock(connection, conversation_id)
            if failed is not None:
                # No note may outlive an erasure.
                if erasure_count(connection, [conversation_id]) != catching_up.erasures:
                    continue
                named = _named(connection, failed, generation, conversation_id)
                failure = _failure(named, generation)
            _note(connection, conversation_id, generation, failure)
            return failure


def noted(
    connection: Connection, generations: Iterable[Generation | None] | None = None
) -> list[FoldFailure]:
    """Return what is set aside, ordered by projection and conversation; empty without the table.

    Args:
        connection: The connection to read from.
        generations: Only failures of these generations; None entries are skipped.
    """
    if not is_there(connection):
        return []
    query = select(TABLE).where(not_(_outdated(connection)))
    query = query.order_by(TABLE.c.projection, TABLE.c.conversation_id, TABLE.c.generation)
    found = [FoldFailure(**row._mapping) for row in connection.execute(query)]
    if generations is None:
        return found
    wanted = {(each.projection.name, each.number) for each in generations if each is not None}
    return [each for each in found if (each.projection, each.generation) in wanted]


def forget(connection: Connection) -> None:
    """Delete the notes that are no longer valid, in the caller's transaction."""
    connection.execute(delete(TABLE).where(_outdated(connection)))


def _outdated(connection: Connection) -> ColumnElement[bool]:
    """Whether a note's version has been folded since, or its generation no longer exists."""
    tables = metadata_for(connection.dialect.name).tables
    reached, registry = tables["projection_heads"], tables["projections"]
    folded = exists().where(
        and_(
            reached.c.conversation_id == TABLE.c.conversation_id,
            reached.c.projection == TABLE.c.projection,
            reached.c.generation == TABLE.c.generation,
            reached.c.version >= TABLE.c.version,
        )
    )
    known = exists().where(
        registry.c.name == TABLE.c.projection,
        registry.c.generation == TABLE.c.generation,
        registry.c.status != "dead",
    )
    return or_(folded, not_(known))


def _named(
    connection: Connection, error: Exception, generation: Generation, conversation_id: UUID
) -> ProjectionFailed:
    """Return an error with its conversation and version, by default the first unfolded version."""
    if isinstance(error, ProjectionFailed):
        return error
    version = heads.reached(connection, generation, conversation_id) + 1
    failed = ProjectionFailed(generation.projection.name, conversation_id, version)
    failed.__cause__ = error
    return failed


def _failure(error: ProjectionFailed, generation: Generation) -> FoldFailure:
    cause = error.__cause__ or error
    passing = isinstance(cause, KeyUnavailable) and cause.passing
    text = f"{UNAVAILABLE if passing else type(cause).__name__}: {cause}"[:_MOST]
    _log.warning(
        "set aside",
        conversation_id=str(error.conversation_id),
        projection=error.projection,
        version=error.version,
        # Only the class: the error's text may quote a payload, which must not be logged.
        error=type(cause).__name__,
    )
    return FoldFailure(
        error.conversation_id,
        error.projection,
        generation.number,
        error.version,
        text,
        datetime.now(UTC),
    )


def _note(
    connection: Connection,
    conversation_id: UUID,
    generation: Generation,
    failure: FoldFailure | None,
) -> None:
    connection.execute(
        delete(TABLE).where(
            TABLE.c.conversation_id == conversation_id,
            TABLE.c.projection == generation.projection.name,
            TABLE.c.generation == generation.number,
        )
    )
    if failure is not None:
        values = {name: getattr(failure, name) for name in FoldFailure.__slots__}
        connection.execute(insert(TABLE).values(**values))
