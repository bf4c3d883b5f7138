"""Rebuild: new tables beside the live ones, one cut-over, and nobody who notices."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import ProjectionSet, Views, reading
from projections.catalogue import PROJECTIONS
from projections.engine import catch_up as engine
from projections.engine import generations
from projections.engine import rebuild as rebuilding
from projections.engine.catch_up import catch_up
from projections.engine.follower import catch_up_behind
from projections.engine.generations import Generation
from projections.errors import ProjectionFailed, UnknownProjection
from projections.models.timeline import TIMELINE
from projections.upkeep import compare, status
from projections.upkeep import rebuild as rebuild_all
from tests.projections.support import converse, everything, expected, live_of, stored, turn
from tests.projections.toys import Poisoned


def test_a_rebuild_gives_the_same_tables(store: EventStore, views: Views) -> None:
    """Every table of every conversation equals a fresh fold, whether it was caught up before."""
    cids = [converse(store, 2) for _ in range(3)]
    views.timeline(cids[0])
    report = rebuild_all(store)
    assert (3, 42) == (report.conversations, report.events)
    for cid in cids:
        assert expected(store.read(cid)) == stored(store, cid)


def test_a_rebuild_replaces_what_was_damaged(store: EventStore, views: Views) -> None:
    """Rows that were changed by hand are right again, in the stable views as well."""
    cid = converse(store, 1)
    views.timeline(cid)
    table = live_of(store, TIMELINE).tables["timeline_items"].name
    with store.writing() as connection:
        connection.execute(text(f"UPDATE {table} SET text = 'damaged'"))
    rebuild_all(store, ["timeline"])
    with store.reading() as connection:
        texts = connection.execute(text("SELECT text FROM timeline_items")).scalars().all()
    assert "damaged" not in texts
    assert "find x0" in texts


def test_dead_generations_leave_nothing_behind(store: EventStore, views: Views) -> None:
    """After a rebuild there are only the tables, heads and registry rows of the live one."""
    cid = converse(store, 1)
    views.timeline(cid)
    rebuild_all(store)
    rebuild_all(store)
    left = everything(store)
    assert [] == [name for name in left if name.endswith(("_g1", "_g2"))]
    assert len(PROJECTIONS) == len(left["projections"]) == len(left["projection_heads"])
    assert all(", 3, " in row for row in left["projection_heads"])


def test_a_rebuild_of_one_leaves_the_others(store: EventStore, views: Views) -> None:
    """Only the named projection gets a new generation; an unknown name is refused as it stands."""
    converse(store, 1)
    rebuild_all(store, ["usage"])
    rebuild_all(store, "usage")
    assert {"usage": 3} == {
        each.name: each.generation for each in status(store) if each.generation != 1
    }
    for names in (["nothing"], "nothing"):
        with pytest.raises(UnknownProjection, match="nothing"):
            rebuild_all(store, names)


def test_progress_counts_up_to_all_events(
    store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is told after each page, in events, and ends at the total."""
    monkeypatch.setattr(rebuilding, "_PAGE_EVENTS", 10)
    monkeypatch.setattr(engine, "PIECE", 2)
    for _ in range(3):
        converse(store, 2)
    told: list[tuple[int, int]] = []
    rebuild_all(store, on_progress=lambda *both: told.append(both))
    assert [(14, 42), (28, 42), (42, 42)] == told


