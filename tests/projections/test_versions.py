"""A projection of a higher version beside one of a lower: each finds its own tables."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import ProjectionSet, Views
from projections.engine import generations
from projections.engine.catch_up import catch_up
from projections.engine.follower import catch_up_behind
from projections.engine.projection import Projection
from projections.models.timeline import TIMELINE, TimelineProjection
from projections.upkeep import compare, rebuild
from tests.projections.support import converse, everything, live_of
from tests.projections.toys import Notes

OLD, NEW = Notes(version=1), Notes(version=2)


def install(store: EventStore, projection: Projection) -> None:
    """Install a projection as opening the views would."""
    with store.writing() as connection:
        generations.install(connection, [projection])


def texts(store: EventStore, source: str = "notes") -> list[str]:
    """Return what a plain SQL client sees."""
    with store.reading() as connection:
        return list(connection.execute(text(f"SELECT text FROM {source}")).scalars())


@pytest.fixture
def upgraded(store: EventStore) -> EventStore:
    """Give a store that old code has used, and that new code has begun to use."""
    store.append(new_id(), [e.UserMessage.text("one"), e.UserMessage.text("two")])
    install(store, OLD)
    catch_up_behind(store, [OLD])
    install(store, NEW)
    return store


def test_each_version_finds_its_own_generation(upgraded: EventStore) -> None:
    """Old code goes on with its tables, new code fills empty ones; installing again adds none."""
    install(upgraded, OLD)
    install(upgraded, NEW)
    assert (1, 2) == (live_of(upgraded, OLD).number, live_of(upgraded, NEW).number)
    catch_up_behind(upgraded, [OLD, NEW])
    assert ["by version 1"] * 2 == texts(upgraded, "notes_g1")
    assert ["by version 2"] * 2 == texts(upgraded, "notes_g2")


def test_the_stable_view_follows_the_newest(upgraded: EventStore) -> None:
    """A plain SQL client sees the new version's rows, from its first catch-up."""
    assert [] == texts(upgraded)
    catch_up_behind(upgraded, [NEW])
    assert ["by version 2"] * 2 == texts(upgraded)


def test_both_versions_are_kept_current(upgraded: EventStore) -> None:
    """While both run, a catch-up of each folds what is new."""
    catch_up_behind(upgraded, [NEW])
    cid = new_id()
    upgraded.append(cid, [e.UserMessage.text("three")])
    with upgraded.writing() as connection:
        for each in (OLD, NEW):
            catch_up(connection, [live_of(upgraded, each)], cid)
    assert [3, 3] == [len(texts(upgraded, name)) for name in ("notes_g1", "notes_g2")]


def test_a_rebuild_ends_the_old_version(upgraded: EventStore) -> None:
    """Its tables, heads and registry rows go with the cut-over of the new one."""
    catch_up_behind(upgraded, [NEW])
    rebuild(upgraded, ["notes"], projections=ProjectionSet([NEW]))
    assert ["by version 2"] * 2 == texts(upgraded)
    with upgraded.reading() as connection:
        assert generations.find_live(connection, OLD) is None
    assert [] == [name for name in everything(upgraded) if name in ("notes_g1", "notes_g2")]


def test_erasure_reaches_every_version(upgraded: EventStore) -> None:
    """What the old version's tables hold of a conversation goes too."""
    catch_up_behind(upgraded, [NEW])
    [cid] = [info.conversation_id for info in upgraded.list()]
    upgraded.erase(cid, reason="asked for")
    assert ([], []) == (texts(upgraded, "notes_g1"), texts(upgraded, "notes_g2"))


def test_old_code_goes_on_after_a_newer_version_took_over(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views that were made before the new version's cut-over install their own tables again."""
    views = Views(store)
    cid = converse(store, 1)
    before = views.timeline(cid)
    newer = TimelineProjection(version=TIMELINE.version + 1)
    with store.writing() as connection:
        target = generations.start_building(connection, newer, None)
        generations.cut_over(connection, target)
        while generations.drop_dead(connection):
            pass
        assert generations.find_live(connection, TIMELINE) is None
    assert before == views.timeline(cid)
    assert compare(store, ["timeline"]).ok


def test_a_cut_over_that_comes_too_late_changes_nothing(store: EventStore) -> None:
    """Of two rebuilds that share a generation, the slower finds it live, or replaced already."""
    with store.writing() as connection:
        shared = generations.start_building(connection, OLD, None)
        generations.cut_over(connection, shared)
        newest = generations.start_building(connection, OLD, None)
        generations.cut_over(connection, newest)
        generations.cut_over(connection, shared)
        while generations.drop_dead(connection):
            pass
        generations.cut_over(connection, shared)
    assert newest == live_of(store, OLD)
    assert [] == texts(store)
