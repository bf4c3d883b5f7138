"""Neighbours that are stopped, slow or in the way: they harm nobody but themselves, for long.

A conversation whose row somebody had locked kept the text of all other streams of the process from
becoming durable; and a process that was stopped within a transaction kept its locks for ever.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import make_url

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import FactsNotWritten
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import DatabaseBusy
from eventstore.events import AssistantChunk
from tests.contract.facade import say, texts
from tests.crash.stand_in import answer

PATIENCE_S = 30.0
MANY = 12
"""More than a process has threads for streams that stall, and a store connections."""
SOON_S = 2.0


def eventually(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until something holds; fail if it does not in time."""
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def streamed(store: EventStore, conversation_id: UUID) -> str:
    """Return the text of a stream that is durable."""
    data = [event.data for event in store.read(conversation_id)]
    return "".join(each.text for each in data if isinstance(each, AssistantChunk))


@contextmanager
def locked(url: str, ids: Sequence[UUID]) -> Iterator[None]:
    """Hold the locks of these conversations, by a session of somebody else."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as other:
        query = "SELECT FROM conversations WHERE conversation_id = ANY(%s) FOR UPDATE"
        other.execute(query, [list(ids)])
        yield
        other.rollback()


def test_streams_beside_locked_conversations(postgres_url: str) -> None:
    """The text of another stream is durable at once; that of the locked ones when they are free."""
    with ExitStack() as stack:
        store = stack.enter_context(EventStore.open(postgres_url))
        watching = stack.enter_context(EventStore.open(postgres_url))

        def begun() -> tuple[UUID, LlmCall]:
            conversation = Conversation.start(store)
            turn = stack.enter_context(conversation.turn("hello"))
            return conversation.id, stack.enter_context(turn.llm_call())

        calls = [begun() for _ in range(MANY + 1)]
        streams = [answer(["first ", "second"]) for _ in calls]
        *others, free = [cid for cid, _ in calls]
        for (_, call), chunks in zip(calls, streams, strict=True):
            call.feed(next(chunks))
            call.feed(next(chunks))
        with locked(postgres_url, others):
            for (_, call), chunks in zip(calls, streams, strict=True):
                call.feed(next(chunks))
            eventually(lambda: streamed(watching, free) == "first second", SOON_S)
            assert "first " == streamed(watching, others[0])
        for cid, _ in calls:
            eventually(lambda cid=cid: streamed(watching, cid) == "first second")  # type: ignore[misc]
        for (_, call), chunks in zip(calls, streams, strict=True):
            for chunk in chunks:
                call.feed(chunk)
    with EventStore.open(postgres_url) as again:
        assert again.verify().ok


def test_streams_of_an_event_loop(postgres_url: str) -> None:
    """Group commit takes a locked conversation out of the group, which does not wait for it."""

    async def main(store: EventStore) -> None:
        twin = AsyncEventStore(store)

        async def begun() -> tuple[UUID, AsyncLlmCall]:
            conversation = await AsyncConversation.start(twin)
            turn = await conversation.turn("hello").__aenter__()
            call = await turn.llm_call().__aenter__()
            return conversation.id, call

        calls = [await begun() for _ in range(MANY + 1)]
        streams = [answer(["first ", "second"]) for _ in calls]
        for (_, call), chunks in zip(calls, streams, strict=True):
            await call.feed(next(chunks))
            await call.feed(next(chunks))
        ids = [cid for cid, _ in calls]
        with locked(postgres_url, ids[:-1]):
            for (_, call), chunks in zip(calls, streams, strict=True):
                await call.feed(next(chunks))
            waiting = asyncio.gather(*[twin.append(cid, say("more")) for cid in ids[:5]])
            async with asyncio.timeout(SOON_S):
                while streamed(store, ids[-1]) != "first second":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await twin.append(ids[-1], say("more"))
            assert not waiting.done()
        await waiting
        async with asyncio.timeout(PATIENCE_S):
            while {streamed(store, cid) for cid in ids} != {"first second"}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await twin.close()

    with EventStore.open(postgres_url) as store:
        asyncio.run(main(store))
        assert store.verify().ok


def test_an_append_waits_as_long_as_it_is_told(postgres_url: str) -> None:
    """Then it is `DatabaseBusy`, alone and in a group; who does not wait is told at once."""
    with EventStore.open(f"{postgres_url}&lock_timeout=300ms") as store:
        cid, other = new_id(), new_id()
        for each in (cid, other):
            store.append(each, say("1"))

        async def together() -> list[object]:
            twin = AsyncEventStore(store)
            appends = [twin.append(each, say("2")) for each in (cid, other, cid)]
            return list(await asyncio.gather(*appends, return_exceptions=True))

        with locked(postgres_url, [cid]):
            begun = time.monotonic()
            with pytest.raises(DatabaseBusy, match="lock_timeout"):
                store.append(cid, say("2"))
            assert time.monotonic() - begun >= 0.3
            with pytest.raises(DatabaseBusy, match="is being written"):
                store.append(cid, say("2"), wait=False)
            first, second, third = asyncio.run(together())
        assert isinstance(first, DatabaseBusy)
        assert isinstance(third, DatabaseBusy)
        assert ["1", "2"] == texts(store.read(other))
        assert 2 == second.version  # type: ignore[attr-defined]
        store.append(cid, say("2"), wait=False)
        assert ["1", "2"] == texts(store.read(cid))


def test_facts_beside_a_lock(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has happened is kept, said when the conversation is closed, and written in the end."""
    monkeypatch.setattr("agent_eventstore.journal.PATIENCE_S", 0.2)
    with EventStore.open(f"{postgres_url}&lock_timeout=100ms") as store:
        conversation = Conversation.start(store)
        turn = conversation.turn("hello").__enter__()
        with locked(postgres_url, [conversation.id]):
            with pytest.raises(DatabaseBusy):
                turn.__exit__(None, None, None)
            with pytest.raises(FactsNotWritten, match="1 turn_end, 1 session_end") as caught:
                conversation.close()
            assert isinstance(caught.value.__cause__, DatabaseBusy)
        conversation.close()
        kinds = [event.type for event in store.read(conversation.id)]
        assert ["turn_end", "session_end"] == kinds[-2:]