def test_the_last_pages_of_several_workers_are_smaller(
    store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So none of them waits long for another one's last page; one alone keeps to whole pages."""
    monkeypatch.setattr(rebuilding, "_PAGE_EVENTS", 10)
    monkeypatch.setattr(rebuilding, "_LEAST_PAGE_EVENTS", 4)
    for _ in range(40):
        store.append(new_id(), [e.UserMessage.text("one"), e.UserMessage.text("two")])
    target = Generation(TIMELINE, 99, None)
    shared, alone = (
        [
            sum(version for _, version in page)
            for page in rebuilding._pages(store, [target], 80, workers, 0.0)
        ]
        for workers in (2, 1)
    )
    assert [*[10] * 5, 8, 6, *[4] * 4] == shared
    assert [10] * 8 == alone


def test_what_is_appended_meanwhile_is_there_when_read(store: EventStore, views: Views) -> None:
    """Conversations that grow or begin during a rebuild are caught up by the reads after it."""
    grown = converse(store, 1)
    begun: list[UUID] = []

    def append(_done: int, _total: int) -> None:
        if not begun:
            store.append(grown, [e.UserMessage.text("meanwhile")])
            begun.append(converse(store, 1))

    rebuild_all(store, on_progress=append)
    assert "meanwhile" == views.timeline(grown)[-1].text
    assert 2 == len(views.conversations())
    assert compare(store).ok
    assert expected(store.read(begun[0])) == stored(store, begun[0])


def test_a_read_that_meets_the_cut_over_is_not_stale(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read across conversations that begins before a cut-over and ends after it misses nothing.

    It had caught up the old generation, and the new one lacks what came during the rebuild.
    """
    reader = Views(store)
    cid = converse(store, 1)
    real = catch_up_behind
    cut_over: list[Any] = []

    def then_cut_over(*arguments: Any, **options: Any) -> int:
        count = real(*arguments, **options)
        if cut_over:
            rebuilding._finish(store, cut_over.pop())
        return count

    monkeypatch.setattr(reading, "catch_up_behind", then_cut_over)
    with store.writing() as connection:
        targets = [generations.start_building(connection, each, None) for each in PROJECTIONS]
    rebuilding._rebuild_page(store, targets, [(cid, 7)])
    store.append(cid, [e.UserMessage.text("after the page")])
    cut_over.append(targets)
    assert ["after the page"] == [entry.last_user_text for entry in reader.conversations()]


def test_reads_go_on_and_are_never_stale_while_rebuilds_run(store: EventStore) -> None:
    """Readers and a writer work while every table is replaced again and again."""
    cid, other = converse(store, 3), converse(store, 3)
    stop, problems = threading.Event(), []
    reads = [0]

    def work() -> None:
        reader, version = Views(store), store.get(cid).version
        try:
            while not stop.is_set():
                store.append(cid, [e.UserMessage.text(f"news {version}")])
                check_fresh(reader, cid, f"news {version}")
                assert reader.run_state(other) is not None
                version, reads[0] = version + 1, reads[0] + 1
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 30
    while thread.is_alive() and time.monotonic() < deadline and reads[0] < 3:
        rebuild_all(store)
    stop.set()
    thread.join()
    assert [] == problems
    assert reads[0] >= 3
    assert compare(store).ok


def check_fresh(reader: Views, cid: UUID, news: str) -> None:
    """Expect each kind of view to know the latest message."""
    assert news == reader.timeline(cid)[-1].text
    assert news == reader.context(cid).messages[-1]["content"]
    [entry] = [each for each in reader.conversations() if each.conversation_id == cid]
    assert news == entry.last_user_text
    assert 12 == sum(total.calls for total in reader.usage())
    assert 6 == len(reader.tool_calls())


def test_a_broken_fold_is_named_and_nothing_is_cut_over(store: EventStore) -> None:
    """The error names projection, conversation and version; the live generation stays."""
    poisoned = Poisoned(at=3)
    with store.writing() as connection:
        generations.install(connection, [poisoned])
    live = live_of(store, poisoned)
    cid = new_id()
    store.append(cid, [e.UserMessage.text("one"), e.UserMessage.text("two")])
    with store.writing() as connection:
        catch_up(connection, [live], cid)
    before = stored(store, cid, [poisoned])
    store.append(cid, [e.UserMessage.text("three")])
    with pytest.raises(ProjectionFailed) as caught:
        rebuild_all(store, ["notes"], projections=ProjectionSet([poisoned]))
    assert ("notes", cid, 3) == (
        caught.value.projection,
        caught.value.conversation_id,
        caught.value.version,
    )
    assert live == live_of(store, poisoned)
    assert before == stored(store, cid, [poisoned])
    with store.reading() as connection:
        assert 2 == len(connection.execute(text("SELECT * FROM notes")).all())


def test_a_broken_fold_stops_a_read_and_writes_nothing(
    store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch, cid: UUID
) -> None:
    """A read of what cannot be folded raises; what was folded before can be read when mended."""
    store.append(cid, turn(0, "a"))
    views.timeline(cid)
    before = everything(store)
    store.append(cid, [e.UserMessage.text("more")])

    def fail(*_: Any) -> Any:
        raise ValueError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(type(TIMELINE), "fold", fail)
        with pytest.raises(ProjectionFailed, match=f"timeline failed .* {cid} at version 8"):
            views.timeline(cid)
        after = everything(store)
    assert before["projection_heads"] == after["projection_heads"]
    assert "more" == views.timeline(cid)[-1].text
