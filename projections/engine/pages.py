"""Reading a page of events to fold, and finding the event that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from eventstore.database import END, AnyConnection, read_page
from eventstore.errors import BlobDamaged
from eventstore.events import RecordedEvent
from projections.engine.folds import Fold
from projections.errors import ProjectionFailed

__all__ = ["DAMAGED", "PAGE", "page_of"]

PAGE = 1_000
DAMAGED = (BlobDamaged, ValueError, TypeError, LookupError, RecursionError)
"""Errors of reading a row with a damaged payload, blob or metadata; no driver errors."""


def page_of(
    connection: AnyConnection,
    folds: Sequence[Fold],
    conversation_id: UUID,
    after: int,
    before: int = END,
    limit: int = PAGE,
) -> list[RecordedEvent]:
    """Return the next events for the folds of a conversation.

    Raises:
        ProjectionFailed: An event cannot be read.
    """
    try:
        return read_page(connection, conversation_id, after=after, before=before, limit=limit)
    except DAMAGED as error:
        version = _damaged(connection, conversation_id, after)
        name = folds[0].generation.projection.name
        raise ProjectionFailed(name, conversation_id, version) from error


def _damaged(connection: AnyConnection, conversation_id: UUID, after: int) -> int:
    """Return the first version above ``after`` that cannot be read."""
    version = after + 1
    with suppress(*DAMAGED):
        while read_page(connection, conversation_id, after=version - 1, limit=1):
            version += 1
    return version
