"""Heads: what one query says of every projection, and what is locked."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore, events, new_id
from eventstore.sql.backend import backend_of
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine import generations, heads
from projections.engine.catch_up import catch_up
from projections.engine.generations import Generation, gone
from projections.errors import GenerationGone
from projections.models.timeline import TIMELINE
from projections.models.usage import USAGE
from projections.upkeep import rebuild
from tests.projections.toys import Notes


def begun(store: EventStore) -> UUID:
    """Return a new conversation with one event."""
    cid = new_id()
    store.append(cid, [events.UserMessage.text("hello")])
    return cid


def live(store: EventStore) -> list[Generation]:
    """Return the live generations of the timeline and the usage."""
    with store.reading() as connection:
        found = generations.find_all_live(connection, [TIMELINE, USAGE])
    return [each for each in found if each is not None]


def test_standing_tells_what_is_current(views: Views) -> None:
    """Each projection is current or not by itself, in the order asked for."""
    cid, [timeline, usage] = begun(views.store), live(views.store)
    with views.store.writing() as connection:
        catch_up(connection, [usage], cid)
        found = heads.statuses(connection, [TIMELINE, USAGE], cid)
    assert [heads.HeadStatus(timeline, False, 1), heads.HeadStatus(usage, True, 1)] == found


def test_standing_of_an_append_after_the_head(views: Views) -> None:
    """What has been caught up is no longer current once something is appended."""
    cid = begun(views.store)
    views.timeline(cid)
    views.store.append(cid, [events.UserMessage.text("and more")])
    with views.store.reading() as connection:
        found = heads.statuses(connection, [TIMELINE], cid)
    assert found is not None
    assert [False] == [each.current for each in found]


def test_standing_of_no_conversation(views: Views) -> None:
    """A conversation that does not exist has no standing."""
    with views.store.reading() as connection:
        assert heads.statuses(connection, [TIMELINE], new_id()) is None


def test_standing_of_a_version_without_a_generation(views: Views) -> None:
    """A projection of which nothing is live is not current."""
    cid = begun(views.store)
    with views.store.reading() as connection:
        found = heads.statuses(connection, [Notes()], cid)
    assert [heads.HeadStatus(None, False, 1)] == found


def test_standing_follows_a_cut_over(views: Views) -> None:
    """After a rebuild the new generation is the one that stands."""
    cid, [before, _] = begun(views.store), live(views.store)
    rebuild(views.store, ["timeline"])
    with views.store.reading() as connection:
        found = heads.statuses(connection, [TIMELINE], cid)
    assert found is not None
    assert [before.number + 1] == [each.generation and each.generation.number for each in found]


def test_behind_names_those_that_lack_events(views: Views) -> None:
    """Of the generations asked about, those that have folded everything are left out."""
    cid, [timeline, usage] = begun(views.store), live(views.store)
    with views.store.writing() as connection:
        catch_up(connection, [usage], cid)
        assert {cid: [timeline]} == heads.behind(connection, [timeline, usage], [cid])


def test_locked_heads_begin_at_nothing(views: Views) -> None:
    """What was never folded is locked at version 0, in the order asked for."""
    cid, [timeline, usage] = begun(views.store), live(views.store)
    with views.store.writing() as connection:
        found = heads.lock(connection, [usage, timeline], cid)
    assert [heads.FoldHead(usage, 0, {}), heads.FoldHead(timeline, 0, {})] == found


def test_saved_heads_are_read_back(views: Views) -> None:
    """A head is saved over what was there, with its state as it was."""
    cid, [timeline, usage] = begun(views.store), live(views.store)
    saved = heads.FoldHead(timeline, 7, {"open": ["a\x00\ud800", None]})
    with views.store.writing() as connection:
        heads.lock(connection, [timeline, usage], cid)
        for each in (heads.FoldHead(timeline, 3, {}), saved):
            heads.save(backend_of(connection), cid, [each]).run(connection)
        found = heads.read(connection, [timeline], cid)
    assert {("timeline", timeline.number): saved} == found


def test_the_newest_live_generation_of_the_own_version_counts() -> None:
    """Generations of other versions and other projections are passed over."""
    projection = Notes(version=2)
    rows: list[generations.LiveRow] = [
        ("notes", 2, 9, "b"),
        ("notes", 2, 10, "c"),
        ("notes", 1, 11, "d"),
        ("others", 2, 12, "e"),
    ]
    assert Generation(projection, 10, "c") == generations.newest(rows, projection)


def test_all_live_generations_are_found_in_one_look(views: Views) -> None:
    """Every projection has one after the views are made, and an unknown one has none."""
    with views.store.reading() as connection:
        found = generations.find_all_live(connection, [*PROJECTIONS, Notes()])
    names = [each and each.projection.name for each in found]
    assert [*(known.name for known in PROJECTIONS), None] == names


def test_a_missing_table_of_the_drivers_own_call_is_a_cut_over(store: EventStore) -> None:
    """A table that has vanished between finding and using it is looked for again."""
    with pytest.raises(GenerationGone), gone(), store.reading() as connection:
        connection.connection.cursor().execute("SELECT * FROM timeline_items_g99")
