"""A rebuild that is killed loses at most a page, and is finished by the next one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress
from uuid import UUID

import pytest

from eventstore import EventStore
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine import generations
from projections.engine import rebuild as rebuilding
from projections.engine.catch_up import is_current
from projections.upkeep import compare, rebuild, status
from tests.exhaustive import partly
from tests.projections.children import PAGE_EVENTS, rebuild_and_die
from tests.projections.processes import kill, start
from tests.projections.support import converse, everything, expected, stored
from tests.warm import Programs

pytestmark = pytest.mark.usefixtures("fork_server")


def run_to_death(url: str, where: str) -> None:
    """Run a rebuild in one process until it kills itself."""
    child = start(rebuild_and_die, url, where)
    try:
        child.join(60)
        assert -signal.SIGKILL == child.exitcode
    finally:
        kill(child)


def run_to_death_with_workers(programs: Programs, url: str, workers: int) -> None:
    """Run a rebuild until it kills itself, and expect its workers to end by themselves.

    An orphan would go on holding connections and locks. The workers have inherited the pipe, which
    ends when the last of them has ended.
    """
    command = ["-m", "tests.projections.children", url, str(workers)]
    with programs.start(*command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert [child.stdout] == select.select([child.stdout], [], [], 60)[0]
            assert "" == child.stdout.read()
            assert -signal.SIGKILL == child.wait(60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def conversations(store: EventStore) -> list[UUID]:
    """Append six conversations of two turns, and read some of them."""
    cids = [converse(store, 2) for _ in range(6)]
    Views(store).timeline(cids[0])
    return cids


def check(store: EventStore, cids: list[UUID]) -> None:
    """Expect the tables of a fresh fold, and no generation but the live one."""
    assert compare(store).ok
    for cid in cids:
        assert expected(store.read(cid)) == stored(store, cid)
    left = everything(store)
    assert [] == [name for name in left if name.endswith("_g1")]
    assert len(PROJECTIONS) == len(left["projections"])
    assert [None] * len(PROJECTIONS) == [each.building for each in status(store)]


@pytest.mark.parametrize("workers", partly([2, 1]))
def test_a_killed_rebuild_goes_on_where_it_stopped(
    store: EventStore,
    database_url: str,
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
    programs: Programs,
) -> None:
    """Started again, it folds what is missing alone, and ends with the same tables.

    Meanwhile a half-built generation is nobody's concern: reads are those of the live one.
    """
    cids = conversations(store)
    if workers == 1:
        run_to_death(database_url, "progress")
    else:
        run_to_death_with_workers(programs, database_url, workers)
    built = {each.built for each in status(store)}
    # Of two workers, the one that was given this conversation may not have come to its end.
    with store.reading() as connection:
        begun = generations.building(connection, PROJECTIONS[0])
        assert begun is not None
        erased = bool(is_current(connection, begun, cids[0]))
    store.erase(cids[0], reason="asked for", versions=[1])
    assert "erasure" == Views(store).timeline(cids[0])[-1].kind
    monkeypatch.setattr(rebuilding, "_PAGE_EVENTS", PAGE_EVENTS)
    # Two processes of their own cost two seconds; on SQLite the command line's tests have them.
    together = workers if store.engine.dialect.name == "postgresql" else 1
    report = rebuild(store, workers=together)
    assert 0 < report.conversations <= len(cids)
    assert {len(cids) - report.conversations + erased} == built
    check(store, cids)


@pytest.mark.parametrize("where", ["cut_over", "drop_dead"])
def test_a_rebuild_killed_at_its_end_is_finished(
    store: EventStore, database_url: str, where: str
) -> None:
    """Killed beside the cut-over, what reads see is whole, and the next rebuild cleans up."""
    cids = conversations(store)
    run_to_death(database_url, where)
    views = Views(store)
    assert 6 == len(views.conversations())
    report = rebuild(store)
    assert (0 if where == "cut_over" else 6) == report.conversations
    check(store, cids)
