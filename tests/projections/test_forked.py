"""Processes of a rebuild are forked where they share nothing with the one that has started them."""

from __future__ import annotations

import sys

import pytest

from eventstore import EventStore
from projections.upkeep import compare
from tests.projections.support import converse
from tests.warm import Programs

PROGRAM = """
import sys, threading
from contextlib import ExitStack
from multiprocessing import get_context
from eventstore import EventStore
from eventstore.sql.pools import may_fork
from projections.engine import rebuild
from projections.upkeep import rebuild as go

url, case = sys.argv[1:]
rebuild._PAGE_EVENTS = 14
ways = []
rebuild.get_context = lambda way: ways.append(way) or get_context(way)
with ExitStack() as stack:
    store = stack.enter_context(EventStore.open(url))
    if case == "a connection":
        stack.enter_context(store.reading())
    elif case == "another store's connection":
        stack.enter_context(stack.enter_context(EventStore.open(url)).reading())
    elif case == "a thread":
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
    go(store, workers=2)
print(*ways)
"""


@pytest.mark.exhaustive_when("a connection", "a thread")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="known on Linux alone")
@pytest.mark.parametrize(
    ("case", "on_sqlite", "on_postgresql"),
    [
        ("nothing", "fork", "fork"),
        ("a connection", "spawn", "spawn"),
        ("another store's connection", "spawn", "fork"),
        ("a thread", "spawn", "spawn"),
    ],
)
def test_processes_are_forked_if_nothing_is_open(
    store: EventStore,
    database_url: str,
    case: str,
    on_sqlite: str,
    on_postgresql: str,
    programs: Programs,
) -> None:
    """Nobody inherits a connection in use, SQLite's file or a lock; the rows are the same."""
    for _ in range(6):
        converse(store, 2)
    done = programs.run("-c", PROGRAM, database_url, case)
    expected = on_sqlite if database_url.startswith("sqlite") else on_postgresql
    assert (done.stdout.split(), done.stderr) == ([expected], "")
    assert compare(store).ok
