"""The recorder's parts: stalled streams, repeated appends, files of outputs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.artifacts import ToolOutputs, call_of_alias
from agent_eventstore.batching import StreamFlusher
from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import UnknownAlias
from agent_eventstore.journal import Journal
from eventstore import Appended, EventStore, NewEvent, new_id
from eventstore.errors import CannotConnect, InvalidEvent, OutputFileError
from eventstore.events import UserMessage
from tests.crash.stand_in import answer

CID = UUID(int=7)
PATIENCE_S = 30.0


class Forgetful(EventStore):
    """A store whose connection breaks: before an append, or after it and before the answer."""

    before = after = 0

    def append(self, *args: Any, **kwargs: Any) -> Appended:
        """Append, unless the connection is to break."""
        if self.before:
            self.before -= 1
            raise CannotConnect(self.url, "broken before")
        done = super().append(*args, **kwargs)
        if self.after:
            self.after -= 1
            raise CannotConnect(self.url, "broken after")
        return done


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Forgetful]:
    """Give a store that can be told to fail."""
    with Forgetful.open(sqlite_url, synchronous="NORMAL", pool_size=2) as found:
        yield found


def said(*texts: str) -> list[NewEvent]:
    """Return user messages as events with ids of their own."""
    return [NewEvent(UserMessage.text(text), new_id()) for text in texts]


def texts(store: EventStore, conversation_id: UUID) -> list[str]:
    """Return what was said, in order."""
    data = [event.data for event in store.read(conversation_id)]
    return [each.parts[0].text for each in data if isinstance(each, UserMessage)]  # type: ignore[union-attr]


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until another thread has done its work; fail after half a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


# Journal


@pytest.mark.parametrize(("before", "after"), [(1, 0), (2, 0), (0, 1), (1, 1)])
def test_append_is_repeated_once(store: Forgetful, before: int, after: int) -> None:
    """Wherever the connection breaks, the events are there exactly once."""
    journal = Journal(store, new_id())
    store.before, store.after = before, after

    done = journal.write(said("one", "two"))

    assert ["one", "two"] == texts(store, journal.conversation_id)
    assert (2, 2) == (journal.version, done and done.version)


def test_facts_wait_for_the_server(store: Forgetful, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is kept, and comes first, in order and once."""
    monkeypatch.setattr("agent_eventstore.journal.PATIENCE_S", 0.0)
    journal, told = Journal(store, new_id()), list[int]()
    for text in ("one", "two"):
        store.before, store.after = (2, 0) if text == "one" else (0, 1)
        with pytest.raises(CannotConnect):
            journal.record(said(text), lambda done: told.append(done.version))

    store.after = 0
    journal.write(said("three"))

    assert ["one", "two", "three"] == texts(store, journal.conversation_id)
    assert [1, 2] == told


