"""What `record` wraps and what it leaves alone, and what it keeps of requests and streams."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

from agent_eventstore import AsyncConversation, AsyncEventStore
from agent_eventstore.clients import record, recorded
from agent_eventstore.clients.client_requests import seller_at
from agent_eventstore.conversation import Conversation
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncTurn
from eventstore import EventStore
from eventstore import events as e
from tests.integration.chatting import CHAT, MESSAGES, answer, ask, payloads
from tests.integration.replay_server import Refused, ReplayServer, Streamed, Whole
from tests.unit.streams.recorded import chunks_of, fed, text_of


def test_loop_that_is_taken_up_again(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A stream may be read by one loop after the other, as the SDK allows it."""
    server.will(Streamed(CHAT))
    with conversation.turn("hello"):
        stream = ask(client, stream=True)
        next(iter(stream))
        for _ in stream:
            pass
    [message] = payloads(shared_store, conversation, e.AssistantMessage)

    assert text_of(fed(chunks_of(CHAT))) == "".join(part.text for part in message.parts)


def test_stream_left_when_the_answer_is_whole(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Leaving the loop at the finish reason, before the usage, is not an error."""
    server.will(Streamed(CHAT))
    with conversation.turn("hello"), ask(client, stream=True) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].finish_reason:
                break
    [message] = payloads(shared_store, conversation, e.AssistantMessage)

    assert "stop" == message.finish_reason
    assert [] == payloads(shared_store, conversation, e.LlmError)


def test_error_that_the_provider_streams(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """An error inside a stream is recorded as one, whether or not the SDK raises it."""
    server.will(Streamed("openai-responses-error"))
    with conversation.turn("hello"):
        try:
            for _ in client.responses.create(model="m", input="hello", stream=True):
                pass
        except openai.APIError:
            pass
    [error] = payloads(shared_store, conversation, e.LlmError)

    assert "rate_limit" == error.kind
    assert [] == payloads(shared_store, conversation, e.AssistantMessage)


def test_failed_response_that_is_not_streamed(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A response whose own status says that it failed is not a message."""
    told = {"code": "server_error", "message": "it broke"}
    body = {"id": "r", "object": "response", "status": "failed", "error": told, "output": []}
    server.will(Whole(body))
    with conversation.turn("hello"):
        client.responses.create(model="m", input="hello")
    [error] = payloads(shared_store, conversation, e.LlmError)

    assert ("provider", "it broke") == (error.kind, error.message)
    assert [] == payloads(shared_store, conversation, e.AssistantMessage)


def test_credentials_stay_out(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Headers and the keys of remote tool servers are not recorded, and marks say so."""
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
    [asked] = payloads(shared_store, conversation, e.LlmRequest)

    assert "secret" in str(server.asked)
    marked = {
        "type": "mcp",
        "server_url": "u",
        "authorization": "[redacted: authorization]",
        "headers": {"k": "[redacted: headers]"},
    }
    assert (marked, function) == asked.tools
    assert {"extra_headers": {"Authorization": "[redacted: authorization]"}} == asked.parameters


def test_messages_that_can_be_read_once(
    conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """An iterator of messages is sent whole, although the recorder has looked at it."""
    server.will(answer())
    with conversation.turn("hello"):
        ask(client, messages=iter(MESSAGES))

    assert MESSAGES == server.asked[0].body["messages"]


def test_no_client() -> None:
    """What has none of the methods is refused at once."""
    with pytest.raises(TypeError, match="object is not a client"):
        record(object())


def test_library_around_a_client() -> None:
    """Instructor's objects answer to the same names with objects of their own: they are refused."""

    class Instructor:
        chat = completions = messages = responses = property(lambda self: self)

    with pytest.raises(TypeError, match="Instructor wraps a client"):
        record(Instructor())


def test_client_of_both_shapes(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """A gateway's client with methods of OpenAI's and of Anthropic's is recorded in both."""

    class Gateway(OpenAI):
        messages = None

    server.will(answer())
    client = record(Gateway(base_url=server.url, api_key="test"))
    with conversation.turn("hello"):
        ask(client)

    assert 1 == len(payloads(shared_store, conversation, e.AssistantMessage))


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


def test_instances_of_their_classes(server: ReplayServer) -> None:
    """Who takes nothing but the SDK's own classes takes recorded clients and their resources."""
    for plain in (
        OpenAI(base_url=server.url, api_key="test"),
        AsyncOpenAI(base_url=server.url, api_key="test"),
        Anthropic(base_url=server.url, api_key="test"),
    ):
        wrapped, made = record(plain), type(plain)
        resource = wrapped.messages if isinstance(wrapped, Anthropic) else wrapped.chat.completions
        own = plain.messages if isinstance(plain, Anthropic) else plain.chat.completions

        assert isinstance(wrapped, made)
        assert isinstance(resource, type(own))
        assert isinstance(wrapped.with_options(timeout=1), made)
        assert {"RecordedClient"} == {type(each).__name__ for each in (wrapped, resource)}


class AsyncSounding(OpenAI):
    """A synchronous client, whatever its name."""


class _Completions:
    def create(self, **_: object) -> None:
        """Answer at once."""


class _AsyncCompletions:
    async def create(self, **_: object) -> None:
        """Answer later."""


@pytest.mark.parametrize(
    ("client", "kind"),
    [
        (AsyncSounding(api_key="test"), Turn),
        (AsyncOpenAI(api_key="test"), AsyncTurn),
        (SimpleNamespace(chat=SimpleNamespace(completions=_Completions())), Turn),
        (SimpleNamespace(chat=SimpleNamespace(completions=_AsyncCompletions())), AsyncTurn),
    ],
)
def test_a_client_s_methods_say_whether_it_is_asynchronous(
    common: EventStore, recorded_url: str, client: Any, kind: type[object]
) -> None:
    """Not its name: before, a synchronous subclass named "Async..." was refused in a turn."""

    async def bind_in_a_loop() -> None:
        async with (
            await AsyncEventStore.open(recorded_url) as store,
            await AsyncConversation.start(store) as conversation,
            conversation.turn("hello") as turn,
        ):
            turn.client(client)

    def bind() -> None:
        with Conversation.start(common) as conversation, conversation.turn("hello") as turn:
            turn.client(client)

    with nullcontext() if kind is Turn else pytest.raises(TypeError, match="cannot be recorded"):
        bind()
    with nullcontext() if kind is AsyncTurn else pytest.raises(TypeError, match="cannot be"):
        asyncio.run(bind_in_a_loop())


def test_providers_are_not_remembered_without_end() -> None:
    """A product with an endpoint for each tenant would have kept them all."""
    for number in range(1_000):
        assert seller_at(f"https://tenant-{number}.example/v1") is None
    assert 256 == seller_at.cache_info().currsize


def test_copy_of_a_client(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A copy with other options is recorded like its original."""
    server.will(answer())
    with conversation.turn("hello"):
        ask(client.with_options(timeout=5))

    assert 1 == len(payloads(shared_store, conversation, e.AssistantMessage))


def test_beta_resources(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """Anthropic's beta messages are recorded like the others."""
    server.will(Streamed("anthropic-text"))
    with (
        record(Anthropic(base_url=server.url, api_key="test")) as client,
        conversation.turn("hello"),
        client.beta.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream,
    ):
        said = "".join(stream.text_stream)
    [message] = payloads(shared_store, conversation, e.AssistantMessage)

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
    shared_store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """Who is asked is what the product says, if it does."""
    server.will(Refused(400, {"error": {"message": "no"}}))
    with (
        record(OpenAI(base_url=server.url, api_key="test"), provider="mine") as client,
        conversation.turn("hello"),
        pytest.raises(openai.BadRequestError),
    ):
        ask(client)
    [error] = payloads(shared_store, conversation, e.LlmError)

    assert "mine" == error.invocation.provider


def test_client_of_the_same_shape(shared_store: EventStore, conversation: Conversation) -> None:
    """Another SDK of OpenAI's shape is recorded, also where its helper is one of its own."""
    chunks = chunks_of(CHAT)
    completions = SimpleNamespace(stream=lambda **_: nullcontext(iter(chunks)))
    client = record(SimpleNamespace(chat=SimpleNamespace(completions=completions)))
    with conversation.turn("hello"), client.chat.completions.stream(model="m") as stream:
        passed = list(stream)
    [message] = payloads(shared_store, conversation, e.AssistantMessage)

    assert chunks == passed
    assert text_of(fed(chunks)) == "".join(part.text for part in message.parts)


def test_answer_that_was_not_recorded() -> None:
    """What no wrapped client has returned has no call."""
    assert recorded(answer()) is None


@pytest.mark.parametrize("again", [record, copy.copy], ids=["recorded again", "copied"])
def test_recorded_once(
    shared_store: EventStore,
    conversation: Conversation,
    server: ReplayServer,
    client: OpenAI,
    again: Callable[[OpenAI], OpenAI],
) -> None:
    """A client that is recorded already stays so: each call is in the log once."""
    server.will(answer("Hi."))
    with conversation.turn("hello"):
        ask(again(client))

    assert 1 == len(payloads(shared_store, conversation, e.LlmRequest))
    assert 1 == len(payloads(shared_store, conversation, e.AssistantMessage))


def test_class_in_place_of_a_client() -> None:
    """A client's class has the shape of a client, and is none."""
    with pytest.raises(TypeError, match="OpenAI is a class"):
        record(OpenAI)
