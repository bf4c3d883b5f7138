"""Stores for tests that know nothing of them: files of a directory that goes when they are over."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from agent_eventstore import EventStore

__all__ = ["store_at", "temporary_store"]

_OPENED = ExitStack()
_DIRECTORY = Path(_OPENED.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
_NUMBERS = count()  # not random: tests put something else in the place of uuid4
_KNOWN: dict[str, EventStore] = {}
atexit.register(_OPENED.close)


def temporary_store() -> EventStore:
    """Return a store that nobody else has."""
    empty = _DIRECTORY / "empty.db"
    if not empty.exists():
        EventStore.open(f"sqlite:///{empty}").close()
    own = _DIRECTORY / f"{os.getpid()}-{next(_NUMBERS)}.db"
    shutil.copy(empty, own)
    return _OPENED.enter_context(EventStore.open(f"sqlite:///{own}"))


def store_at(path: str | Path) -> EventStore:
    """Return the store beside a framework's database, or with ``:memory:`` one of its own."""
    if str(path) == ":memory:":
        return temporary_store()
    place = f"{path}.eventstore"
    if place not in _KNOWN:
        _KNOWN[place] = _OPENED.enter_context(EventStore.open(f"sqlite:///{place}"))
    return _KNOWN[place]
