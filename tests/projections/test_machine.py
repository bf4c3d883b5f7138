"""Any interleaving of appends, reads, catch-ups, rebuilds and erasures ends in the right tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from agent_eventstore.branching import edited, regenerated, rewound, switched
from agent_eventstore.errors import BranchRefused
from eventstore import EventStore, RecordedEvent, new_id
from eventstore import events as e
from eventstore.errors import EventsShared, InvalidEvent
from eventstore.events import BranchSwitch, Meta, NewEvent, Payload, UserMessage
from projections import ProjectionSet, Views, worker
from projections.engine import catch_up as engine_module
from projections.engine import follower
from projections.engine import rebuild as rebuild_module
from projections.engine.catch_up import catch_up
from projections.engine.follower import catch_up_behind
from projections.engine.projection import Change, State
from projections.errors import ProjectionFailed
from projections.upkeep import compare, rebuild
from tests.projections.support import expected, live_of, read_all_views, stored, turn
from tests.projections.toys import Notes, Poison
from tests.properties.histories import metas, payloads
from tests.properties.machines import explore

Changing = Callable[[EventStore, UUID, int], BranchSwitch | None]
CHANGES: st.SearchStrategy[Changing] = st.sampled_from(
    [
        lambda *asked: edited(*asked).switch,
        lambda store, cid, _: regenerated(store, cid).switch,
        rewound,
        lambda store, cid, at: switched(store, cid, _alternative(store, cid, at)),
    ]
)
EVENTS = st.lists(st.tuples(payloads(), metas()), min_size=1, max_size=6)
PLACES = st.integers(0, 2)
VIEWS = st.sampled_from(["timeline", "branches", "context", "run_state", "open_work"])


@dataclass(frozen=True, slots=True)
class Fickle(Notes):
    """A projection that cannot fold some messages while it is broken, and can again later."""

    broken: ClassVar[bool] = False

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Fold as `Notes` does, or raise."""
        if Fickle.broken and event.type == UserMessage.type and event.version % 3 == 1:
            raise Poison(f"version {event.version}")
        return Notes.fold(self, state, event)


ALL = ProjectionSet([Fickle()])
NAMES = st.lists(st.sampled_from([each.name for each in ALL]), min_size=1, max_size=3, unique=True)


