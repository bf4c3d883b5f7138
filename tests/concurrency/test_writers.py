"""Sixteen processes write at once and some are killed: nothing is lost, doubled or torn."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import EventStore, RecordedEvent, new_id
from tests.concurrency.processes import Gate, running
from tests.concurrency.writer import read_notes, write
from tests.contract.facade import text_of

pytestmark = pytest.mark.usefixtures("fork_server")

WRITERS = 16
KILLED = 5
APPENDS = 15
OTHER_SESSIONS = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    """


class Tail:
    """A reader that follows the feed page by page, and keeps all it was handed."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._cursor: str | None = None
        self.events: list[RecordedEvent] = []

    def poll(self) -> None:
        """Read the next page."""
        page = self._store.read_all(after=self._cursor, limit=100)
        self._cursor = page.cursor
        self.events += page.events


@pytest.fixture(params=["one conversation", "many conversations"])
def shared(request: pytest.FixtureRequest) -> list[UUID]:
    """Give the conversations that all writers share, beside one that each has for itself."""
    return [new_id() for _ in range(1 if request.param == "one conversation" else 6)]


def test_nothing_is_lost_doubled_or_torn(
    database_url: str, tmp_path: Path, shared: list[UUID]
) -> None:
    """Every acknowledged event is at its version, once; a tailing reader saw each event once."""
    notes = tmp_path / "notes"
    notes.mkdir()
    with EventStore.open(database_url, pool_size=1) as store:
        tail = Tail(store)
        gate = Gate(WRITERS)
        choose = random.Random(7)  # noqa: S311 - the same victims in every run
        victims = choose.sample(range(WRITERS), KILLED)
        arguments = (database_url, str(notes), shared, APPENDS, list(victims), gate)
        with running(WRITERS, write, *arguments) as processes:
            gate.open()
            left: list[Any] = [process.sentinel for process in processes]
            while left:
                for sentinel in wait(left, timeout=0.01):
                    left.remove(sentinel)
                tail.poll()
                # Each victim has its turn when the feed has grown so far.
                if victims and len(tail.events) > 100 * (KILLED + 1 - len(victims)):
                    processes[victims.pop()].kill()
            codes = Counter(process.exitcode for process in processes)
        until_alone(store)
        stored = [e for info in store.list() for e in store.read(info.conversation_id)]
        follow(tail, lambda: len(tail.events) >= len(stored))
        verification = store.verify()

    assert {0: WRITERS - KILLED, -9: KILLED} == codes
    assert ((), len(stored)) == (verification.problems, verification.events)
    assert_gapless(stored)
    assert_acknowledged(stored, notes)
    assert_whole_batches(stored)
    assert_tailed(stored, tail.events)


def until_alone(store: EventStore) -> None:
    """Return once PostgreSQL has ended the sessions of killed writers, some of them by a commit."""
    if store.engine.dialect.name == "sqlite":
        return
    deadline = time.monotonic() + 30
    others = 1
    while others:
        assert time.monotonic() < deadline, f"{others} sessions of killed writers are still there"
        with store.reading() as connection:
            others = connection.execute(text(OTHER_SESSIONS)).scalar_one()


def follow(tail: Tail, complete: Callable[[], bool]) -> None:
    """Poll until the feed is complete: a killed writer's transaction may hold it up a moment."""
    deadline = time.monotonic() + 30
    while not complete() and time.monotonic() < deadline:
        tail.poll()
    tail.poll()


def assert_gapless(stored: list[RecordedEvent]) -> None:
    """No version is given out twice, and none is missing."""
    versions: dict[UUID, list[int]] = {}
    for event in stored:
        versions.setdefault(event.conversation_id, []).append(event.version)
    for found in versions.values():
        assert list(range(1, len(found) + 1)) == found


def assert_acknowledged(stored: list[RecordedEvent], notes: Path) -> None:
    """What the store acknowledged is there, at the version that it told."""
    places = {(e.conversation_id, e.version): e.event_id for e in stored}
    acknowledged = read_notes(notes)
    assert len(acknowledged) >= (WRITERS - KILLED) * APPENDS
    for stream, first, ids in acknowledged:
        assert ids == [places.get((stream, first + place)) for place in range(len(ids))]


def assert_whole_batches(stored: list[RecordedEvent]) -> None:
    """Of each append all events are there, side by side, or none is."""
    found: dict[str, list[tuple[int, str]]] = {}
    for event in stored:
        batch, place = text_of(event).split()
        found.setdefault(batch, []).append((event.version, place))
    for rows in found.values():
        size = len(rows)
        first = rows[0][0]
        assert [(first + place, f"{place}/{size}") for place in range(size)] == rows


def assert_tailed(stored: list[RecordedEvent], seen: list[RecordedEvent]) -> None:
    """The reader missed no event, saw none twice, and each conversation in order."""
    by_place = sorted(seen, key=lambda e: (e.conversation_id, e.version))
    assert sorted(stored, key=lambda e: (e.conversation_id, e.version)) == by_place
    versions: Counter[UUID] = Counter()
    for event in seen:
        versions[event.conversation_id] += 1
        assert versions[event.conversation_id] == event.version
