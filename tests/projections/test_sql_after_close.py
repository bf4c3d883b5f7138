"""Plain SQL shows what a closed conversation recorded, and `view_lag` what is still behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import bindparam, text

from agent_eventstore import AsyncConversation, AsyncEventStore, Conversation
from eventstore import DirectoryKeys, EventStore, NewEvent, new_id
from eventstore import events as e
from eventstore.database import END, Id
from projections import PROJECTIONS, Views, worker
from projections import reading as saving
from projections.context import CONTEXT, search_index
from projections.context.row_cache import MOST_IN_MEMORY
from projections.context_reading import ContextReading, bring_up
from projections.engine.generations import find_live
from projections.models.tool_calls import TOOL_CALLS
from tests.projections.support import turn


def rows(store: EventStore, query: str, **values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query, without the views."""
    with store.reading() as connection:
        return [
            tuple(row)
            for row in connection.execute(
                text(query).bindparams(bindparam("stream", type_=Id)), values
            )
        ]


def lag(store: EventStore, conversation_id: UUID) -> dict[str | None, int]:
    """Return the events that each projection lacks of a conversation, as ``view_lag`` has them."""
    found = rows(
        store,
        "SELECT projection, events_behind FROM view_lag WHERE conversation_id = :stream",
        stream=conversation_id,
    )
    return {each[0]: each[1] for each in found}


def shown(store: EventStore, conversation_id: UUID) -> dict[str, int]:
    """Return how many rows three views have of a conversation."""
    return {
        view: rows(
            store,
            f"SELECT count(*) FROM {view} WHERE conversation_id = :stream",
            stream=conversation_id,
        )[0][0]
        for view in ("tool_calls", "usage_by_call", "turns")
    }


WHOLE = {"tool_calls": 1, "usage_by_call": 1, "turns": 1}
CALL = {"name": "grep", "arguments": {"x": 1}, "id": "1"}


def record(conversation: Conversation) -> None:
    """Record one turn with one tool call."""
    with conversation.turn("q") as block:
        with block.llm_call(provider="openai") as call:
            call.message(tool_calls=[CALL])
        with block.tool(call.tool_calls[0]) as tool:
            tool.fail("broken")


def test_after_close(store: EventStore) -> None:
    """No reader and no worker is needed, in the session that starts and in one that opens."""
    with Conversation.start(store) as conversation:
        record(conversation)
    assert WHOLE == shown(store, conversation.id)
    assert {"context"} == lag(store, conversation.id).keys(), "no request was made"
    with Conversation.open(store, conversation.id) as conversation:
        record(conversation)
        with conversation.turn("q") as block:
            block.context()
    assert {**dict.fromkeys(WHOLE, 2), "turns": 3} == shown(store, conversation.id)
    assert {} == lag(store, conversation.id)


def test_after_close_of_an_asynchronous_conversation(store: EventStore) -> None:
    """The same of `AsyncConversation`."""

    async def recorded() -> UUID:
        opened = AsyncEventStore(store, threads=2)
        async with await AsyncConversation.start(opened) as conversation:
            async with conversation.turn("q") as block:
                async with block.llm_call(provider="openai") as call:
                    await call.message(tool_calls=[CALL])
                async with block.tool(call.tool_calls[0]) as tool:
                    await tool.result("ok")
            return conversation.id

    assert WHOLE == shown(store, asyncio.run(recorded()))


def test_a_long_session(store: EventStore) -> None:
    """However many events a session has, they are folded as it goes on, and at its end."""
    with Conversation.start(store) as conversation:
        for _ in range(90):
            record(conversation)
    assert conversation.version > 2 * saving.SAVED_TOGETHER
    assert dict.fromkeys(WHOLE, 90) == shown(store, conversation.id)


