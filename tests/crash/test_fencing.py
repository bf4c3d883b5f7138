"""Two writers of one conversation: the older one is refused, and nothing of it lands afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

import pytest

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import BlockNotOpen
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from agent_eventstore.turn import Turn
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import WriterFenced
from tests.cli.program import run
from tests.concurrency.processes import CONTEXT, running
from tests.crash.older import write_on
from tests.crash.stand_in import answer
from tests.crash.world import Chunk

Takeover = Callable[[EventStore, UUID], None]


@pytest.fixture
def store(shared_url: str, open_store: Callable[[str], EventStore]) -> EventStore:
    """Give a store on the shared database."""
    return open_store(shared_url)


def open_again(store: EventStore, conversation_id: UUID) -> None:
    """Open the conversation as a second product would, and say something."""
    with (
        Conversation.open(store, conversation_id, if_busy="take_over") as newer,
        newer.turn("continue"),
    ):
        pass


def recover_by_command(store: EventStore, conversation_id: UUID) -> None:
    """Seal the open work from the command line."""
    url = store.engine.url.render_as_string(hide_password=False)
    assert 0 == run("recover", str(conversation_id), "--take-over", url=url).status


TAKEOVERS = pytest.mark.parametrize("take_over", [open_again, recover_by_command])


def in_mid_stream(conversation: Conversation) -> tuple[Turn, LlmCall]:
    """Begin a turn and a stream, and leave them open."""
    turn = conversation.turn("hello").__enter__()
    call = turn.llm_call().__enter__()
    chunks = answer(["first", "second"])
    for _ in range(3):
        call.feed(next(chunks))
    return turn, call


def feed(call: LlmCall, chunks: Iterable[Chunk]) -> None:
    """Feed all chunks."""
    for chunk in chunks:
        call.feed(chunk)


async def feed_on_loop(call: AsyncLlmCall, chunks: Iterable[Chunk]) -> None:
    """Feed all chunks."""
    for chunk in chunks:
        await call.feed(chunk)


def types(store: EventStore, conversation_id: UUID) -> list[str]:
    """Return the types of a conversation's events, in order."""
    return [event.type for event in store.read(conversation_id)]


@TAKEOVERS
def test_older_writer_in_mid_stream(store: EventStore, take_over: Takeover) -> None:
    """Its next batch is refused, and so is the end of every block that it leaves."""
    conversation = Conversation.start(store)
    turn, call = in_mid_stream(conversation)
    take_over(store, conversation.id)
    before = types(store, conversation.id)

    with pytest.raises(WriterFenced):
        feed(call, answer(["more "] * 300))
    for block in (call, turn):
        with pytest.raises(WriterFenced):
            block.__exit__(None, None, None)
    with pytest.raises(WriterFenced):
        conversation.turn("again").__enter__()
    with pytest.raises(WriterFenced):
        conversation.__exit__(None, None, None)
    with pytest.raises(BlockNotOpen):
        conversation.turn("and again").__enter__()

    assert before == types(store, conversation.id)


@TAKEOVERS
def test_older_writer_with_a_tool(store: EventStore, take_over: Takeover) -> None:
    """A result that comes after the takeover is refused; no further tool runs."""
    conversation = Conversation.start(store)
    turn = conversation.turn("hello").__enter__()
    with turn.llm_call() as call:
        for chunk in answer((), [("a", {}), ("b", {})]):
            call.feed(chunk)
    first, second = call.tool_calls
    tool = turn.tool(first).__enter__()
    take_over(store, conversation.id)
    before = types(store, conversation.id)

    with pytest.raises(WriterFenced):
        tool.result("done")
    with pytest.raises(WriterFenced), turn.tool(second):
        pytest.fail("the tool ran without a record")

    assert before == types(store, conversation.id)


def test_older_writer_on_an_event_loop(store: EventStore) -> None:
    """The asynchronous recorder is refused likewise, also by the timer that flushes a batch."""

    async def main() -> tuple[list[str], list[str]]:
        twin = AsyncEventStore(store)
        conversation = await AsyncConversation.start(twin)
        turn = await conversation.turn("hello").__aenter__()
        call = await turn.llm_call().__aenter__()
        chunks = answer(["first", *["more "] * 300])
        for _ in range(3):
            await call.feed(next(chunks))
        await AsyncConversation.open(twin, conversation.id, if_busy="take_over")
        before = types(store, conversation.id)
        with pytest.raises(WriterFenced):
            await feed_on_loop(call, chunks)
        for block in (call, turn, conversation):
            with pytest.raises(WriterFenced):
                await block.__aexit__(None, None, None)
        return before, types(store, conversation.id)

    before, after = asyncio.run(main())
    assert before == after


@pytest.mark.usefixtures("fork_server")
def test_older_writer_in_another_process(store: EventStore) -> None:
    """A process that was stopped and goes on finds itself fenced in mid-stream."""
    conversation_id = new_id()
    ours, theirs = CONTEXT.Pipe()
    url = store.engine.url.render_as_string(hide_password=False)
    with running(1, write_on, url, str(conversation_id), theirs):
        assert "in mid-stream" == ours.recv()
        with Conversation.open(store, conversation_id, if_busy="take_over") as newer:
            before = types(store, conversation_id)
            ours.send("go on")
            assert "fenced" == ours.recv()

            assert before == types(store, conversation_id)
            assert ["first"] == [
                call.text for call in (newer.recovery.found.model_calls if newer.recovery else ())
            ]


def test_newest_of_many_writes(store: EventStore) -> None:
    """Of several that opened the conversation one after the other, only the last may write."""
    conversation = Conversation.start(store)
    second = Conversation.open(store, conversation.id, if_busy="take_over")
    third = Conversation.open(store, conversation.id, if_busy="take_over")

    for older in (conversation, second):
        with pytest.raises(WriterFenced), older.turn("mine"):
            pytest.fail("an older writer began a turn")
    with third.turn("mine"):
        pass

    assert [0, 1, 2] == [
        writer.epoch >> 32  # type: ignore[operator]
        for writer in (conversation, second, third)
    ]
    assert 1 == types(store, conversation.id).count("user_message")
