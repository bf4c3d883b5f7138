"""Any interleaving of appends, reads, catch-ups, rebuilds and erasures ends in the right tables."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    rule,
    run_state_machine_as_test,
)

from eventstore import EventStore, new_id
from eventstore.events import Meta, NewEvent, Payload
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.diff import compare
from projections.following import catch_up_behind
from projections.rebuild import rebuild
from tests.projections.support import expected, read_all_views, stored
from tests.properties.histories import metas, payloads

EVENTS = st.lists(st.tuples(payloads(), metas()), min_size=1, max_size=6)
NAMES = st.sampled_from([projection.name for projection in PROJECTIONS])


class ReadSide(RuleBasedStateMachine):
    """Everything that may happen to a store whose projections are in use."""

    store: EventStore
    conversations = Bundle("conversations")

    def __init__(self) -> None:
        super().__init__()
        self.views = Views(self.store)
        self.mine: list[UUID] = []

    @rule(target=conversations, events=EVENTS)
    def begin(self, events: list[tuple[Payload, Meta]]) -> UUID:
        """Begin a conversation."""
        cid = new_id()
        self.mine.append(cid)
        self.store.append(cid, [NewEvent(data, meta=meta) for data, meta in events])
        return cid

    @rule(cid=conversations, events=EVENTS)
    def append(self, cid: UUID, events: list[tuple[Payload, Meta]]) -> None:
        """Go on with a conversation."""
        self.store.append(cid, [NewEvent(data, meta=meta) for data, meta in events])

    @rule(cid=conversations)
    def read(self, cid: UUID) -> None:
        """Read every view; the tables then hold what a fresh fold gives."""
        read_all_views(self.views, cid)
        assert expected(self.store.read(cid)) == stored(self.store, cid)

    @rule(cid=conversations, name=st.sampled_from(["timeline", "context", "run_state"]))
    def read_one_view(self, cid: UUID, name: str) -> None:
        """Let the projections of one conversation come to stand at different versions."""
        getattr(self.views, name)(cid)

    @rule()
    def catch_up(self) -> None:
        """Do what the worker does in a round."""
        catch_up_behind(self.store, PROJECTIONS)

    @rule(names=st.lists(NAMES, min_size=1, max_size=2))
    def rebuild_some(self, names: list[str]) -> None:
        """Replace the tables of some projections."""
        rebuild(self.store, names)

    @rule(cid=conversations)
    def erase_all(self, cid: UUID) -> None:
        """Erase a conversation."""
        self.store.erase(cid, reason="asked for")

    @rule(cid=conversations, versions=st.sets(st.integers(1, 8), min_size=1, max_size=3))
    def erase_some(self, cid: UUID, versions: set[int]) -> None:
        """Erase some payloads of a conversation."""
        self.store.erase(cid, reason="asked for", versions=versions)

    def teardown(self) -> None:
        """Expect every table to hold what a fresh fold of all events gives."""
        report = compare(self.store)
        assert report.ok, report.differences
        for cid in self.mine:
            assert expected(self.store.read(cid)) == stored(self.store, cid)


def test_any_interleaving_ends_in_the_right_tables(store: EventStore) -> None:
    """The tables never depend on the way by which they came to be."""
    machine: Any = type("Machine", (ReadSide,), {"store": store})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=5, stateful_step_count=10, suppress_health_check=list(HealthCheck)
        ),
    )