# A process that is stopped

STOPPED = """
import os, signal, sys
from eventstore import EventStore, events
from eventstore.errors import StoreUnavailable
url, cid = sys.argv[1:]
with EventStore.open(url) as store:
    try:
        with store.transaction() as connection:
            store.append(cid, events.UserMessage.text("of the stopped"), connection=connection)
            print("held", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
    except StoreUnavailable as error:
        print(type(error).__name__, flush=True)
    store.append(cid, events.UserMessage.text("afterwards"))
"""


@contextmanager
def stopped(url: str, conversation_id: UUID) -> Iterator[subprocess.Popen[str]]:
    """Give a process that is stopped while it holds the lock of a conversation."""
    command = [sys.executable, "-c", STOPPED, url, str(conversation_id)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert "held\n" == child.stdout.readline()
            os.waitpid(child.pid, os.WUNTRACED)
            yield child
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGKILL)


def test_stopped_within_a_transaction(postgres_url: str) -> None:
    """Others are refused in time, other conversations go on, and the lock is lost in the end."""
    resting = f"{postgres_url}&idle_in_transaction_session_timeout=3s"
    with EventStore.open(f"{postgres_url}&lock_timeout=100ms") as store:
        store.append(cid := new_id(), say("1"))
        with stopped(resting, cid) as child:
            with pytest.raises(DatabaseBusy):
                store.append(cid, say("2"))
            assert 1 == store.append(new_id(), say("another")).version

            def accepted() -> bool:
                try:
                    store.append(cid, say("2"), expected_version=1)
                except DatabaseBusy:
                    return False
                return True

            eventually(accepted)
            child.send_signal(signal.SIGCONT)
            assert "CannotConnect\n" == child.communicate(timeout=PATIENCE_S)[0]
            assert 0 == child.returncode
        assert ["1", "2", "afterwards"] == texts(store.read(cid))
        assert store.verify().ok


@pytest.mark.parametrize("ending", [signal.SIGCONT, signal.SIGKILL])
def test_stopped_within_sqlites_transaction(sqlite_url: str, ending: signal.Signals) -> None:
    """It holds up all writers of the file, who are told so; readers go on, and all once it ends."""
    with EventStore.open(sqlite_url, busy_timeout_ms=100) as store:
        store.append(cid := new_id(), say("1"))
        with stopped(sqlite_url, cid) as child:
            with pytest.raises(DatabaseBusy):
                store.append(new_id(), say("another"))
            assert ["1"] == texts(store.read(cid))
            child.send_signal(ending)
            child.communicate(timeout=PATIENCE_S)
        store.append(cid, say("2"))
        goes_on = ["of the stopped", "afterwards"] if ending == signal.SIGCONT else []
        assert ["1", *goes_on, "2"] == texts(store.read(cid))
        assert store.verify().ok
