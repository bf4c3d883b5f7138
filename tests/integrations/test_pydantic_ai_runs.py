"""Pydantic AI's real agent with `SavedRun`: steps, streams, approvals and failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations
from agent_eventstore.integrations.pydantic_ai.saving import SavedRun, StreamedRun
from tests.integrations.conftest import arrived, chunks_of

pytestmark = pytest.mark.anyio
TestModel.__test__ = False


@pytest.fixture
def conversations(store: EventStore) -> EventStoreConversations:
    """Give the adapter over a store."""
    return EventStoreConversations(store)


def agent_on(conversations: EventStoreConversations, *broken: str) -> Agent[None, str]:
    """Return an agent with two tools, of which those named break down."""
    agent = Agent(TestModel(), capabilities=[SavedRun(conversations)])

    @agent.tool_plain
    def warm() -> str:
        return "18 degrees"

    @agent.tool_plain
    async def tide() -> str:
        if "tide" in broken:
            raise RuntimeError("the harbour does not answer")
        return "high"

    return agent


async def test_a_run_saves_itself(conversations: EventStoreConversations) -> None:
    """Its result is stored, and can be saved again and continued."""
    agent = agent_on(conversations)
    done = await agent.run("How warm?", conversation=Conversation(conversation_id="c"))
    loaded = await conversations.load("c")

    assert loaded is not None
    assert loaded.messages == done.all_messages()
    assert loaded.usage == done.conversation.usage
    assert await conversations.save(done) == []
    more = await agent.run("And?", conversation=done.conversation)
    record = await conversations.read_record("c")
    assert record is not None
    assert record.branches == []
    again = await conversations.load("c")
    assert again is not None
    assert again.messages == more.all_messages()


async def test_a_streamed_run(conversations: EventStoreConversations) -> None:
    """The same, also with the events of ``iter``."""
    agent = agent_on(conversations)
    begun = Conversation(conversation_id="c")
    async with agent.run_stream("How warm?", conversation=begun) as stream:
        assert [each async for each in stream.stream_text()]
    loaded = await conversations.load("c")
    assert loaded is not None
    async with agent.iter("And?", conversation=loaded) as run:
        async for _ in run:
            pass

    again = await conversations.load("c")
    assert run.result is not None
    assert again is not None
    assert again.messages == run.result.all_messages()


async def test_a_run_that_fails_in_a_tool(conversations: EventStoreConversations) -> None:
    """What had happened is stored; a run without a prompt makes the calls that are open."""
    with pytest.raises(RuntimeError):
        await agent_on(conversations, "tide").run(
            "How warm?", conversation=Conversation(conversation_id="c")
        )
    left = await conversations.load("c")
    assert left is not None
    assert [type(each).__name__ for each in left.messages] == ["ModelRequest", "ModelResponse"]

    done = await agent_on(conversations).run(conversation=left)
    assert done.output == '{"warm":"18 degrees","tide":"high"}'
    again = await conversations.load("c")
    assert again is not None
    assert again.messages == done.all_messages()


async def test_a_run_on_what_is_stored_no_more(conversations: EventStoreConversations) -> None:
    """It is refused before it asks the model, and so is one that begins anew."""
    agent = agent_on(conversations)
    first = await agent.run("How warm?", conversation=Conversation(conversation_id="c"))
    old = first.conversation
    await agent.run("And?", conversation=old)

    for stale in (old, Conversation(conversation_id="c")):
        with pytest.raises(ConversationConflict):
            await agent.run("Again?", conversation=stale)


async def test_runs_at_once(store: EventStore, conversations: EventStoreConversations) -> None:
    """One agent serves many conversations, each with messages of its own."""
    agent = agent_on(conversations)
    runs: list[Any] = await asyncio.gather(
        *(agent.run(str(n), conversation=Conversation(conversation_id=f"c{n}")) for n in range(4))
    )

    for n, done in enumerate(runs):
        loaded = await conversations.load(f"c{n}")
        assert loaded is not None
        assert loaded.messages == done.all_messages()
    assert len(Views(store).tool_calls()) == 8


def streaming(stream: Any, conversations: EventStoreConversations) -> Agent[None, str]:
    """Return an agent whose model streams what a function yields, and which records it."""
    return Agent(FunctionModel(stream_function=stream), capabilities=[StreamedRun(conversations)])


async def test_what_streams_is_recorded(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """An answer that ends is one item; one that breaks off is interrupted when a run goes on."""
    broken = [True]

    async def stream(messages: list[Any], info: Any) -> Any:
        yield "It is "
        if broken:
            raise RuntimeError("the line is dead")
        yield "18 degrees."

    agent = streaming(stream, conversations)
    with pytest.raises(RuntimeError):
        await agent.run("How warm?", conversation=Conversation(conversation_id="c"))
    assert [each.llm_call_id for each in Views(store).open_work("c").model_calls]

    broken.clear()
    loaded = await conversations.load("c")
    done = await agent.run(conversation=loaded)
    again = await conversations.load("c")

    assert again is not None
    assert again.messages == done.all_messages()
    timeline = Views(store).timeline("c")
    said = [(each.status, each.text) for each in timeline if each.kind == "assistant"]
    assert said == [("interrupted", "It is "), ("complete", "It is 18 degrees.")]
    assert Views(store).open_work("c").model_calls == ()


async def test_an_answer_that_is_an_output(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """It is saved with what comes of it, and is the answer that streamed all the same."""
    tried: list[str] = []

    async def stream(messages: list[Any], info: Any) -> Any:
        tried.append("n")
        given = '{"n": "many"}' if len(tried) == 1 else '{"n": 3}'
        yield {0: DeltaToolCall(info.output_tools[0].name, given, tool_call_id=f"c{len(tried)}")}

    class Count(BaseModel):
        n: int

    agent = Agent(
        FunctionModel(stream_function=stream),
        capabilities=[StreamedRun(conversations)],
        output_type=Count,
        retries=1,
    )
    done = await agent.run("How many?", conversation=Conversation(conversation_id="c"))

    views = Views(store)
    assert done.output == Count(n=3)
    assert views.open_work("c").model_calls == ()
    assert not [each.text for each in views.timeline("c") if each.kind == "error"]
    [used] = views.usage(by="conversation", conversation_id="c")
    assert used.calls == 2


async def test_a_stream_that_stalls(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """What it holds is durable though no further piece comes; each piece is recorded once."""

    async def stream(messages: list[Any], info: Any) -> Any:
        yield "It is "
        yield "18 "
        await arrived(store, "c", "It is 18 ")
        yield "degrees."

    agent = streaming(stream, conversations)
    done = await agent.run("How warm?", conversation=Conversation(conversation_id="c"))

    assert done.output == "It is 18 degrees."
    assert "".join(chunks_of(store, "c")) == "It is 18 degrees."


async def test_a_stream_that_breaks_off(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """What it held is written before the run ends."""

    async def stream(messages: list[Any], info: Any) -> Any:
        yield "It is "
        yield "18 "
        raise RuntimeError("the line is dead")

    agent = streaming(stream, conversations)
    with pytest.raises(RuntimeError):
        await agent.run("How warm?", conversation=Conversation(conversation_id="c"))

    assert chunks_of(store, "c") == ["It is ", "18 "]


class _Labelled(SavedRun):
    """A capability that somebody has made of it, with arguments of its own."""

    def __init__(self, label: str, conversations: EventStoreConversations) -> None:
        super().__init__(conversations)
        self.label, self.id = label, "labelled"
        self.seen: list[tuple[str, str | None]] = []

    async def wrap_model_request(self, ctx: Any, **given: Any) -> Any:
        """Note what the run's own has of the one that the agent was given."""
        self.seen.append((self.label, self.id))
        return await super().wrap_model_request(ctx, **given)


async def test_a_capability_made_of_it(conversations: EventStoreConversations) -> None:
    """A run's own is one of its class with all that was given, and runs are kept apart."""
    labelled = _Labelled("mine", conversations)
    agent = Agent(TestModel(), capabilities=[labelled])
    keys = ("a", "b")
    await asyncio.gather(
        *(agent.run("Hello", conversation=Conversation(conversation_id=each)) for each in keys)
    )

    assert labelled.seen == [("mine", "labelled")] * 2
    for each in keys:
        loaded = await conversations.load(each)
        assert loaded is not None
        assert len(loaded.messages) == 2
