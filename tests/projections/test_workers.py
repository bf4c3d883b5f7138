"""Several workers: each conversation is folded once, and nobody waits long for a dead one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from uuid import UUID, uuid5

import pytest

from eventstore import EventStore, new_id
from eventstore.database import feed
from projections import PROJECTIONS, ProjectionSet, Views, worker
from projections.engine import catch_up, members, rebuild
from projections.engine.catch_up import Begin
from projections.engine.follower import catch_up_behind, left_behind
from projections.engine.generations import find_all_live
from projections.engine.members import Membership, WorkShare
from projections.engine.set_aside import catch_up_or_set_aside
from projections.upkeep import RebuildReport, status, workers
from projections.upkeep import rebuild as rebuild_projections
from tests.cli.program import run
from tests.contract.facade import say
from tests.projections.toys import Notes, Poisoned

POISONED = ProjectionSet([Poisoned()])


def _filled(store: EventStore, count: int = 60) -> list[UUID]:
    return [store.append(new_id(), say("1", "2")).conversation_id for _ in range(count)]


def _behind(store: EventStore) -> int:
    return sum(each.behind for each in status(store, PROJECTIONS))


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> Counter[UUID]:
    """Count how often each conversation is written."""
    counts: Counter[UUID] = Counter()
    save = catch_up.CatchUp.save

    def counted(self: catch_up.CatchUp, connection: object) -> object:
        counts[self._conversation_id] += 1
        return save(self, connection)  # type: ignore[arg-type]

    monkeypatch.setattr(catch_up.CatchUp, "save", counted)
    return counts


@contextmanager
def _member(store: EventStore) -> Iterator[Membership]:
    with Membership(store, "follow", PROJECTIONS) as found:
        found.renew()
        yield found


class TestShares:
    """How the conversations are divided."""

    @pytest.mark.parametrize("count", [1, 2, 3, 7])
    def test_each_conversation_is_in_one(self, count: int) -> None:
        """Whatever their ids are made of, conversations are in one share, and shares are even."""
        ids = [new_id() for _ in range(3_000)]
        ids += [uuid5(ids[0], str(number)) for number in range(3_000)]
        owners = [[s for s in range(count) if WorkShare(s, count).has(each)] for each in ids]
        assert {1} == {len(each) for each in owners}
        sizes = Counter(each[0] for each in owners)
        assert len(sizes) == count
        assert max(sizes.values()) < 1.25 * len(ids) / count

    def test_members_divide_and_leave(self, store: EventStore) -> None:
        """Shares are counted anew when a worker comes, and when it goes."""
        with _member(store) as first:
            assert WorkShare(0, 1) == first.share
            with _member(store) as second:
                first._due_at = 0.0
                assert {WorkShare(0, 2), WorkShare(1, 2)} == {first.renew(), second.share}
                assert [(1, 2), (2, 2)] == [(each.share, each.shares) for each in workers(store)]
            first._due_at = 0.0
            assert WorkShare(0, 1) == first.renew()
        assert () == workers(store)

    def test_a_dead_one_is_left_out(
        self, store: EventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that does not renew its row counts no longer, and its row is removed."""
        dead = Membership(store, "follow", PROJECTIONS)
        dead.renew()
        monkeypatch.setattr(members, "GONE_S", 0)
        monkeypatch.setattr(members, "_RENEW", members._RENEW.replace("{clock}", "{clock} + 5"))
        with _member(store) as alive:
            assert WorkShare(0, 1) == alive.share
        monkeypatch.undo()
        assert () == workers(store)


