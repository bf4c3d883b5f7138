"""Whatever the driver raises: whoever records or recovers a conversation meets our errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_eventstore import AsyncConversation, Conversation, recover, recover_all
from eventstore import EventStore
from eventstore import events as e
from projections import Views
from tests.failures.fault_sweep import public, sweep_faults
from tests.failures.injected import Faults
from tests.integration.recording import Access, Recorder, ask_for_tool, data_of, events_of, recorder

_LONG = "found " * 10_000


@dataclass
class World:
    """A recorder, and the conversation that it has open."""

    recorder: Recorder
    faults: Faults
    conversation: Any = None
    views: Views = field(init=False)
    alias: str = ""
    alternative: int = 0

    def __post_init__(self) -> None:
        self.views = Views(self.recorder.store)

    @property
    def store(self) -> EventStore:
        """The store."""
        return self.recorder.store

    def begin(self) -> None:
        """Have a conversation with a run, an output to be asked for, and an alternative."""
        self.conversation = self.recorder.start(mode="chat")
        self.conversation.start_run("digest", run_id="1")
        turn(self)
        [result] = data_of(self.store, self.conversation, "tool_result")
        self.alias = result.alias
        regenerate(self)
        [place] = self.views.branches(self.conversation.id)
        self.alternative = place.alternatives[0].version

    def reopen(self) -> None:
        """Have a conversation open whose session has not ended, with a call that has not."""
        self.conversation = self.recorder.open(self.conversation.id, if_busy="take_over")
        self.store.append(self.conversation.id, [e.ToolCall(call_id="9.9", name="left open")])

    def require_whole(self) -> None:
        """Raise if the log is not as its chain says."""
        assert self.store.verify(self.conversation.id).ok


def turn(world: World) -> None:
    """Record a turn with a streamed answer and a tool."""
    with world.conversation.turn("find") as turn:
        asked = ask_for_tool(turn)
        with turn.tool(asked) as tool:
            tool.result(_LONG)


def edit(world: World) -> None:
    """Say the last message in other words."""
    said = events_of(world.store, world.conversation, "user_message")[-1]
    with world.conversation.edit(said.version, "anew"):
        pass


def regenerate(world: World) -> None:
    """Answer the last message again."""
    with world.conversation.regenerate():
        pass


CALLS: dict[str, Callable[[World], object]] = {
    "answering": lambda world: world.conversation.answering("find"),
    "append": lambda world: world.conversation.append(e.Notebook(text="noted")),
    "archive": lambda world: world.conversation.archive(),
    "close": lambda world: world.conversation.close(),
    "continuation": lambda world: world.conversation.continuation(),
    "destroy": lambda world: world.conversation.destroy(),
    "edit": edit,
    "fork": lambda world: world.recorder.fork(world.conversation.id),
    "open": lambda world: world.recorder.open(world.conversation.id, if_busy="take_over"),
    "regenerate": regenerate,
    "rename": lambda world: world.conversation.rename("Another title"),
    "resolve": lambda world: world.conversation.resolve(world.alias),
    "resume_run": lambda world: world.conversation.resume_run("1"),
    "rewind": lambda world: world.conversation.rewind(world.conversation.version),
    "set_metadata": lambda world: world.conversation.set_metadata({"label": "new"}),
    "start": lambda world: world.recorder.start(mode="chat"),
    "start_run": lambda world: world.conversation.start_run("digest"),
    "switch_branch": lambda world: world.conversation.switch_branch(world.alternative),
    "switch_mode": lambda world: world.conversation.switch_mode("agent"),
    "turn": turn,
    "unarchive": lambda world: world.conversation.unarchive(),
    "write_again": lambda world: world.conversation.write_again(),
}
RECOVERING: dict[str, Callable[[World], object]] = {
    "recover": lambda world: recover(
        world.store, world.views, world.conversation.id, take_over=True
    ),
    "recover_all": lambda world: recover_all(world.store, world.views, take_over=True),
}


@pytest.fixture(scope="module", params=["sync", "async"])
def recording(
    request: pytest.FixtureRequest, module_url: str, faults: Faults
) -> Iterator[Recorder]:
    """Give the recorder that all tests share."""
    access: Access = request.param
    with recorder(module_url, access, synchronous="NORMAL") as recording:
        yield recording


@pytest.fixture
def world(recording: Recorder, faults: Faults) -> World:
    """Give a conversation of this test's own."""
    world = World(recording, faults)
    world.begin()
    return world


def test_no_method_is_forgotten() -> None:
    """A new one needs a call here."""
    assert public(Conversation) == public(AsyncConversation) == CALLS.keys()


@pytest.mark.parametrize("name", sorted(CALLS | RECOVERING))
def test_of_recorders(name: str, world: World) -> None:
    """A turn meets each kind of error, all others a part of them."""
    calls = CALLS | RECOVERING
    is_sync = isinstance(world.conversation, Conversation)
    sweep_faults(
        world.faults,
        world.store.engine.dialect.name,
        lambda: calls[name](world),
        before=world.reopen,
        after=world.require_whole,
        first=sorted(calls).index(name) * 4,
        most=(25 if is_sync else 6) if name == "turn" else 4,
    )
