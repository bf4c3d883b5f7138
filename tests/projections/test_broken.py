"""What cannot be folded is set aside: named and noted, and never in the way of the rest."""

from __future__ import annotations

from uuid import UUID

import pytest

from agent_eventstore.cli.program import FOUND
from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.errors import BlobDamaged
from projections import PROJECTIONS, ProjectionSet, Views, worker
from projections.engine import lag
from projections.engine.follower import catch_up_behind
from projections.engine.set_aside import FoldFailure
from projections.errors import ProjectionFailed
from projections.upkeep import rebuild
from tests.cli.program import run
from tests.feed_wait import wait_for_feed
from tests.projections.support import converse, everything, expected, stored
from tests.projections.toys import OURS, OURS_PLACE, Marked, Notes, Poisoned

MARKED = e.UserMessage.text("poison")


@pytest.fixture
def marked(store: EventStore) -> Marked:
    """Give that projection, with its tables."""
    Views(store, OURS)
    [toy] = OURS.own
    assert isinstance(toy, Marked)
    return toy


@pytest.fixture
def broken(store: EventStore, marked: Marked) -> UUID:
    """Give the first of three conversations, which is broken at version 2."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text("one"), MARKED])
    converse(store, 1)
    converse(store, 1)
    return cid


def damage_blob(store: EventStore) -> UUID:
    """Append a conversation whose second event is in a blob that cannot be unpacked."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text("one"), e.UserMessage.text("x" * 100_000)])
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE blobs SET content = substr(content, 1, 8)")
    return cid


def noted(store: EventStore) -> list[FoldFailure]:
    """Return what `status` lists."""
    return set_aside(store, OURS)


def test_a_rebuild_sets_aside_what_it_cannot_fold(
    store: EventStore, marked: Marked, broken: UUID
) -> None:
    """The rest is cut over; the report and the status name conversation, version and error."""
    report = rebuild(store, projections=OURS, skip_broken=True)
    [failure] = report.set_aside
    assert [failure] == noted(store)
    assert (broken, "notes", 2, 2, "Poison: version 2") == (
        failure.conversation_id,
        failure.projection,
        failure.generation,
        failure.version,
        failure.error,
    )
    assert {} == stored(store, broken, [marked])["notes"]
    assert expected(store.read(broken)) == stored(store, broken)
    others = [each.conversation_id for each in store.list() if each.conversation_id != broken]
    for cid in others:
        assert expected(store.read(cid), [marked]) == stored(store, cid, [marked])


@pytest.mark.parametrize("version", [1, 3], ids=["taken back", "mended"])
def test_fold_that_is_replaced(store: EventStore, version: int) -> None:
    """What a broken version of a fold has set aside is not told of the one that is in its place."""
    for said in ("one", "two"):
        store.append(new_id(), [e.UserMessage.text(said)])
    sound, poisoned = ProjectionSet([Notes(version)]), ProjectionSet([Poisoned(2)])
    Views(store, ProjectionSet([Notes(1)])).rows("notes")
    rebuild(store, ["notes"], projections=poisoned, skip_broken=True)
    assert 2 == len(set_aside(store, poisoned))

    assert 2 == len([*Views(store, sound).rows("notes")])
    assert [] == set_aside(store, sound)
    assert 2 == len(set_aside(store, poisoned))


def set_aside(store: EventStore, projections: ProjectionSet) -> list[FoldFailure]:
    """Return what `status` lists for code that has these projections."""
    return [failure for each in lag.status(store, projections) for failure in each.set_aside]


def test_without_the_option_a_rebuild_stops(store: EventStore, broken: UUID) -> None:
    """The error names the conversation, nothing is cut over and nothing is noted."""
    with pytest.raises(ProjectionFailed, match=f"notes failed .* {broken} at version 2"):
        rebuild(store, projections=OURS)
    assert {1} == {each.generation for each in lag.status(store, OURS)}
    assert [] == noted(store)