def test_what_did_not_begin_is_not_kept(store: Forgetful, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that failed before its block ran is the caller's to repeat."""
    monkeypatch.setattr("agent_eventstore.journal.PATIENCE_S", 0.0)
    journal = Journal(store, new_id())
    store.before = 2
    with pytest.raises(CannotConnect):
        journal.write(said("one"))

    journal.write(said("two"))

    assert ["two"] == texts(store, journal.conversation_id)


def test_fact_that_cannot_be_stored_is_dropped(store: Forgetful) -> None:
    """It is the caller's error, once; what follows is not held up by it."""
    journal = Journal(store, new_id())
    event = said("twice")[0]
    with pytest.raises(InvalidEvent):
        journal.record([event, event])

    journal.record(said("next"))

    assert ["next"] == texts(store, journal.conversation_id)


def test_what_follows_an_invalid_fact_is_written(
    store: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited for the server and cannot be stored is told, and holds up nothing."""
    monkeypatch.setattr("agent_eventstore.journal.PATIENCE_S", 0.0)
    journal, event = Journal(store, new_id()), said("twice")[0]
    store.before = 2
    with pytest.raises(CannotConnect):
        journal.record([event, event])

    with pytest.raises(InvalidEvent):
        journal.record(said("next"))

    assert ["next"] == texts(store, journal.conversation_id)


# Stalled streams


def at_once(event: threading.Event) -> Callable[[], bool]:
    """Return a flush that tells it is done."""

    def flush() -> bool:
        event.set()
        return True

    return flush


def test_stalled_batch_is_written_in_the_background(store: Forgetful) -> None:
    """Text that waits for a next chunk which does not come is durable all the same."""
    conversation = Conversation.start(store)
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        chunks = answer(["first", "second"])
        for _ in range(3):
            call.feed(next(chunks))
        written = conversation.version
        eventually(lambda: conversation.version > written)
        for chunk in chunks:
            call.feed(chunk)

    data = [e.data for e in store.read(conversation.id) if e.type == "assistant_chunk"]
    assert ["first", "second"] == [each.text for each in data]  # type: ignore[union-attr]


def test_one_thread_watches_all_streams() -> None:
    """However many streams stall, the process has one thread for them."""

    def threads() -> int:
        return [thread.name for thread in threading.enumerate()].count("eventstore-stalls")

    flushed = [threading.Event() for _ in range(50)]
    watched = [StreamFlusher(at_once(event)) for event in flushed]
    before, due_at = threads(), time.monotonic() + 0.2
    for stalls in watched:
        with stalls.lock:
            stalls.watch(due_at)

    assert 1 <= threads() <= max(1, before)
    assert all(event.wait(PATIENCE_S) for event in flushed)


def test_stream_that_is_busy_holds_up_no_other() -> None:
    """The thread does not wait for a stream that is being written by its own caller."""
    busy, free = threading.Event(), threading.Event()
    first, second = StreamFlusher(at_once(busy)), StreamFlusher(at_once(free))
    with first.lock:
        first.watch(time.monotonic())
        with second.lock:
            second.watch(time.monotonic())
        assert free.wait(PATIENCE_S)
        assert not busy.is_set()
    assert busy.wait(PATIENCE_S)


def test_stopped_stream_is_not_flushed() -> None:
    """After the call has ended nothing is written for it."""
    late, other = threading.Event(), threading.Event()
    stopped, following = StreamFlusher(at_once(late)), StreamFlusher(at_once(other))
    with stopped.lock:
        stopped.watch(time.monotonic() + 0.02)
        stopped.stop()
    with following.lock:
        following.watch(time.monotonic() + 0.04)

    assert other.wait(PATIENCE_S)
    assert not late.is_set()


def test_error_in_the_background_reaches_the_caller() -> None:
    """It is raised where the stream is fed next, once."""
    failed = threading.Event()

    def flush() -> bool:
        failed.set()
        raise InvalidEvent("cannot be stored")

    stalls = StreamFlusher(flush)
    with stalls.lock:
        stalls.watch(time.monotonic())
    assert failed.wait(PATIENCE_S)

    with stalls.lock, pytest.raises(InvalidEvent):
        stalls.check()
    stalls.check()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_forked_child_has_a_clock_of_its_own() -> None:
    """A product that forks its workers gets stalled batches written in each of them."""
    running = threading.Event()
    stalls = StreamFlusher(at_once(running))
    with stalls.lock:
        stalls.watch(time.monotonic())
    assert running.wait(PATIENCE_S)
    child = os.fork()
    if child == 0:
        flushed = threading.Event()
        own = StreamFlusher(at_once(flushed))
        with own.lock:
            own.watch(time.monotonic())
        os._exit(0 if flushed.wait(PATIENCE_S) else 1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Files of outputs


def test_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """If the last step fails there is no file, and no remains of one."""
    folder = tmp_path / str(CID) / "logs" / "tool-results"
    (folder / "1.0.txt").mkdir(parents=True)
    with pytest.raises(OutputFileError, match="directory"):
        ToolOutputs(tmp_path, CID).write("1.0", "new")

    assert ["1.0.txt"] == [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("call_id", ["../../1.0", "/1.0", "1.0/../../x", "1", "", "1.0\n"])
def test_no_file_leaves_the_directory(tmp_path: Path, call_id: str) -> None:
    """Only the store's own call ids make file names."""
    state = tmp_path / "state"
    with pytest.raises(UnknownAlias):
        ToolOutputs(state, CID).write(call_id, "text")

    assert [] == list(tmp_path.rglob("*.json*"))


def test_no_link_leads_out_of_the_directory(tmp_path: Path) -> None:
    """A link in the place of the folder, which a tool may have made, is not followed."""
    outside = tmp_path / "outside"
    state = tmp_path / "state"
    outside.mkdir()
    (state / str(CID) / "logs").mkdir(parents=True)
    (state / str(CID) / "logs" / "tool-results").symlink_to(outside)

    with pytest.raises(OSError, match="leads out of"):
        ToolOutputs(state, CID).write("1.0", "text")
    assert [] == list(outside.iterdir())


def test_alias_names_a_call() -> None:
    """The alias that the model is shown reads back as the call's id."""
    assert "12.3" == call_of_alias("@state/logs/tool-results/12.3.json")
