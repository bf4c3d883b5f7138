"""Rows of read models that hold what no fold has written, since somebody has altered them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from eventstore.errors import EventStoreError, RowDamaged

__all__ = ["readable"]


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise `RowDamaged` where the rows of a projection do not make what they are read for.

    Around what takes rows alone: a value of the caller's must have been looked at before.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValidationError) as error:
        if isinstance(error, EventStoreError):
            raise
        raise RowDamaged(f"of {name}") from error
