"""A transaction that is interrupted at any line leaves neither lock nor connection behind."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event
from sqlalchemy.pool import QueuePool

from eventstore import EventStore, new_id
from tests.contract.facade import say, texts


def is_finalizing(frame: FrameType | None) -> bool:
    """Whether a frame is part of a finalizer, whose exceptions Python passes to nobody."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


_TRANSACTIONS = tuple(
    f"sql/{name}.py" for name in ("at_hand", "driver", "postgresql", "sqlite", "transactions")
)


def interrupted(work: Callable[[], object], line: int) -> bool:
    """Do work, with a KeyboardInterrupt before a line of the transactions' own; tell if it came."""
    left = count()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(_TRANSACTIONS):
            return None
        if event == "call" and is_finalizing(frame):
            return None
        if event == "line" and next(left) == line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def is_free(store: EventStore) -> bool:
    """Whether the write lock, the turn of the threads and the connections can be had at once."""
    had = []
    other = threading.Thread(target=lambda: had.append(store._at_hand.turn.acquire(timeout=0)))
    other.start()
    other.join()
    store._at_hand.close()
    assert isinstance(store.engine.pool, QueuePool)
    found = [*had, not store.is_writing_here, store.engine.pool.checkedout() == 0]
    store._at_hand._renew()  # The thread that had it has ended with it.
    if store.engine.dialect.name == "sqlite":
        connection = sqlite3.connect(str(store.engine.url.database), timeout=0)
        connection.execute("BEGIN IMMEDIATE")
        connection.close()
    return all(found)


def _append(store: EventStore, cid: UUID) -> None:
    store.append(cid, say("again"))


def _driver(store: EventStore, _: UUID) -> None:
    with store._driver_transaction(write=True):
        pass


def _transaction(store: EventStore, cid: UUID) -> None:
    with store.transaction() as connection:
        store.append(cid, say("again"), connection=connection)


def _read(store: EventStore, cid: UUID) -> None:
    list(store.read(cid))


@pytest.mark.parametrize("work", [_append, _driver, _transaction, _read])
def test_interrupted_at_every_line(
    database_url: str, work: Callable[[EventStore, UUID], None]
) -> None:
    """SQLite's write lock stayed held until the busy timeout, and PostgreSQL's row as long."""
    with EventStore.open(database_url, busy_timeout_ms=500) as store:
        store.append(cid := new_id(), say("first"))
        places = 0
        while interrupted(lambda: work(store, cid), places):
            assert is_free(store), f"left something open at line {places}"
            places += 1

        assert places >= 5
        store.append(cid, say("last"))
        assert "last" == texts(store.read(cid))[-1]
        assert store.verify().ok


def test_an_interrupted_statement_leaves_no_lock(sqlite_url: str) -> None:
    """SQLAlchemy closes its connection, of which the interruption's traceback holds a cursor."""
    with EventStore.open(sqlite_url, busy_timeout_ms=200) as store:
        cid, query = new_id(), "SELECT * FROM events"
        store.append(cid, say("1", "2"))

        def interrupt(*given: Any) -> None:
            if given[2] == query:
                raise KeyboardInterrupt

        def ask() -> None:
            with store.transaction() as connection:
                store.append(cid, say("3"), connection=connection)
                connection.exec_driver_sql(query)

        event.listen(store.engine, "after_cursor_execute", interrupt)
        with pytest.raises(KeyboardInterrupt) as interruption:
            ask()
        store.append(cid, say("4"))

        assert ["1", "2", "4"] == texts(store.read(cid))
        assert interruption.tb is not None
