"""PostgreSQL restarted and killed in the middle of a turn: a clear error, or exactly once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from uuid import UUID

import pytest

from agent_eventstore import journal as waiting
from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.llm_call import LlmCall
from eventstore import AsyncEventStore, EventStore
from eventstore.errors import CannotConnect
from eventstore.events import AssistantMessage, UserMessage
from tests.checkers import check_openai_messages
from tests.crash.stand_in import answer, pieces_of
from tests.crash.world import Chunk
from tests.postgres import PostgresServer

TEXT = "All work and no play makes Jack a dull boy. " * 40


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Give a server to these tests alone, to be stopped and crashed at will."""
    with PostgresServer() as found:
        yield found


@pytest.fixture
def store(server: PostgresServer) -> Iterator[EventStore]:
    """Give a store on that server, which runs."""
    if server.pid is None:
        server.start()
    with EventStore.open(server.url(), pool_size=2) as found:
        yield found


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the server as long as a busy machine may take to start it."""
    monkeypatch.setattr(waiting, "PATIENCE_S", 60.0)


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up at once, as after five seconds."""
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)


def record_with_restarts(store: EventStore, server: PostgresServer) -> UUID:
    """Record a turn while the server dies three times: before it, in mid-stream, in a tool."""
    starting = threading.Thread(target=server.start)
    with Conversation.start(store) as conversation:
        server.restart("immediate")
        with conversation.turn("hello") as turn:
            with turn.llm_call() as call:
                for number, chunk in enumerate(answer(pieces_of(TEXT, 40), [("save", {})])):
                    if number == 10:
                        server.stop("immediate")
                        starting.start()
                    call.feed(chunk)
            # The server may be there before its starter has noticed, who must not lose it again.
            starting.join()
            with turn.tool(call.tool_calls[0]) as tool:
                server.restart("fast")
                tool.result("saved")
    return conversation.id


async def record_with_restarts_aio(store: EventStore, server: PostgresServer) -> UUID:
    """Do the same on an event loop."""
    starting = threading.Thread(target=server.start)
    twin = AsyncEventStore(store)
    async with await AsyncConversation.start(twin) as conversation:
        await asyncio.to_thread(server.restart, "immediate")
        async with conversation.turn("hello") as turn:
            async with turn.llm_call() as call:
                for number, chunk in enumerate(answer(pieces_of(TEXT, 40), [("save", {})])):
                    if number == 10:
                        await asyncio.to_thread(server.stop, "immediate")
                        starting.start()
                    await call.feed(chunk)
            await asyncio.to_thread(starting.join)
            async with turn.tool(call.tool_calls[0]) as tool:
                await asyncio.to_thread(server.restart, "fast")
                await tool.result("saved")
    return conversation.id


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_server_that_comes_back(store: EventStore, server: PostgresServer, kind: str) -> None:
    """The recorder waits and repeats: the product notices nothing, every event is there once."""
    if kind == "sync":
        cid = record_with_restarts(store, server)
    else:
        cid = asyncio.run(record_with_restarts_aio(store, server))

    assert_whole(store, cid)
    assert ["ok"] == [e.data.status for e in store.read(cid) if e.type == "turn_end"]  # type: ignore[union-attr]


@pytest.mark.usefixtures("impatience")
def test_server_that_stays_away(store: EventStore, server: PostgresServer) -> None:
    """The caller is told; what had happened is written once the server is back, in order."""
    conversation = Conversation.start(store)
    turn = conversation.turn("hello").__enter__()
    call = turn.llm_call().__enter__()
    chunks = answer(pieces_of(TEXT, 40), [("save", {})])
    for _ in range(3):
        call.feed(next(chunks))
    server.stop("immediate")

    with pytest.raises(CannotConnect):
        feed(call, chunks)
    server.start()
    feed(call, chunks)
    call.__exit__(None, None, None)
    with turn.tool(call.tool_calls[0]) as tool:
        server.stop("immediate")
        with pytest.raises(CannotConnect):
            tool.result("saved")
        server.start()
    turn.__exit__(None, None, None)
    conversation.close()

    assert_whole(store, conversation.id)


@pytest.mark.usefixtures("impatience")
def test_every_block_is_left_while_the_server_is_away(
    store: EventStore, server: PostgresServer
) -> None:
    """An error that unwinds the whole turn loses nothing: the next turn writes it all first."""
    conversation = Conversation.start(store)

    def chunks() -> Iterator[Chunk]:
        for number, chunk in enumerate(answer(pieces_of(TEXT, 40))):
            yield chunk
            if number == 20:
                server.stop("immediate")

    with pytest.raises(CannotConnect), conversation.turn("one") as turn, turn.llm_call() as call:
        feed(call, chunks())
    server.start()

    with conversation.turn("two"):
        pass
    kinds = Counter(event.type for event in store.read(conversation.id))
    assert (2, 2, 1) == (kinds["turn_start"], kinds["turn_end"], kinds["llm_error"])
    assert_whole(store, conversation.id)


@pytest.mark.usefixtures("impatience")
def test_turn_that_could_not_begin(store: EventStore, server: PostgresServer) -> None:
    """Entering the same turn again says the user's words once; what did not begin did not run."""
    conversation = Conversation.start(store)
    turn = conversation.turn("hello")
    server.stop("immediate")
    with pytest.raises(CannotConnect), turn:
        pytest.fail("the turn began without a record")
    server.start()

    with turn:
        pass

    said = [e.data for e in store.read(conversation.id) if isinstance(e.data, UserMessage)]
    assert [UserMessage.text("hello")] == said


def feed(call: LlmCall, chunks: Iterable[Chunk]) -> None:
    """Feed all chunks."""
    for chunk in chunks:
        call.feed(chunk)


def assert_whole(store: EventStore, cid: UUID) -> None:
    """No event is there twice, chunks are gapless and make up the message, the chain holds."""
    events = list(store.read(cid))
    assert len(events) == len({event.event_id for event in events})
    chunks = [event.data for event in events if event.type == "assistant_chunk"]
    assert list(range(len(chunks))) == [chunk.index for chunk in chunks]  # type: ignore[union-attr]
    said = "".join(chunk.text for chunk in chunks)  # type: ignore[union-attr]
    for event in events:
        if isinstance(event.data, AssistantMessage):
            assert TEXT == said
    results = [e.data.content for e in events if e.type == "tool_result"]  # type: ignore[union-attr]
    assert set(results) <= {"saved"}
    assert len(results) <= 1
    assert store.verify(cid).ok
    view = Conversation.open(store, cid, if_busy="take_over").views.context(cid)
    assert [] == check_openai_messages(view.messages)