class ReadSide(RuleBasedStateMachine):
    """Everything that may happen to a store whose projections are in use.

    Earlier examples leave their conversations, and what they had begun, in the database.
    """

    url: str

    def __init__(self) -> None:
        super().__init__()
        Fickle.broken = False
        self.store = EventStore.open(self.url, synchronous="NORMAL", blob_threshold=2_500)
        self.views = Views(self.store, ALL)
        self.cids = [new_id() for _ in range(3)]
        self.versions: dict[UUID, int] = {}
        self.seen: dict[tuple[UUID, int], Any] = {}

    @rule(place=PLACES, events=EVENTS)
    def append(self, place: int, events: list[tuple[Payload, Meta]]) -> None:
        """Begin a conversation, or go on with one, in whatever order."""
        self._append(self.cids[place], [NewEvent(data, meta=meta) for data, meta in events])

    @rule(place=PLACES, word=st.sampled_from(["tea", "sugar"]), size=st.sampled_from([1, 900]))
    def converse(self, place: int, word: str, size: int) -> None:
        """Append a turn as agents have it, also with payloads that go to blobs."""
        cid = self.cids[place]
        told = turn(self.versions.get(cid, 0), word * size)
        self._append(cid, [NewEvent(data, meta=Meta(turn=1)) for data in told])

    @rule(place=PLACES)
    def read(self, place: int) -> None:
        """Read every view; the tables then hold what a fresh fold gives."""
        if (cid := self.cids[place]) in self.versions:
            read_all_views(self.views, cid)
            assert expected(self.store.read(cid)) == stored(self.store, cid)

    @rule(place=PLACES, view=VIEWS)
    def read_one_view(self, place: int, view: str) -> None:
        """Let the projections of one conversation come to stand at different versions."""
        if (cid := self.cids[place]) in self.versions:
            found = getattr(self.views, view)(cid)
            self.seen[cid, self.versions[cid]] = (view, found)

    @rule(place=PLACES, change=CHANGES, version=st.integers(1, 9))
    def branch(self, place: int, change: Changing, version: int) -> None:
        """Leave the active branch, or go back to another; what follows goes on from there."""
        if (cid := self.cids[place]) in self.versions:
            with suppress(BranchRefused):
                if (switch := change(self.store, cid, version)) is not None:
                    told = turn(self.versions[cid] + 1, "tea")
                    self._append(cid, [NewEvent(each) for each in (switch, *told)])

    @rule(place=PLACES, question=st.sampled_from(["one", "tea sugar"]))
    def search(self, place: int, question: str) -> None:
        """Have the index of a conversation brought up."""
        if (cid := self.cids[place]) in self.versions:
            self._append(cid, [NewEvent(UserMessage.text(question))])
            self.views.context(cid, max_tokens=20_000, strategy="retrieval")

    @rule(number=st.integers(0, 50))
    def read_the_past(self, number: int) -> None:
        """A view as it was at a version is what it was when that version was the last."""
        if self.seen:
            cid, version = sorted(self.seen)[number % len(self.seen)]
            view, found = self.seen[cid, version]
            if view in ("timeline", "branches", "run_state"):
                assert found == getattr(self.views, view)(cid, at=version)
            elif view == "context":
                assert found.messages == self.views.context(cid, at=version).messages

    @rule(place=PLACES)
    def read_on_a_replica(self, place: int) -> None:
        """What is read where nothing can be written is what is read elsewhere."""
        if (cid := self.cids[place]) in self.versions:
            with EventStore.open(self.url, read_only=True) as replica:
                views = Views(replica, ALL)
                found = (views.timeline(cid), views.run_state(cid), views.context(cid).messages)
            views = self.views
            assert (views.timeline(cid), views.run_state(cid), views.context(cid).messages) == found

    @rule(place=PLACES, names=NAMES, before=st.integers(1, 12))
    def catch_up_some(self, place: int, names: list[str], before: int) -> None:
        """Catch some projections of a conversation up, but not to its end."""
        if (cid := self.cids[place]) in self.versions:
            live = [live_of(self.store, each) for each in ALL if each.name in names]
            with _unless_broken(), self.store.writing(durable=False) as connection:
                catch_up(connection, live, cid, before=before)

    @rule(names=NAMES)
    def follow(self, names: list[str]) -> None:
        """Catch up what is behind, in some projections."""
        catch_up_behind(self.store, [each for each in ALL if each.name in names])

    @rule()
    def work(self) -> None:
        """Do what a worker does when it starts."""
        worker.run(self.store, projections=ALL, once=True)

    @rule(names=NAMES | st.none(), skip_broken=st.booleans())
    def rebuild(self, names: list[str] | None, skip_broken: bool) -> None:
        """Replace the tables of some projections, or of all."""
        with _unless_broken():
            rebuild(self.store, names, projections=ALL, skip_broken=skip_broken)

    @rule(names=NAMES, pages=st.integers(0, 4))
    def abandon_a_rebuild(self, names: list[str], pages: int) -> None:
        """Begin a rebuild that ends after some pages, as if it were killed."""
        left = iter(range(pages))

        def progress(_done: int, _of: int) -> None:
            if next(left, None) is None:
                raise _Killed

        with suppress(_Killed), _unless_broken():
            rebuild(self.store, names, projections=ALL, on_progress=progress)

    @rule()
    def break_or_mend(self) -> None:
        """Let one fold raise from now on, or no more."""
        Fickle.broken = not Fickle.broken

    @rule(place=PLACES, into=PLACES, cut=st.integers(1, 9))
    def fork(self, place: int, into: int, cut: int) -> None:
        """Go on from some version of a conversation, also of a fork, in the place of another."""
        if (source := self.cids[place]) in self.versions:
            before = min(cut, self.versions[source]) + 1
            done = self.store.fork(source, before=before)
            self.cids[into] = done.conversation_id
            self.versions[done.conversation_id] = done.version

    @rule(place=PLACES, versions=st.none() | st.sets(st.integers(1, 8), min_size=1, max_size=3))
    def erase(self, place: int, versions: set[int] | None) -> None:
        """Erase a conversation, or some payloads of it."""
        if (cid := self.cids[place]) in self.versions:
            with suppress(EventsShared, InvalidEvent):  # some are not there
                self.store.erase(cid, reason="asked for", versions=versions)
            # Its forks have receipts too, and for all of them the past has changed.
            self.versions = {each: self.store.get(each).version for each in self.versions}
            self.seen = {}

    @rule()
    def reopen(self) -> None:
        """Begin in another process."""
        self.store.close()
        self.store = EventStore.open(self.url, synchronous="NORMAL", blob_threshold=2_500)
        self.views = Views(self.store, ALL)

    def teardown(self) -> None:
        """Expect every table to hold what a fresh fold of all events gives."""
        Fickle.broken = False
        try:
            worker.run(self.store, projections=ALL, once=True)
            report = compare(self.store, projections=ALL)
            mine = [each for each in report.differences if each.conversation_id in self.versions]
            assert [] == mine
            for cid in self.versions:
                assert expected(self.store.read(cid), ALL) == stored(self.store, cid, ALL)
        finally:
            self.store.close()

    def _append(self, cid: UUID, events: list[NewEvent]) -> None:
        self.versions[cid] = self.store.append(cid, events, allow_empty=True).version


