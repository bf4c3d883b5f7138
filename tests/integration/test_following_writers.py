"""Followers hear that a conversation's writer is gone, though no event says so."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from uuid import UUID

import pytest

from agent_eventstore import Conversation, EventStore, Views, recover
from projections.models.timeline_changes import ItemChanged, TimelineUpdate
from projections.models.timeline_items import TimelineItem
from tests.warm import Programs, Started

WRITER = """
import signal, sys
from agent_eventstore import Conversation, EventStore

conversation = Conversation.start(EventStore.open(sys.argv[1]))
turn = conversation.turn("hi").__enter__()
call = turn.llm_call(model="m").__enter__()
call.delta("Hel")
call._flush()
print(conversation.id, flush=True)
signal.pause()
"""


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store."""
    with EventStore.open(database_url) as store:
        yield store


@pytest.fixture
def writer(store: EventStore, database_url: str, programs: Programs) -> Iterator[Started]:
    """Give a process in the midst of an answer, which prints its conversation's id."""
    with programs.start("-c", WRITER, database_url, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def screen(items: list[TimelineItem], updates: list[TimelineUpdate]) -> list[TimelineItem]:
    """Return the items of a screen after updates."""
    for update in updates:
        items = update.apply(items)
    return items


def test_a_killed_writers_answer_is_interrupted(store: EventStore, writer: Started) -> None:
    """In a wait without end: told once, as the view shows it; recovery's events then end it."""
    assert writer.stdout is not None
    cid = UUID(writer.stdout.readline().strip())
    views = Views(store)
    shown = views.timeline(cid)
    version = max(item.end_version or 0 for item in shown)
    assert "streaming" in {item.status for item in shown}
    following = views.follow(cid, after=version)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()

    update = next(following)

    assert (version, {ItemChanged}) == (update.version, {type(each) for each in update.changes})
    shown = screen(shown, [update])
    assert views.timeline(cid) == shown
    assert {"interrupted"} == {item.status for item in shown if item.kind in ("assistant", "turn")}
    recover(store, views, cid)
    shown = screen(shown, list(views.follow(cid, after=version, timeout_s=0)))
    assert views.timeline(cid) == shown
    following.close()


def test_who_comes_later_is_told_too(store: EventStore, writer: Started) -> None:
    """From the start, or from the version that a screen has seen."""
    assert writer.stdout is not None
    cid = UUID(writer.stdout.readline().strip())
    views = Views(store)
    before = views.timeline(cid)
    version = max(item.end_version or 0 for item in before)
    writer.kill()
    writer.wait()
    gc.collect()
    for held, after in (([], 0), (before, version)):
        updates = list(views.follow(cid, after=after, timeout_s=0))
        assert views.timeline(cid) == screen(list(held), updates)


def test_a_writer_that_closes_interrupts_nothing(store: EventStore) -> None:
    """Nor one that lives."""
    views = Views(store)
    with Conversation.start(store) as conversation, conversation.turn("hi"):
        updates = list(views.follow(conversation.id, timeout_s=0))
        assert "running" in {item.status for item in screen([], updates)}
    updates = list(views.follow(conversation.id, timeout_s=0))
    assert "interrupted" not in {item.status for item in screen([], updates)}
