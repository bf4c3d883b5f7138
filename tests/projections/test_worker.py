"""Workers: any number at once, killed at will, with nothing folded twice or left behind."""

from __future__ import annotations

import signal
import threading

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.errors import CannotConnect
from eventstore.sql.watch import Watch
from projections import Views, worker
from projections.catalogue import PROJECTIONS
from projections.engine.catch_up import PIECE
from projections.upkeep import compare, status
from tests.feed_wait import wait_for_feed
from tests.postgres import PostgresServer
from tests.projections.children import work, write
from tests.projections.processes import kill, start
from tests.projections.support import converse, everything, expected, statements, stored


@pytest.mark.usefixtures("fork_server")
@pytest.mark.exhaustive_when("postgresql")
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
    worker.run(wait_for_feed(store), once=True)
    before = everything(store)["projections"]
    with statements(store) as seen:
        worker.run(store, once=True)
    ran = [sql for sql in seen if sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE")]
    # The worker's own row: written when it starts, with the others' read, and deleted at its end.
    own = [sql for sql in ran if "projection_workers" in sql]
    assert len(own) == 3
    ran = [sql for sql in ran if sql not in own and "synchronous_commit" not in sql]
    # Two looks at the registry, one at what was set aside, and one at the feed.
    assert len(ran) <= 2 + 3 + 1
    assert [] == [sql for sql in ran if not sql.startswith("SELECT")]
    assert before == everything(store)["projections"]


class Waits(threading.Event):
    """Remembers how long it was waited for, and does not wait; set after the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Note the time, and have the worker stop."""
        self.seconds.append(timeout or 0.0)
        if len(self.seconds) == 2:
            self.set()
        return self.is_set()


def test_a_worker_rests_on_sqlite(store: EventStore) -> None:
    """After each transaction, and longer after a round: others can write to the file then."""
    converse(store, 1)
    stop = Waits()
    worker.run(store, stop=stop)
    first, second = stop.seconds
    assert (store.engine.dialect.name == "sqlite") == (second > first > 0)


class Soon(threading.Event):
    """Is set when it is asked for the second time."""

    asked = 0

    def is_set(self) -> bool:
        """Count the questions."""
        self.asked += 1
        return self.asked > 1


def test_a_worker_stops_in_the_midst_of_a_round(store: EventStore) -> None:
    """What it has folded stays, and the next one goes on from there."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text(str(number)) for number in range(PIECE + 1)])
    assert 0 == worker.run(store, stop=Soon())
    history = list(store.read(cid))
    assert expected(history[:PIECE]) == stored(store, cid)
    assert 1 == worker.run(wait_for_feed(store), once=True)
    assert expected(history) == stored(store, cid)


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


class TestWatch:
    """The look between two rounds: one query, that nothing slips past."""

    def test_it_sees_what_is_committed(self, store: EventStore) -> None:
        """The first look and every event count; without one nothing does."""
        with Watch(wait_for_feed(store).engine) as watch:
            assert watch.moved()
            assert not watch.moved()
            store.append(new_id(), [e.UserMessage.text("hello")])
            wait_for_feed(store)
            assert watch.moved()
            assert not watch.moved()

    def test_it_is_one_query(self, store: EventStore) -> None:
        """However many conversations there are, and without a transaction around it."""
        for _ in range(30):
            store.append(new_id(), [e.UserMessage.text("hello")])
        with statements(wait_for_feed(store)) as seen, Watch(store.engine) as watch:
            watch.moved()
            del seen[:]
            watch.moved()
            assert 1 == len(seen)
            assert seen[0].startswith("SELECT")

    def test_it_sees_what_commits_late(self, postgres_url: str) -> None:
        """An event that stands before one that was seen already is not missed."""
        with EventStore.open(postgres_url) as store, Watch(store.engine) as watch:
            with store.writing() as connection:
                store.append(new_id(), [e.UserMessage.text("slow")], connection=connection)
                store.append(new_id(), [e.UserMessage.text("quick")])
                assert watch.moved()
            assert watch.moved()

    def test_an_event_that_becomes_safe_to_pass_counts(self, postgres_url: str) -> None:
        """Then the cursors of the projections can move, though nothing new was committed."""
        with EventStore.open(postgres_url) as store, Watch(store.engine) as watch:
            with store.writing() as connection:
                connection.exec_driver_sql("SELECT pg_current_xact_id()")
                store.append(new_id(), [e.UserMessage.text("held back")])
                assert watch.moved()
            wait_for_feed(store)
            assert watch.moved()
            assert not watch.moved()

    def test_it_connects_again(self, private_postgres: PostgresServer) -> None:
        """A connection that was lost is an error once; what came since is seen."""
        with EventStore.open(private_postgres.url()) as store, Watch(store.engine) as watch:
            watch.moved()
            private_postgres.restart()
            with pytest.raises(CannotConnect):
                watch.moved()
            assert watch.moved()


def test_the_worker_outlives_its_server(private_postgres: PostgresServer) -> None:
    """While the server is away it tries again; once it is back it goes on where it was."""
    rounds: list[int] = []
    stop = threading.Event()
    with EventStore.open(private_postgres.url()) as store:
        cids = [converse(store, 1)]

        def after_round(count: int) -> None:
            rounds.append(count)
            match len(rounds):
                case 1:
                    private_postgres.stop("immediate")
                case 3:
                    private_postgres.start()
                    cids.append(converse(store, 1))
            # A crash may take back what was folded, but nothing that was appended.
            if len(rounds) > 3 and count:
                stop.set()

        worker.run(store, stop=stop, on_round=after_round)
        assert [1, 0, 0] == rounds[:3]
        for cid in cids:
            assert expected(store.read(cid)) == stored(store, cid)


def test_the_worker_stops_while_its_server_is_away(private_postgres: PostgresServer) -> None:
    """It need not wait for the server to be told to stop."""
    stop = threading.Event()
    rounds: list[int] = []

    def after_round(count: int) -> None:
        rounds.append(count)
        private_postgres.stop("immediate")
        if len(rounds) == 2:
            stop.set()

    with EventStore.open(private_postgres.url()) as store:
        assert 0 == worker.run(store, stop=stop, on_round=after_round)
    assert [0, 0] == rounds


def test_a_worker_that_shall_run_once_raises(private_postgres: PostgresServer) -> None:
    """Whoever waits for it to end is told why nothing was done."""
    with EventStore.open(private_postgres.url()) as store:
        private_postgres.stop("immediate")
        with pytest.raises(CannotConnect):
            worker.run(store, once=True)
