"""Thousands of retractions and summaries: what they cost, and that they come to the same rows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy.event import listen

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views, worker
from projections.catalogue import PROJECTIONS
from projections.context import CONTEXT
from projections.engine.catch_up import catch_up
from projections.engine.folding import not_yet_within
from projections.engine.folds import PatchedRows, RowBuffer
from tests.exhaustive import partly
from tests.feed_wait import wait_for_feed
from tests.projections.support import expected, live_of, stored, turn
from tests.unit.projections.history import history

EVERYTHING = e.VersionRange(first=1, last=2**31 - 1)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list to which the rows that each patch matches are added."""
    steps: list[int] = []
    real = PatchedRows.patch

    def patch(self: PatchedRows, change: Any) -> Any:
        keys = real(self, change)
        steps.append(1 + len(keys))
        return keys

    monkeypatch.setattr(PatchedRows, "patch", patch)
    return steps


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda each: str(each.name))
def test_retractions_of_everything(projection: Any, counted: list[int]) -> None:
    """2,000 of them took the square of their number: each withdrew again what was withdrawn."""
    steps = []
    for number in (500, 1_000):
        counted.clear()
        retractions = [e.Retraction(versions=(EVERYTHING,)) for _ in range(number)]
        state, buffer = projection.initial(), RowBuffer(projection, fresh=True)
        for event in history(*turn(0, "x"), *retractions):
            state, changes = projection.fold(state, event)
            buffer.add(changes)
        steps.append(sum(counted))
    assert steps[1] <= 2 * steps[0] + 100


def _of_one_range(version: int) -> e.Summary:
    return e.Summary(text="s", versions=(e.VersionRange(first=1, last=7),))


def _of_everything(version: int) -> e.Summary:
    return e.Summary(text="s", versions=(EVERYTHING,))


def _of_what_was_said(version: int) -> e.Summary:
    return e.Summary(text="s", versions=(e.VersionRange(first=1, last=version - 1),))


def _of_the_one_before(version: int) -> e.Summary:
    return e.Summary(text="s", versions=(e.VersionRange(first=version - 1, last=version - 1),))


SUMMARIES = [_of_one_range, _of_everything, _of_what_was_said, _of_the_one_before]


@pytest.mark.parametrize("summary", SUMMARIES)
def test_summaries_of_what_was_summarised(summary: Any, counted: list[int]) -> None:
    """2,000 of one range took the square of their number: each covered all older ones again."""
    steps = []
    for number in (250, 500, 1_000):
        counted.clear()
        told = [summary(8 + each) for each in range(number)]
        state, buffer, changed = CONTEXT.initial(), RowBuffer(CONTEXT, fresh=True), 0
        for event in history(*turn(0, "x"), *told):
            state, changes = CONTEXT.fold(state, event)
            buffer.add(changes)
            changed += len(changes)
        steps.append(sum(counted) + changed)
    assert steps[1] <= 2 * steps[0] + 100
    assert steps[2] <= 2 * steps[1] + 100


@pytest.mark.parametrize("summary", partly(SUMMARIES))
def test_summaries_of_rows_that_are_stored(sqlite_url: str, summary: Any) -> None:
    """Each is caught up by itself: then the database looks no further than what is new.

    SQLite counts the steps of its statements; a read looks at each summary, once.
    """
    looked: list[int] = []
    with EventStore.open(sqlite_url) as store:

        def count(connection: Any, _record: Any) -> None:
            connection.set_progress_handler(lambda: looked.append(1), 20)

        views = Views(store)
        listen(store.engine, "connect", count)
        store.close()
        cid, live = new_id(), live_of(store, CONTEXT)
        store.append(cid, turn(0, "x"))
        steps, reads, version = [], [], 7
        for number in (30, 60, 120):
            looked.clear()
            for _ in range(number):
                version = store.append(cid, [summary(version + 1)]).version
                with store.writing() as connection:
                    catch_up(connection, [live], cid)
            steps.append(len(looked))
            looked.clear()
            views.context(cid)
            reads.append(len(looked))
    assert steps[1] <= 2 * steps[0] + 100
    assert steps[2] <= 2 * steps[1] + 100
    assert reads[2] - reads[1] <= 2 * (reads[1] - reads[0]) + 20


def test_patches_of_rows_that_are_stored(store: EventStore, views: Views) -> None:
    """Many are applied at once, and come to what they do one by one."""
    drawn, cid = random.Random(7), new_id()  # noqa: S311 - the same each time
    for _ in range(4):
        after = max((event.version for event in store.read(cid)), default=0)
        payloads: list[e.Payload] = [*turn(after, "x"), *turn(after + 7, "y")]
        for _ in range(12):
            first = drawn.randint(1, after + 14)
            within = e.VersionRange(first=first, last=first + drawn.choice([0, 2, 9]))
            payloads.append(
                drawn.choice(
                    [e.Retraction(versions=(within,)), e.Summary(text="s", versions=(within,))]
                )
            )
        store.append(cid, payloads)
        worker.run(wait_for_feed(store), once=True)
        assert expected(store.read(cid)) == stored(store, cid)


def test_ranges_that_are_new() -> None:
    """What lies between known ranges is new; the known ones are joined, and only so many kept."""
    new, known = not_yet_within([(1, 9), (20, 30)], [[3, 4], [8, 12], [31, 40]])
    assert [(1, 2), (5, 7), (20, 30)] == new
    assert [[1, 12], [20, 40]] == known
    assert ([], known) == not_yet_within([(2, 12), (25, 40)], known)
    apart = [(each, each) for each in range(1, 1_000, 2)]
    assert 64 == len(not_yet_within(apart, [])[1])
