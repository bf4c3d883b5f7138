"""How LangGraph's own savers and stores are opened: at a URL, for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from eventstore import EventStore

__all__ = ["AtUrl"]


class AtUrl:
    """A class whose first argument is an `EventStore`."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, **options: Any) -> Iterator[Self]:
        """Open the store at a URL for a block; the other arguments are those of the class."""
        make: Any = cls
        with EventStore.open(conn_string) as store:
            yield make(store, **options)

    def setup(self) -> None:
        """Do nothing: opening a store creates its tables."""