class TestFollowing:
    """Workers that catch up at once."""

    def test_each_conversation_is_folded_once(self, views: Views, saved: Counter[UUID]) -> None:
        """Two workers fold everything, and nothing twice."""
        ids, store = _filled(views.store), views.store
        with _member(store) as first, _member(store) as second:
            first._due_at = 0.0
            first.renew()
            done = [
                catch_up_behind(store, PROJECTIONS, share=partial(getattr, each, "share"))
                for each in (second, first)
            ]
        assert len(ids) == sum(done)
        assert min(done) > 0
        assert {1} == {saved[each] for each in ids}
        assert 0 == _behind(store)

    def test_the_cursor_waits_for_the_others(self, views: Views) -> None:
        """Until the other share is folded, lists still find what is missing; then none looks."""
        ids, store = _filled(views.store), views.store
        first, second = WorkShare(0, 2), WorkShare(1, 2)
        catch_up_behind(store, PROJECTIONS, share=partial(WorkShare, first.number, 2))
        assert 0 < _behind(store)
        assert {*ids} == {each.conversation_id for each in views.conversations(limit=500)}
        late = _filled(store)
        for share in (first, second, first):
            catch_up_behind(store, PROJECTIONS, share=partial(WorkShare, share.number, 2))
        assert 0 == left_behind(store, PROJECTIONS)
        with store.reading() as connection:
            for generation in find_all_live(connection, PROJECTIONS):
                assert generation is not None
                assert [] == feed.gained(connection, generation.cursor)
        assert {*ids, *late} == {each.conversation_id for each in views.conversations(limit=500)}

    def test_what_is_set_aside_holds_nobody_up(self, views: Views) -> None:
        """The cursor passes what another worker could not fold."""
        store = views.store
        Views(store, POISONED)
        ids = [store.append(new_id(), say("fine", "poison")).conversation_id for _ in range(20)]
        assert any(WorkShare(1, 2).has(each) for each in ids)
        for number in (1, 0):
            catch_up_behind(store, POISONED, share=partial(WorkShare, number, 2))
        assert 0 == left_behind(store, POISONED)
        with store.reading() as connection:
            for generation in find_all_live(connection, POISONED):
                assert generation is not None
                assert [] == feed.gained(connection, generation.cursor)

    def test_what_is_set_aside_in_one_projection_only(self, views: Views) -> None:
        """The cursor waits while the other worker has not folded it for the others."""
        store = views.store
        Views(store, POISONED)
        own = next(each for each in iter(new_id, None) if WorkShare(1, 2).has(each))
        store.append(own, say("fine", "poison"))
        with store.reading() as connection:
            [notes] = find_all_live(connection, POISONED.own)
        assert notes is not None
        catch_up_or_set_aside(Begin(store.reading, store.writing), [notes], own)
        catch_up_behind(store, POISONED, share=partial(WorkShare, 0, 2))
        with store.reading() as connection:
            for generation in find_all_live(connection, POISONED):
                assert generation is not None
                assert own in feed.gained(connection, generation.cursor)
        assert own in {each.conversation_id for each in views.conversations()}

    def test_workers_for_other_projections_share_nothing(self, views: Views) -> None:
        """A worker with a product's own projections folds all conversations for them."""
        store, own = views.store, ProjectionSet([Notes()])
        Views(store, own)
        with _member(store) as one, Membership(store, "follow", own) as other:
            assert (WorkShare(0, 1), WorkShare(0, 1)) == (one.renew(), other.renew())
            _filled(store)
            catch_up_behind(store, own, share=partial(getattr, other, "share"))
        assert 0 == left_behind(store, own)

    def test_once_does_a_dead_workers_share(self, views: Views) -> None:
        """``--once`` does not end before everything is folded, whoever should have done it."""
        _filled(views.store)
        dead = Membership(views.store, "follow", PROJECTIONS)
        dead.renew()
        assert 60 == worker.run(views.store, once=True)
        assert 0 == _behind(views.store)

    def test_many_threads(self, views: Views) -> None:
        """Workers that come and go while a product writes leave nothing behind."""
        store, stop = views.store, threading.Event()
        threads = [
            threading.Thread(target=worker.run, args=(store,), kwargs={"stop": stop})
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
            _filled(store, 20)
        stop.set()
        for thread in threads:
            thread.join()
        worker.run(store, once=True)
        assert 0 == _behind(store)
        assert () == workers(store)


class TestRebuilding:
    """Rebuilds that share the work."""

    def test_places_to_begin(self) -> None:
        """Each rebuild that joins begins in the middle of a part that nobody has begun."""
        assert [0, 0.5, 0.25, 0.75, 0.125] == [rebuild._start_of(each) for each in range(5)]

    def test_join(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that joins in the middle folds a part, and the views are whole."""
        ids, store = _filled(views.store, 450), views.store
        joined: list[RebuildReport] = []
        rebuild_projections(store)

        def meanwhile(_done: int, _total: int) -> None:
            if not joined:
                joined.append(rebuild_projections(store, ["usage"], join=True))

        monkeypatch.setattr(rebuild, "_PAGE_CONVERSATIONS", 50)
        report = rebuild_projections(store, ["usage"], on_progress=meanwhile)
        assert ("usage",) == joined[0].projections
        assert joined[0].conversations + report.conversations <= len(ids) + 50
        assert 0 < joined[0].conversations
        assert 0 == _behind(store)

    def test_nothing_to_join(self, views: Views, database_url: str) -> None:
        """Without an unfinished rebuild none is begun."""
        _filled(views.store, 3)
        before = status(views.store, PROJECTIONS)
        assert () == rebuild_projections(views.store, join=True).projections
        done = run("projections", "rebuild", "--join", url=database_url)
        assert (0, "no rebuild to join\n") == (done.status, done.out)
        assert [each.generation for each in before] == [
            each.generation for each in status(views.store, PROJECTIONS)
        ]
        assert 2 == run("projections", "rebuild", "--join", "--diff", url=database_url).status


def test_status_shows_who_does_what(views: Views, database_url: str) -> None:
    """The command lists the workers that are alive."""
    with _member(views.store), Membership(views.store, "rebuild", PROJECTIONS) as other:
        other.renew()
        out = run("projections", "status", url=database_url).out
    assert "worker: process" in out
    assert "rebuild: process" in out
    assert "share 1 of 1" in out


def test_a_killed_worker_is_replaced(views: Views, database_url: str) -> None:
    """A worker that is killed leaves its share to another process, which folds all of it."""
    command = [sys.executable, "-m", "agent_eventstore.cli", "--db", database_url]
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(subprocess.Popen([*command, "projections", "run"]))
            for _ in range(2)
        )
        try:
            _until(lambda: len(workers(views.store)) == 2)
            first.kill()
            _filled(views.store, 20)
            _until(lambda: _behind(views.store) == 0)
            _until(lambda: [second.pid] == [each.process_id for each in workers(views.store)])
        finally:
            first.kill()
            second.terminate()
    assert 0 == second.returncode
    assert () == workers(views.store)


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)