def test_a_backlog_is_left(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing does not wait for events that were never folded; `view_lag` names them."""
    Views(store)
    monkeypatch.setattr(saving, "SAVES_S", 0.0)
    stream = new_id()
    store.append(stream, [e.ConversationStart(mode="chat")])
    store.append(stream, [e.UserMessage.text("q") for _ in range(3 * saving.SAVED_TOGETHER)])
    Conversation.open(store, stream).close()
    version = store.get(stream).version
    assert version - saving.SAVED_TOGETHER == lag(store, stream)[TOOL_CALLS.name]
    worker.run(store, once=True)
    assert {} == lag(store, stream)


def test_before_anything_was_read(store: EventStore) -> None:
    """A store without views has all conversations behind, in no projection by name."""
    with store.writing() as connection:
        connection.execute(text("UPDATE projections SET status = 'dead' WHERE status = 'live'"))
    try:
        stream = new_id()
        store.append(stream, [e.ConversationStart(mode="chat"), *turn(1, "q")])
        assert {None: store.get(stream).version} == lag(store, stream)
    finally:
        with store.writing() as connection:
            connection.execute(text("UPDATE projections SET status = 'live' WHERE status = 'dead'"))


def test_a_failure_never_fails_the_close(
    store: EventStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the fold raises is logged, and the events are there."""
    conversation = Conversation.start(store)

    def broken(*_: Any) -> None:
        raise RuntimeError("a product's own code")

    monkeypatch.setattr(type(TOOL_CALLS), "fold", broken)
    record(conversation)
    conversation.close()
    assert "session_end" == [event.type for event in store.read(conversation.id)][-1]
    assert "views not caught up" in caplog.text
    assert {} != lag(store, conversation.id)


def test_an_error_of_the_block_comes_first(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception that left the block is not replaced by that of the fold."""

    def refuse(*_: Any) -> bool:
        raise RuntimeError("no")

    monkeypatch.setattr("agent_eventstore.resuming.save_current", refuse)
    conversation = Conversation.start(store)
    with pytest.raises(ZeroDivisionError), conversation:
        raise ZeroDivisionError


def test_of_a_sealed_store(database_url: str, tmp_path: Path) -> None:
    """The process that has the keys folds, so that SQL shows what it sealed."""
    with EventStore.open(database_url, keys=DirectoryKeys(tmp_path)) as sealed:
        with Conversation.start(sealed) as conversation:
            record(conversation)
        assert WHOLE == shown(sealed, conversation.id)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds, at most twenty seconds."""
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def warm(database_url: str) -> Any:
    """Give a store with a worker of its own."""
    with EventStore.open(database_url, worker=True) as opened:
        yield opened


def test_a_worker_of_the_store(warm: EventStore) -> None:
    """It folds what was appended without a session, and ends when the store is closed."""
    stream = new_id()
    warm.append(stream, [e.ConversationStart(mode="chat"), *turn(1, "q")])
    eventually(lambda: not lag(warm, stream))
    thread = warm._worker._thread
    assert thread.is_alive()
    warm.close()
    assert not thread.is_alive()


def test_a_worker_outlives_an_error(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an error that ends a worker, it is started again."""
    monkeypatch.setattr(worker, "_LONGEST_WAIT_S", 0.01)
    failed = iter([RuntimeError("once")])
    rounds = worker._Rounds.step

    def step(self: Any) -> int:
        for error in failed:
            raise error
        return rounds(self)

    monkeypatch.setattr(worker._Rounds, "step", step)
    with EventStore.open(database_url, worker=True) as opened:
        stream = new_id()
        opened.append(stream, [e.ConversationStart(mode="chat"), *turn(1, "q")])
        eventually(lambda: not lag(opened, stream))
    assert "worker failed" in caplog.text


def test_a_forked_child_has_a_worker(warm: EventStore) -> None:
    """A prefork server opens the store once, and each of its processes keeps the views warm."""
    child = os.fork()
    if not child:
        os._exit(0 if warm._worker._thread.is_alive() else 1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert warm._worker._thread.is_alive()


def test_a_worker_needs_a_store_that_it_may_write(database_url: str) -> None:
    """With `read_only` it could fold nothing."""
    EventStore.open(database_url).close()
    with pytest.raises(ValueError, match="read_only"):
        EventStore.open(database_url, worker=PROJECTIONS, read_only=True)


def test_the_index_of_a_long_conversation_is_kept(database_url: str) -> None:
    """Once a search has made it, the end of a session keeps it: no later request has to."""
    with EventStore.open(database_url) as store:
        cid = new_id()
        for number in range(0, MOST_IN_MEMORY + 100, 100):
            texts = (f"Question {number + each} about parcels." for each in range(100))
            store.append(cid, [NewEvent(e.UserMessage.text(text)) for text in texts])

        def ask() -> None:
            with Conversation.open(store, cid) as conversation, conversation.turn("Which?") as now:
                request = now.context(max_tokens=2_000, model="gpt-4o")
                with now.llm_call(request) as call:
                    call.message("This one.")

        def is_current() -> bool:
            with store.reading() as connection:
                generation = find_live(connection, CONTEXT)
                assert generation is not None
                return search_index.covers(connection, generation, cid, (END, 0))

        ask()
        assert is_current()
        store.append(cid, e.UserMessage.text("A later word: zebra."))
        ask()
        assert is_current()


@pytest.mark.parametrize("length", [MOST_IN_MEMORY - 4, MOST_IN_MEMORY])
def test_no_request_indexes_a_long_conversation(
    database_url: str, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """The end of a turn does, even before the conversation is so long that a search needs it."""
    with EventStore.open(database_url) as store:
        other, cid = new_id(), new_id()
        store.append(other, e.UserMessage.text("Hello."))
        bring_up(store, other)
        texts = (f"Question {number} about parcels." for number in range(length))
        store.append(cid, [NewEvent(e.UserMessage.text(text)) for text in texts])
        with Conversation.open(store, cid) as conversation:
            for number in range(3):
                with conversation.turn("Which parcel was it?") as turn:
                    request = turn.context(max_tokens=2_000, model="gpt-4o")
                    with turn.llm_call(request) as call:
                        call.message("This one.")
                if not number:  # From now on, a request that indexes fails.
                    monkeypatch.setattr(ContextReading, "_index", _fail)


def _fail(*_: object) -> None:
    raise AssertionError("a request indexes")
