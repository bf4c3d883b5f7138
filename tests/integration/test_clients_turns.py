"""Into which turn a wrapped client records, and how its calls go together with the rest of it."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.clients import UnrecordedCall, record, recorded
from agent_eventstore.conversation import Conversation
from agent_eventstore.current import current_turn
from eventstore import AsyncEventStore, EventStore
from eventstore import events as e
from tests.integration.chatting import CHAT, MESSAGES, answer, ask, payloads
from tests.integration.replay_server import ReplayServer, Streamed
from tests.unit.streams.recorded import chunks_of, fed


def test_call_outside_of_a_turn(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Where no turn is open the call is passed on, and that nothing is recorded is said."""
    server.will(answer(), answer())
    with conversation.turn("hello"):
        pass
    before = conversation.version
    with pytest.warns(UnrecordedCall, match="no turn is open"):
        ask(client)

    assert (1, before) == (len(server.asked), shared_store.get(conversation.id).version)


def test_request_of_the_turns_context(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Messages that the turn has made are recorded with the events that they were made of."""
    server.will(answer())
    with conversation.turn("hello") as turn:
        request = turn.context(max_tokens=500)
        ask(client, messages=request.messages)
    [asked] = payloads(shared_store, conversation, e.LlmRequest)

    assert request.versions == asked.versions != ()
    assert request.digest == asked.digest
    assert request.tokens.tokens == asked.counted_tokens
    assert 500 == asked.policy["max_tokens"]


def test_changed_context_is_another_request(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Messages that the product has changed are not passed off as the turn's."""
    server.will(answer())
    with conversation.turn("hello") as turn:
        ask(client, messages=[*turn.context().messages, {"role": "user", "content": "more"}])
    [asked] = payloads(shared_store, conversation, e.LlmRequest)

    assert ((), None) == (asked.versions, asked.counted_tokens)


def test_tools_follow_the_last_call(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """The tool calls of a stream that was read can be executed in the turn."""
    server.will(Streamed("openai-chat-groq-tool-call"))
    with conversation.turn("hello") as turn:
        for _ in ask(client, stream=True):
            pass
        assert turn.last_call
        for wanted in turn.last_call.tool_calls:
            with turn.tool(wanted) as tool:
                tool.result("done")
    [message] = payloads(shared_store, conversation, e.AssistantMessage)
    results = payloads(shared_store, conversation, e.ToolResult)

    assert [call.name for call in message.tool_calls] == [result.name for result in results] != []


def test_dropped_stream_ends_before_the_next_call(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """What became of a dropped stream stands in the log before the next request."""
    server.will(Streamed(CHAT), answer())
    with conversation.turn("hello"):
        next(ask(client, stream=True))
        ask(client, messages=[{"role": "user", "content": "something else"}])
    found = payloads(shared_store, conversation, e.LlmRequest, e.LlmError, e.AssistantMessage)

    wanted = ["llm_request", "llm_error", "llm_request", "assistant_message"]
    assert wanted == [data.type for data in found]


def test_closing_is_recorded_at_once(
    conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """What became of a stream is known once it is closed, before the turn goes on."""
    server.will(Streamed(CHAT))
    with conversation.turn("hello") as turn:
        stream = ask(client, stream=True)
        next(stream)
        stream.close()
        call = turn.last_call

        assert call
        assert call is recorded(stream)
        assert call.error
        assert "cancelled" == call.error.kind


def test_error_in_the_products_own_loop(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """An error of the product before it has read a stream cancels the call, and ends the turn."""
    server.will(Streamed(CHAT))
    with pytest.raises(AttributeError), conversation.turn("hello"):
        ask(client, stream=True, messages=MESSAGES).read_with_a_typo()
    [error] = payloads(shared_store, conversation, e.LlmError)
    [end] = payloads(shared_store, conversation, e.TurnEnd)

    assert ("cancelled", "error") == (error.kind, end.status)


def test_usage_of_the_turn(
    conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A stream's tokens are counted once, whether it is closed afterwards or not."""
    server.will(Streamed(CHAT))
    with conversation.turn("hello") as turn, ask(client, stream=True) as stream:
        for _ in stream:
            pass
        stream.close()
    usage = fed(chunks_of(CHAT)).message().usage

    assert usage
    assert turn.usage
    assert usage.prompt_tokens == turn.usage.prompt_tokens


def test_conversation_within_a_conversation(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A call belongs to the innermost turn; then the outer one is current again."""
    inner = Conversation.start(shared_store)
    server.will(answer("inner"), answer("outer"))
    with conversation.turn("outer"):
        with inner.turn("inner"):
            ask(client)
        ask(client)

    assert ["inner"] == [m.parts[0].text for m in payloads(shared_store, inner, e.AssistantMessage)]
    assert ["outer"] == [
        m.parts[0].text for m in payloads(shared_store, conversation, e.AssistantMessage)
    ]


def test_context_that_outlives_its_turn(conversation: Conversation) -> None:
    """A turn that is over is not current, even where its context lives on."""
    with conversation.turn("hello") as turn:
        context = contextvars.copy_context()
        inside = context.run(current_turn)

    assert (turn, None) == (inside, context.run(current_turn))


def test_abandoned_turn(conversation: Conversation, server: ReplayServer, client: OpenAI) -> None:
    """A turn that was entered, never left and forgotten records nothing any more."""
    server.will(answer())
    conversation.turn("hello").__enter__()
    before = conversation.version
    with pytest.warns(UnrecordedCall, match="no turn is open"):
        ask(client)

    assert before == conversation.version


def test_calls_at_the_same_time(shared_store: EventStore, server: ReplayServer) -> None:
    """Each of several answers knows its own call, and all are in the turn."""
    server.will(answer("one"), answer("two"))

    async def main() -> list[tuple[str, str, int]]:
        async with (
            await AsyncEventStore.open(shared_store.url) as own,
            record(AsyncOpenAI(base_url=server.url, api_key="test")) as client,
            await AsyncConversation.start(own) as conversation,
            conversation.turn("hello"),
        ):
            asked: list[Any] = [
                client.chat.completions.create(model="m", messages=MESSAGES) for _ in range(2)
            ]
            answers = await asyncio.gather(*asked)
            calls = [recorded(each) for each in answers]
            said = [each.choices[0].message.content for each in answers]
            return [(a, c.text, c.attempt) for a, c in zip(said, calls, strict=True)]

    assert [("one", "one", 1), ("two", "two", 1)] == sorted(asyncio.run(main()))


def test_cancelled_task(shared_store: EventStore, server: ReplayServer) -> None:
    """Cancelling the task that reads a stream cancels the call, and what was read is kept."""
    server.will(Streamed(CHAT, "stall", after=6))

    async def main() -> Any:
        reading = asyncio.Event()

        async def talk(conversation: AsyncConversation, client: AsyncOpenAI) -> None:
            async with conversation.turn("hello"):
                stream = await client.chat.completions.create(
                    model="m", messages=MESSAGES, stream=True
                )
                count = 0
                async for _ in stream:
                    count += 1
                    if count == 6:
                        reading.set()

        async with (
            await AsyncEventStore.open(shared_store.url) as own,
            record(AsyncOpenAI(base_url=server.url, api_key="test")) as client,
            await AsyncConversation.start(own) as conversation,
        ):
            task = asyncio.create_task(talk(conversation, client))
            await reading.wait()
            task.cancel()
            await asyncio.wait({task})
            return conversation

    conversation = asyncio.run(main())
    [error] = payloads(shared_store, conversation, e.LlmError)

    assert ("cancelled", fed(chunks_of(CHAT)[:6]).partial().text) == (
        error.kind,
        error.partial_text,
    )


def test_client_of_the_other_kind(
    shared_store: EventStore, server: ReplayServer, client: OpenAI
) -> None:
    """A client that would block the event loop is refused in a turn that is for event loops."""

    async def main() -> None:
        async with (
            await AsyncEventStore.open(shared_store.url) as own,
            await AsyncConversation.start(own) as conversation,
            conversation.turn("hello"),
        ):
            ask(client)

    with pytest.raises(TypeError, match="OpenAI cannot be recorded in AsyncTurn"):
        asyncio.run(main())
    assert [] == server.asked
