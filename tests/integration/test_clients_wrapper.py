"""What `record` wraps and what it leaves alone, and into which turn a call is recorded."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

from conversations.aio import AsyncConversation
from conversations.clients import record, recorded
from conversations.clients.asked import seller_at
from conversations.conversation import Conversation
from conversations.current import current_turn
from eventstore import AsyncEventStore, EventStore
from eventstore import events as e
from tests.integration.replay_server import Refused, ReplayServer, Streamed, Whole
from tests.unit.streams.recorded import chunks_of, fed, text_of

CHAT = "openai-chat-text"
MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]


def answer(text: str = "Hi.") -> Whole:
    """Return a chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Whole(body)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give a store; each test has a conversation of its own."""
    path: Path = tmp_path_factory.mktemp("clients") / "agent.db"
    with EventStore.open(f"sqlite:///{path}") as opened:
        yield opened


@pytest.fixture
def conversation(store: EventStore) -> Conversation:
    """Give a conversation."""
    return Conversation.start(store)


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    """Give a provider that answers what it is told to."""
    with ReplayServer() as running:
        yield running


@pytest.fixture
def client(server: ReplayServer) -> Iterator[OpenAI]:
    """Give a recorded client of OpenAI's."""
    with record(OpenAI(base_url=server.url, api_key="test", max_retries=0)) as wrapped:
        yield wrapped


def ask(client: OpenAI, **options: Any) -> Any:
    """Call the model with the usual arguments."""
    return client.chat.completions.create(**{"model": "m", "messages": MESSAGES, **options})


def payloads(store: EventStore, conversation: Conversation, *kinds: type[e.Payload]) -> list[Any]:
    """Return the payloads of these types."""
    return [r.data for r in store.read(conversation.id) if isinstance(r.data, kinds)]


