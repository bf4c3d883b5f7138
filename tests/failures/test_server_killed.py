"""PostgreSQL killed and started again on the same data: nothing that was acknowledged is lost.

What the recorder does meanwhile is in ``tests/crash/test_postgresql.py``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest
from sqlalchemy import make_url, text

from agent_eventstore import journal
from agent_eventstore.conversation import Conversation
from eventstore import EventStore, new_id
from eventstore.errors import CannotConnect, NotADatabase
from projections import Views, worker
from projections.engine import rebuild as rebuilding
from projections.models.timeline import TIMELINE
from projections.upkeep import rebuild, status
from tests.contract.facade import say, texts
from tests.postgres import PostgresServer, PostgresUnavailable, place_of_many_files
from tests.projections.support import converse, expected, stored

_PATIENCE_S = 30.0


def stop(server: PostgresServer) -> None:
    """End the server as an administrator does."""
    server.stop()


def crash(server: PostgresServer) -> None:
    """End the server at once; it recovers from its log at the next start."""
    server.stop("immediate")


def kill(server: PostgresServer) -> None:
    """Kill the server and its sessions, which left alone would answer for a while."""
    first = server.pid
    assert first is not None
    url = make_url(server.url()).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False)) as connection:
        others = [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity")]
    for pid in (first, *others):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def start(server: PostgresServer) -> None:
    """Start the server; one whose sessions have not all noticed yet is tried again."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return server.start()
        except PostgresUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


DEATHS = pytest.mark.parametrize("die", [stop, crash, kill])


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Give a server to these tests alone."""
    with PostgresServer(directory=place_of_many_files()) as found:
        yield found


@pytest.fixture
def store(server: PostgresServer) -> Iterator[EventStore]:
    """Give a store on that server, with its views installed."""
    with EventStore.open(server.url()) as store:
        Views(store)
        yield store


@DEATHS
def test_the_same_store_goes_on(
    store: EventStore, server: PostgresServer, die: Callable[[PostgresServer], None]
) -> None:
    """While the server is away every call says so; then all that was acknowledged is there."""
    views, cid = Views(store), new_id()
    for number in range(20):
        store.append(cid, say(str(number)))
    before = views.timeline(cid)
    die(server)
    calls: list[Callable[[], object]] = [
        lambda: store.append(cid, say("lost")),
        lambda: list(store.read(cid)),
        lambda: store.read_all(),
        lambda: store.get(cid),
        lambda: store.verify(),
        lambda: store.erase(cid, reason="test"),
        lambda: views.timeline(cid),
        lambda: views.usage(),
        lambda: worker.run(store, once=True),
        lambda: rebuild(store),
    ]
    for call in calls:
        with pytest.raises(CannotConnect):
            call()
    start(server)

    assert [str(number) for number in range(20)] == texts(store.read(cid))
    assert before == views.timeline(cid)
    assert 21 == store.append(cid, say("20")).version
    assert store.verify(cid).ok


@DEATHS
def test_rebuild(
    store: EventStore,
    server: PostgresServer,
    die: Callable[[PostgresServer], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends with the error; started again, it goes on with the same generation."""
    monkeypatch.setattr(rebuilding, "_PAGE_EVENTS", 1)
    cids = [converse(store, 1) for _ in range(4)]
    pages: list[int] = []

    def progress(events: int, _total: int) -> None:
        pages.append(events)
        if len(pages) == 2:
            die(server)

    with pytest.raises(CannotConnect):
        rebuild(store, ["timeline"], on_progress=progress)
    start(server)
    [begun] = [each.building for each in status(store) if each.building is not None]
    rebuild(store, ["timeline"])

    assert [begun] == [each.generation for each in status(store) if each.name == "timeline"]
    for cid in cids:
        assert expected(store.read(cid), [TIMELINE]) == stored(store, cid, [TIMELINE])


def test_worker(store: EventStore, server: PostgresServer) -> None:
    """It tries again until the server is back, and goes on where it was."""
    cids = [converse(store, 1) for _ in range(2)]
    stop, rounds = threading.Event(), list[int]()

    def after_round(count: int) -> None:
        rounds.append(count)
        if len(rounds) == 1:
            crash(server)
        elif len(rounds) == 2:
            start(server)
            cids.append(converse(store, 1))
        elif count:
            stop.set()

    worker.run(store, stop=stop, on_round=after_round)
    assert [0] == rounds[1:2]

    for cid in cids:
        assert expected(store.read(cid)) == stored(store, cid)


def test_recorder(
    store: EventStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had happened when the server was killed is written, once, when it is back."""
    monkeypatch.setattr(journal, "PATIENCE_S", 0.0)
    conversation = Conversation.start(store)

    def answer() -> None:
        with conversation.turn("one") as turn, turn.llm_call() as call:
            call.feed({"choices": [{"index": 0, "delta": {"content": "hi"}}]})
            kill(server)
            call.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})

    with pytest.raises(CannotConnect):
        answer()
    start(server)

    with conversation.turn("two"):
        pass
    kinds = [event.type for event in store.read(conversation.id)]
    assert ["assistant_message", "turn_end", "turn_start"] == kinds[-5:-2]
    assert 1 == kinds.count("assistant_message")
    assert store.verify(conversation.id).ok


def test_damaged_page(server: PostgresServer) -> None:
    """What the server finds damaged is reported as such, and is not a lost connection."""
    with EventStore.open(server.url()) as store:
        store.append(cid := new_id(), say("x" * 2_000))
        with store.reading() as connection:
            path = connection.execute(text("SELECT pg_relation_filepath('events')")).scalar_one()
    server.stop()
    with (server.directory / "data" / path).open("r+b") as file:
        for page in range(0, file.seek(0, os.SEEK_END), 8_192):
            file.seek(page + 4_096)
            file.write(b"\xff" * 64)
    server.start()

    with EventStore.open(server.url()) as store, pytest.raises(NotADatabase, match="damaged"):
        list(store.read(cid))
