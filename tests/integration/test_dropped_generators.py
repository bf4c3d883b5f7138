"""Turns of generators that nobody closes, until Python's collector comes to them where it may.

A generator that a web framework had dropped was closed within another append of the same thread,
which then waited for itself, and all writers with it, until the lock timed out: for a minute.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_eventstore import batching, journal
from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore import events as e
from eventstore.sql.appending import Group
from tests.crash.stand_in import answer


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Let the collector run when a test says so."""
    gc.disable()
    yield
    gc.enable()


def drop_a_turn(conversation: Conversation) -> None:
    """Leave a turn in the midst of its answer, where only the collector can find it."""

    def steps() -> Iterator[None]:
        with conversation.turn("hello") as turn, turn.llm_call(model="m") as call:
            for chunk in answer(["Hello", " there"]):
                call.feed(chunk)
                yield

    generator = steps()
    next(generator)
    cycle: list[Any] = [generator]
    cycle.append(cycle)


@pytest.mark.parametrize("same", [False, True], ids=["another", "the same"])
def test_closed_within_an_append(
    common: EventStore, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """What is closed within a transaction is recorded, and does not wait for its own thread."""
    left = Conversation.start(common)
    other = left if same else Conversation.start(common)
    drop_a_turn(left)
    saved, later, write = threading.Event(), batching.later, Group.write
    collections: list[Callable[[], int]] = [gc.collect]

    def collecting(group: Group, connection: Any, **options: Any) -> Any:
        while collections:
            collections.pop()()
        return write(group, connection, **options)

    def noted(work: Callable[[], None]) -> None:
        def do() -> None:
            work()
            saved.set()

        later(do)

    monkeypatch.setattr(Group, "write", collecting)
    monkeypatch.setattr(journal, "later", noted)
    other.switch_mode("agent")
    if same or common.engine.dialect.name == "sqlite":
        assert saved.wait(30)
    error, end = (
        event.data for event in common.read(left.id) if event.type in ("llm_error", "turn_end")
    )

    assert isinstance(error, e.LlmError)
    assert isinstance(end, e.TurnEnd)
    assert ("cancelled", "cancelled") == (error.kind, end.status)
    assert "agent" == other.mode