@pytest.mark.exhaustive_when("postgresql")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_row_is_set_aside(store: EventStore, views: Views, workers: int) -> None:
    """A blob that cannot be unpacked is named for every projection, also by other processes."""
    cid, other = damage_blob(store), converse(store, 1)
    with pytest.raises(ProjectionFailed, match=f"{cid} at version 2"):
        rebuild(store, workers=workers)
    report = rebuild(store, workers=workers, skip_broken=True)
    assert {(cid, 2)} == {(each.conversation_id, each.version) for each in report.set_aside}
    assert sorted(each.name for each in PROJECTIONS) == sorted(
        each.projection for each in report.set_aside
    )
    assert expected(store.read(other)) == stored(store, other)


def test_a_read_of_what_is_broken_raises(store: EventStore, views: Views) -> None:
    """It names conversation and version, with the damage as its cause, also once set aside."""
    cid = damage_blob(store)
    worker.run(store, projections=OURS, once=True)
    with pytest.raises(ProjectionFailed) as caught:
        views.timeline(cid)
    assert (cid, 2) == (caught.value.conversation_id, caught.value.version)
    assert isinstance(caught.value.__cause__, BlobDamaged)


def test_a_worker_goes_on_past_what_is_broken(
    store: EventStore, marked: Marked, broken: UUID
) -> None:
    """The others are caught up, the broken one is noted, and the next round finds nothing."""
    assert 2 == worker.run(wait_for_feed(store), projections=OURS, once=True)
    assert [(broken, 2)] == [(each.conversation_id, each.version) for each in noted(store)]
    assert {"notes": 1} == {
        each.name: each.behind for each in lag.status(store, OURS) if each.behind
    }
    before = everything(store)
    assert 0 == catch_up_behind(store, (*PROJECTIONS, marked))
    assert before == everything(store)


def test_new_events_have_it_tried_again(
    store: EventStore, marked: Marked, broken: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the fold is mended, the next event brings the conversation back and ends the note."""
    catch_up_behind(store, [marked])
    assert 1 == len(noted(store))
    monkeypatch.setattr(Marked, "fold", Notes.fold)
    store.append(broken, [e.UserMessage.text("three")])
    catch_up_behind(store, [marked])
    assert [] == noted(store)
    assert 3 == len(stored(store, broken, [marked])["notes"])


def test_a_worker_tries_again_when_it_starts(
    store: EventStore, marked: Marked, broken: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that was mended needs no new event: the note's row itself is gone."""
    worker.run(store, projections=OURS, once=True)
    monkeypatch.setattr(Marked, "fold", Notes.fold)
    worker.run(store, projections=OURS, once=True)
    assert [] == everything(store)["projection_failures"]
    assert 2 == len(stored(store, broken, [marked])["notes"])


def test_an_erasure_removes_the_note(store: EventStore, marked: Marked, broken: UUID) -> None:
    """An error's text may quote what was erased."""
    catch_up_behind(store, [marked])
    assert 1 == len(everything(store)["projection_failures"])
    store.erase(broken, reason="asked for")
    assert [] == everything(store)["projection_failures"]


def test_the_command_lists_what_was_set_aside(
    store: EventStore, database_url: str, broken: UUID
) -> None:
    """It ends with status 1; ``status`` goes on listing the conversation, also as JSON."""
    ours = ("--projections", OURS_PLACE)
    done = run("projections", "rebuild", "--skip-broken", *ours, url=database_url)
    assert FOUND == done.status
    shown = run("projections", "status", *ours, url=database_url)
    assert [True, True] == [str(broken) in each.out for each in (done, shown)]
    found = run("projections", "status", "--json", *ours, url=database_url).document
    [failure] = [failure for each in found["projections"] for failure in each["set_aside"]]
    assert (str(broken), 2) == (failure["conversation_id"], failure["version"])