def test_call_outside_of_a_turn(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Where no turn is open the call is passed on, and nothing is recorded."""
    server.will(answer(), answer())
    with conversation.turn("hello"):
        pass
    before = conversation.version
    ask(client)

    assert (1, before) == (len(server.asked), store.get(conversation.id).version)


def test_request_of_the_turns_context(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Messages that the turn has made are recorded with the events that they were made of."""
    server.will(answer())
    with conversation.turn("hello") as turn:
        request = turn.context(max_tokens=500)
        ask(client, messages=request.messages)
    [asked] = payloads(store, conversation, e.LlmRequest)

    assert request.versions == asked.versions != ()
    assert request.digest == asked.digest
    assert request.tokens.tokens == asked.counted_tokens
    assert 500 == asked.policy["max_tokens"]


def test_changed_context_is_another_request(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Messages that the product has changed are not passed off as the turn's."""
    server.will(answer())
    with conversation.turn("hello") as turn:
        ask(client, messages=[*turn.context().messages, {"role": "user", "content": "more"}])
    [asked] = payloads(store, conversation, e.LlmRequest)

    assert ((), None) == (asked.versions, asked.counted_tokens)


def test_tools_follow_the_last_call(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
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
    [message] = payloads(store, conversation, e.AssistantMessage)
    results = payloads(store, conversation, e.ToolResult)

    assert [call.name for call in message.tool_calls] == [result.name for result in results] != []


def test_loop_that_is_taken_up_again(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A stream may be read by one loop after the other, as the SDK allows it."""
    server.will(Streamed(CHAT))
    with conversation.turn("hello"):
        stream = ask(client, stream=True)
        next(iter(stream))
        for _ in stream:
            pass
    [message] = payloads(store, conversation, e.AssistantMessage)

    assert text_of(fed(chunks_of(CHAT))) == "".join(part.text for part in message.parts)


def test_stream_left_when_the_answer_is_whole(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Leaving the loop at the finish reason, before the usage, is no error."""
    server.will(Streamed(CHAT))
    with conversation.turn("hello"), ask(client, stream=True) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].finish_reason:
                break
    [message] = payloads(store, conversation, e.AssistantMessage)

    assert "stop" == message.finish_reason
    assert [] == payloads(store, conversation, e.LlmError)


def test_dropped_stream_ends_before_the_next_call(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """What became of a dropped stream stands in the log before the next request."""
    server.will(Streamed(CHAT), answer())
    with conversation.turn("hello"):
        next(ask(client, stream=True))
        ask(client, messages=[{"role": "user", "content": "something else"}])
    found = payloads(store, conversation, e.LlmRequest, e.LlmError, e.AssistantMessage)

    wanted = ["llm_request", "llm_error", "llm_request", "assistant_message"]
    assert wanted == [data.type for data in found]


def test_error_in_the_products_own_loop(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """An error of the product while it reads cancels the call, and ends the turn."""
    server.will(Streamed(CHAT))
    with pytest.raises(ZeroDivisionError), conversation.turn("hello"):
        for _ in ask(client, stream=True):
            raise ZeroDivisionError
    [error] = payloads(store, conversation, e.LlmError)
    [end] = payloads(store, conversation, e.TurnEnd)

    assert ("cancelled", "error") == (error.kind, end.status)


def test_error_that_the_provider_streams(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """An error inside a stream is recorded as one, whether or not the SDK raises it."""
    server.will(Streamed("openai-responses-error"))
    with conversation.turn("hello"):
        try:
            for _ in client.responses.create(model="m", input="hello", stream=True):
                pass
        except openai.APIError:
            pass
    [error] = payloads(store, conversation, e.LlmError)

    assert "rate_limit" == error.kind
    assert [] == payloads(store, conversation, e.AssistantMessage)


def test_failed_response_that_is_not_streamed(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A response whose own status says that it failed is no message."""
    told = {"code": "server_error", "message": "it broke"}
    body = {"id": "r", "object": "response", "status": "failed", "error": told, "output": []}
    server.will(Whole(body))
    with conversation.turn("hello"):
        client.responses.create(model="m", input="hello")
    [error] = payloads(store, conversation, e.LlmError)

    assert ("provider", "it broke") == (error.kind, error.message)
    assert [] == payloads(store, conversation, e.AssistantMessage)


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


def test_credentials_stay_out(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Headers and the keys of remote tool servers are not recorded."""
    server.will(answer())
    remote = {
        "type": "mcp",
        "server_url": "u",
        "authorization": "secret",
        "headers": {"k": "secret"},
    }
    schema = {"type": "object", "properties": {"headers": {"type": "string"}}}
    function = {"type": "function", "function": {"name": "get", "parameters": schema}}
    with conversation.turn("hello"):
        ask(client, tools=[remote, function], extra_headers={"Authorization": "secret"})
    [asked] = payloads(store, conversation, e.LlmRequest)

    assert "secret" in str(server.asked)
    assert ({"type": "mcp", "server_url": "u"}, function) == asked.tools
    assert {} == asked.parameters


def test_messages_that_can_be_read_once(
    conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """An iterator of messages is sent whole, although the recorder has looked at it."""
    server.will(answer())
    with conversation.turn("hello"):
        ask(client, messages=iter(MESSAGES))

    assert MESSAGES == server.asked[0].body["messages"]


def test_conversation_within_a_conversation(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A call belongs to the innermost turn; then the outer one is current again."""
    inner = Conversation.start(store)
    server.will(answer("inner"), answer("outer"))
    with conversation.turn("outer"):
        with inner.turn("inner"):
            ask(client)
        ask(client)

    assert ["inner"] == [m.parts[0].text for m in payloads(store, inner, e.AssistantMessage)]
    assert ["outer"] == [m.parts[0].text for m in payloads(store, conversation, e.AssistantMessage)]


def test_context_that_outlives_its_turn(conversation: Conversation) -> None:
    """A turn that is over is not current, even where its context lives on."""
    with conversation.turn("hello") as turn:
        context = contextvars.copy_context()
        inside = context.run(current_turn)

    assert (turn, None) == (inside, context.run(current_turn))


def test_calls_at_the_same_time(store: EventStore, server: ReplayServer) -> None:
    """Each of several answers knows its own call, and all are in the turn."""
    server.will(answer("one"), answer("two"))

    async def main() -> list[tuple[str, str, int]]:
        async with (
            await AsyncEventStore.open(store.url) as own,
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


def test_cancelled_task(store: EventStore, server: ReplayServer) -> None:
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
            await AsyncEventStore.open(store.url) as own,
            record(AsyncOpenAI(base_url=server.url, api_key="test")) as client,
            await AsyncConversation.start(own) as conversation,
        ):
            task = asyncio.create_task(talk(conversation, client))
            await reading.wait()
            task.cancel()
            await asyncio.wait({task})
            return conversation

    conversation = asyncio.run(main())
    [error] = payloads(store, conversation, e.LlmError)

    assert ("cancelled", fed(chunks_of(CHAT)[:6]).partial().text) == (
        error.kind,
        error.partial_text,
    )


def test_client_of_the_other_kind(store: EventStore, server: ReplayServer, client: OpenAI) -> None:
    """A client that would block the event loop is refused in a turn that is for event loops."""

    async def main() -> None:
        async with (
            await AsyncEventStore.open(store.url) as own,
            await AsyncConversation.start(own) as conversation,
            conversation.turn("hello"),
        ):
            ask(client)

    with pytest.raises(TypeError, match="OpenAI cannot be recorded in AsyncTurn"):
        asyncio.run(main())
    assert [] == server.asked


def test_no_client() -> None:
    """What has none of the methods is refused at once."""
    with pytest.raises(TypeError, match="object is no client"):
        record(object())


def test_everything_else_is_the_clients(server: ReplayServer) -> None:
    """Attributes are read from the client and written to it; other methods are untouched."""
    plain = OpenAI(base_url=server.url, api_key="test")
    wrapped = record(plain)
    wrapped.timeout = 7

    assert ("test", 7) == (wrapped.api_key, plain.timeout)
    assert plain.models is wrapped.models
    assert plain.chat.completions.list == wrapped.chat.completions.list
    assert set(dir(plain)) == set(dir(wrapped))
    plain.close()


def test_copy_of_a_client(
    store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A copy with other options is recorded like its original."""
    server.will(answer())
    with conversation.turn("hello"):
        ask(client.with_options(timeout=5))

    assert 1 == len(payloads(store, conversation, e.AssistantMessage))


def test_beta_resources(
    store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """Anthropic's beta messages are recorded like the others."""
    server.will(Streamed("anthropic-text"))
    with (
        record(Anthropic(base_url=server.url, api_key="test")) as client,
        conversation.turn("hello"),
        client.beta.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream,
    ):
        said = "".join(stream.text_stream)
    [message] = payloads(store, conversation, e.AssistantMessage)

    assert said == "".join(part.text for part in message.parts) != ""


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("http://127.0.0.1:1/v1", None),
    ],
)
def test_provider_of_a_url(url: str, provider: str | None) -> None:
    """Who is asked is told from the client's URL, by the price list's names."""
    assert provider == seller_at(url)


def test_provider_as_told(
    store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """Who is asked is what the product says, if it does."""
    server.will(Refused(400, {"error": {"message": "no"}}))
    with (
        record(OpenAI(base_url=server.url, api_key="test"), provider="mine") as client,
        conversation.turn("hello"),
        pytest.raises(openai.BadRequestError),
    ):
        ask(client)
    [error] = payloads(store, conversation, e.LlmError)

    assert "mine" == error.invocation.provider
