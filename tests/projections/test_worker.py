"""Workers: any number at once, killed at will, with nothing folded twice or left behind."""

from __future__ import annotations

import signal
import threading

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views, worker
from projections.catalogue import PROJECTIONS
from projections.diff import compare
from projections.status import status
from tests.projections.children import work, write
from tests.projections.processes import kill, start
from tests.projections.support import converse, everything, expected, statements, stored
from tests.settling import settled


def test_workers_and_writers_of_many_processes(store: EventStore, database_url: str) -> None:
    """Workers beside writers, one of them killed, leave what a fresh fold gives."""
    Views(store)
    writers = [start(write, database_url, 2, 2) for _ in range(2)]
    workers = [start(work, database_url, rounds) for rounds in (3, 0, 0)]
    try:
        for child in (*writers, workers[0]):
            child.join(120)
        assert [0, 0, -signal.SIGKILL] == [child.exitcode for child in (*writers, workers[0])]
        worker.run(store, once=True)
        assert [None, None] == [child.exitcode for child in workers[1:]]
    finally:
        for child in (*writers, *workers):
            kill(child)
    worker.run(store, once=True)
    infos = store.list()
    assert [14] * 4 == [info.version for info in infos]
    assert [0] * len(PROJECTIONS) == [each.behind for each in status(store)]
    assert compare(store).ok
    for info in infos:
        events = store.read(info.conversation_id)
        assert expected(events) == stored(store, info.conversation_id)


@pytest.mark.parametrize("many", [3, 30])
def test_an_idle_round_costs_the_same_however_many_conversations(
    store: EventStore, many: int
) -> None:
    """A round that finds nothing runs the same few statements, and writes nothing."""
    for _ in range(many):
        store.append(new_id(), [e.UserMessage.text("hello")])
    worker.run(settled(store), once=True)
    before = everything(store)["projections"]
    with statements(store) as seen:
        worker.run(store, once=True)
    ran = [sql for sql in seen if sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE")]
    # Two looks at the registry for each projection, and one at the feed.
    assert len(ran) <= 2 * len(PROJECTIONS) + 1
    assert [] == [sql for sql in ran if not sql.startswith("SELECT")]
    assert before == everything(store)["projections"]


def test_the_worker_stops_when_it_is_told(store: EventStore) -> None:
    """It runs rounds until the event is set, and returns how many conversations were behind."""
    stop = threading.Event()
    rounds: list[int] = []
    cid = converse(store, 1)

    def after_round(count: int) -> None:
        rounds.append(count)
        if len(rounds) == 1:
            store.append(cid, [e.UserMessage.text("more")])
        if len(rounds) == 3:
            stop.set()

    assert 2 == worker.run(store, poll_interval_s=0, stop=stop, on_round=after_round)
    assert [1, 1, 0] == rounds
    assert expected(store.read(cid)) == stored(store, cid)


def test_the_worker_fills_what_a_read_finds(store: EventStore) -> None:
    """After a round a read of any view has nothing left to fold."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text("hello")])
    worker.run(store, once=True)
    before = everything(store)
    Views(store).timeline(cid)
    assert before["projection_heads"] == everything(store)["projection_heads"]