def test_runs_stand_in_one_order_everywhere(store: EventStore, views: Views, cid: UUID) -> None:
    """A run whose start is not in the log, found by the machine, comes first on both databases."""
    ended = e.RunEnd(run_id="never-begun", status="failed")
    node = e.RunStepEnd(run_id="begun", node_id="undeclared", status="failed")
    nodes = (e.RunNode(node_id="declared"),)
    store.append(cid, [e.RunStart(run_id="begun", workflow_id="w", nodes=nodes), ended, node])
    state = views.run_state(cid)
    assert ["never-begun", "begun"] == [run.run_id for run in state.runs]
    assert state == views.run_state(cid, at=3)


def _alternative(store: EventStore, conversation_id: UUID, number: int) -> int:
    points = Views(store).branches(conversation_id)
    found = [each.version for point in points for each in point.alternatives]
    return found[number % len(found)] if found else 0


class _Killed(Exception):
    """What ends a rebuild before its time."""


@contextmanager
def _unless_broken() -> Iterator[None]:
    """Let what was to be done fail only if a fold is broken."""
    try:
        yield
    except ProjectionFailed as error:
        if not Fickle.broken or error.projection != Fickle().name:
            raise


def test_reading_every_view_fills_every_table(store: EventStore, views: Views, cid: UUID) -> None:
    """What the machine expects of its reads."""
    store.append(cid, [NewEvent(data, meta=Meta(turn=1)) for data in turn(0, "tea")])
    read_all_views(views, cid)
    assert expected(store.read(cid)) == stored(store, cid)


def test_any_interleaving_ends_in_the_right_tables(
    database_url: str, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables never depend on the way by which they came to be.

    Pages are small, so that a few events make many. With ``LONG_MACHINES=100`` in the environment
    a hundred times as many ways are tried.
    """
    monkeypatch.setattr(rebuild_module, "_PAGE_CONVERSATIONS", 2)
    monkeypatch.setattr(rebuild_module, "_PAGE_EVENTS", 9)
    monkeypatch.setattr(engine_module, "PAGE", 4)
    monkeypatch.setattr(follower, "_LOOK", 5)
    explore(ReadSide, examples=5, steps=25, url=database_url)
