"""Whatever the driver raises: whoever reads, rebuilds or compares views meets our errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views, worker
from projections.catalogue import PROJECTIONS
from projections.engine.lag import measure
from projections.upkeep import compare, rebuild, status
from tests.exhaustive import partly
from tests.failures.fault_sweep import public, sweep_faults
from tests.failures.injected import Faults
from tests.projections.support import turn


@dataclass
class World:
    """A conversation that has views, and gains an event before each call."""

    store: EventStore
    views: Views
    faults: Faults
    cid: UUID = field(default_factory=new_id)
    request: int = 0

    def begin(self) -> None:
        """Have a turn, and a request that can be made again."""
        done = self.store.append(self.cid, [e.ConversationStart(mode="chat"), *turn(1, "begun")])
        view = self.views.context(self.cid)
        asked = e.LlmRequest(
            llm_call_id="again", policy={**view.policy, "at": done.version}, digest=view.digest
        )
        self.request = self.store.append(self.cid, [asked]).version

    def renew(self) -> None:
        """Have something to fold."""
        self.store.append(self.cid, [e.UserMessage.text("new")])


CALLS: dict[str, Callable[[World], object]] = {
    "branches": lambda world: world.views.branches(world.cid),
    "calibration": lambda world: world.views.calibration("gpt-4o", conversation_id=world.cid),
    "context": lambda world: world.views.context(world.cid),
    "context_of": lambda world: world.views.context_of(world.cid, world.request),
    "conversations": lambda world: world.views.conversations(),
    "conversations_with_open_work": lambda world: world.views.conversations_with_open_work(),
    "follow": lambda world: world.views.follow(world.cid),
    "for_owner": lambda world: world.views.for_owner(user_id="ada"),
    "model_calls": lambda world: world.views.model_calls(conversation_id=world.cid),
    "neutral": lambda world: world.views.neutral(world.cid),
    "open_work": lambda world: world.views.open_work(world.cid),
    "read_batches": lambda world: world.views.read_batches("usage_by_call", list),
    "rows": lambda world: world.views.rows("usage_by_call", conversation_id=world.cid),
    "run_state": lambda world: world.views.run_state(world.cid),
    "search": lambda world: world.views.search("new"),
    "tasks": lambda world: world.views.tasks(world.cid),
    "state_at": lambda world: world.views.state_at(world.cid, 3),
    "timeline": lambda world: world.views.timeline(world.cid),
    "timeline_page": lambda world: world.views.timeline_page(world.cid),
    "tool_calls": lambda world: world.views.tool_calls(conversation_id=world.cid),
    "tool_policy": lambda world: world.views.tool_policy(world.cid),
    "usage": lambda world: world.views.usage(conversation_id=world.cid),
    "why": lambda world: world.views.why(world.cid, world.request, 1),
}
OTHERS: dict[str, Callable[[World], object]] = {
    "Views": lambda world: Views(world.store),
    "compare": lambda world: compare(world.store, ["usage"], conversations=[world.cid]),
    "measure": lambda world: measure(world.store, PROJECTIONS),
    "rebuild": lambda world: rebuild(world.store, ["usage"]),
    "rebuild that sets aside": lambda world: rebuild(world.store, ["usage"], skip_broken=True),
    "context in Run mode": lambda world: world.views.context(world.cid, mode="run"),
    "context that is searched": lambda world: world.views.context(
        world.cid, strategy="retrieval", max_tokens=2_000
    ),
    "status": lambda world: status(world.store),
    "timeline at a version": lambda world: world.views.timeline(world.cid, at=4),
    "usage of all": lambda world: world.views.usage(by="user"),
    "worker": lambda world: worker.run(world.store, once=True),
}
WHOLE = {"context", "timeline", "usage of all"}
"""One for each way in which reads go; of the others each meets a part of the errors."""


@pytest.fixture(scope="module")
def views(module_store: EventStore) -> Views:
    """Give the views that all tests share."""
    return Views(module_store)


@pytest.fixture
def world(module_store: EventStore, views: Views, faults: Faults) -> Iterator[World]:
    """Give a conversation of this test's own; in the end its views are those of a fresh fold."""
    world = World(module_store, views, faults)
    world.begin()
    yield world
    assert compare(module_store, conversations=[world.cid]).ok


def test_no_view_is_forgotten() -> None:
    """A new one needs a call here."""
    assert public(Views) == CALLS.keys()


@pytest.mark.parametrize("few", partly([4, 8]))
@pytest.mark.parametrize("name", sorted(CALLS | OTHERS))
def test_of_views(name: str, few: int, world: World) -> None:
    """Each kind of error, at statements of the catch-up and of the answer."""
    calls = CALLS | OTHERS
    sweep_faults(
        world.faults,
        world.store.engine.dialect.name,
        lambda: calls[name](world),
        before=world.renew,
        first=sorted(calls).index(name) * few,
        most=25 if name in WHOLE else few,
    )
