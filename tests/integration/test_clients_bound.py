"""Clients that know their turn wherever they are called, and calls that no turn is open for.

A web framework runs a product's loop in several threads and tasks; there the context variable of
the turn is lost, and what a recorded client was asked went missing without a word.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.clients import UnrecordedCall, record
from agent_eventstore.conversation import Conversation
from agent_eventstore.current import current_turn
from agent_eventstore.errors import CallNotRecorded
from eventstore import AsyncEventStore, EventStore
from eventstore import events as e
from eventstore.errors import EventStoreError
from tests.integration.chatting import CHAT, MESSAGES, answer, ask, payloads
from tests.integration.products import TLS
from tests.integration.replay_server import ReplayServer, Streamed
from tests.unit.streams.recorded import chunks_of, fed, text_of

NO_TURN = r"OpenAI.chat.completions.create is not recorded: no turn is open.*turn\.client\(client\)"


@pytest.fixture
def plain(server: ReplayServer) -> Iterator[OpenAI]:
    """Give a client that is not recorded."""
    http = httpx2.Client(verify=TLS)
    with OpenAI(base_url=server.url, api_key="t", max_retries=0, http_client=http) as own:
        yield own


def in_a_new_thread(work: Any) -> None:
    """Run something where no context is known."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def answers(store: EventStore, conversation: Conversation) -> list[str]:
    """Return what was answered in a conversation."""
    messages = payloads(store, conversation, e.AssistantMessage)
    return ["".join(part.text for part in message.parts) for message in messages]


@pytest.mark.parametrize("recorded_before", [True, False])
def test_another_thread(
    shared_store: EventStore,
    conversation: Conversation,
    server: ReplayServer,
    plain: OpenAI,
    recorded_before: bool,
) -> None:
    """A thread that knows of no turn records through the turn's own client."""
    server.will(answer("Hi."))
    with conversation.turn("hello") as turn:
        client = turn.client(record(plain) if recorded_before else plain)
        in_a_new_thread(lambda: ask(client.with_options(timeout=9)))
    [request] = payloads(shared_store, conversation, e.LlmRequest)

    assert ["Hi."] == answers(shared_store, conversation)
    assert "openai_chat" == request.invocation.specification


def test_provider_of_a_bound_client(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, plain: OpenAI
) -> None:
    """What was said of the provider stays, unless the turn says it anew."""
    server.will(answer(), answer())
    with conversation.turn("hello") as turn:
        ask(turn.client(record(plain, provider="mine")))
        ask(turn.client(record(plain, provider="mine"), provider="yours"))
    requests = payloads(shared_store, conversation, e.LlmRequest)

    assert ["mine", "yours"] == [request.invocation.provider for request in requests]


def steps(turn: Any, client: Any) -> Iterator[str]:
    """Hold a turn in a generator, and ask before its first step and after it."""
    with turn:
        for _ in range(2):
            for chunk in ask(client(turn), stream=True):
                yield chunk.choices[0].delta.content or "" if chunk.choices else ""


def stepped(generator: Iterator[str]) -> list[str]:
    """Take each step in a context of its own, as frameworks do it."""
    taken: list[str] = []
    while True:
        step = contextvars.Context().run(next, generator, None)
        if step is None:
            return taken
        taken.append(step)


def test_generator_whose_steps_have_no_context(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, plain: OpenAI
) -> None:
    """A streaming response of a framework is recorded whole through the turn's own client."""
    server.will(Streamed(CHAT), Streamed(CHAT))
    said = stepped(steps(conversation.turn("hello"), lambda turn: turn.client(plain)))
    whole = text_of(fed(chunks_of(CHAT)))

    assert [whole, whole] == answers(shared_store, conversation)
    assert whole + whole == "".join(said)


def test_generator_that_does_not_name_its_turn(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, plain: OpenAI
) -> None:
    """The stream that was begun in the turn is recorded whole, and the next is warned about."""
    server.will(Streamed(CHAT), Streamed(CHAT))
    client = record(plain)
    with pytest.warns(UnrecordedCall, match=NO_TURN):
        stepped(steps(conversation.turn("hello"), lambda _: client))

    assert [text_of(fed(chunks_of(CHAT)))] == answers(shared_store, conversation)


def test_task_for_each_chunk(shared_store: EventStore, server: ReplayServer) -> None:
    """A stream that is read by one task after the other stays in the turn that it was begun in."""
    server.will(Streamed(CHAT), answer("And more."))

    async def main() -> Any:
        async with (
            await AsyncEventStore.open(shared_store.url) as own,
            AsyncOpenAI(base_url=server.url, api_key="test") as plain,
            await AsyncConversation.start(own) as conversation,
        ):
            asking = asyncio.Event()

            async def worker(turns: asyncio.Queue[Any]) -> None:
                asking.set()
                turn = await turns.get()
                assert current_turn() is None
                client = turn.client(plain)
                stream = await client.chat.completions.create(
                    model="m", messages=MESSAGES, stream=True
                )
                while await asyncio.create_task(anext(stream, None)) is not None:
                    pass
                await asyncio.wait_for(
                    client.chat.completions.create(model="m", messages=MESSAGES), 30
                )

            turns: asyncio.Queue[Any] = asyncio.Queue()
            before = asyncio.create_task(worker(turns))
            await asking.wait()
            async with conversation.turn("hello") as turn:
                await turns.put(turn)
                await before
            return conversation

    conversation = asyncio.run(main())

    assert [text_of(fed(chunks_of(CHAT))), "And more."] == answers(shared_store, conversation)


def test_client_of_the_other_kind_is_not_bound(
    conversation: Conversation, server: ReplayServer, plain: OpenAI
) -> None:
    """Whether client and turn go together is known when they are put together."""
    turn = conversation.turn("hello")
    with pytest.raises(TypeError, match="AsyncOpenAI cannot be recorded in Turn"):
        turn.client(AsyncOpenAI(base_url=server.url, api_key="test"))
    with pytest.raises(TypeError, match="object is not a client"):
        turn.client(object())


@pytest.mark.parametrize("entered", [True, False])
def test_bound_client_outside_of_its_turn(
    shared_store: EventStore,
    conversation: Conversation,
    server: ReplayServer,
    plain: OpenAI,
    entered: bool,
) -> None:
    """A call after the turn's end, or before it, is passed on and warned about, never misplaced."""
    server.will(answer())
    turn = conversation.turn("hello")
    if entered:
        with turn:
            pass
    with (
        conversation.turn("another"),
        pytest.warns(UnrecordedCall, match="its turn has ended, or has not begun"),
    ):
        ask(turn.client(plain))

    assert 1 == len(server.asked)
    assert [] == payloads(shared_store, conversation, e.LlmRequest)


def test_stream_that_outlives_its_turn(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """What is read of a stream after the turn's end reaches the caller, and the loss is said."""
    server.will(Streamed(CHAT))
    with conversation.turn("hello"):
        stream = ask(client, stream=True)
        read = [next(stream) for _ in range(6)]
    with pytest.warns(UnrecordedCall, match="has ended while the answer was streaming") as told:
        read += stream

    assert len(chunks_of(CHAT)) == len(read)
    assert 1 == len([each for each in told if each.category is UnrecordedCall])
    assert "turn_end" == list(shared_store.read(conversation.id))[-1].type
    [error] = payloads(shared_store, conversation, e.LlmError)
    assert ("cancelled", fed(chunks_of(CHAT)[:6]).partial().text) == (
        error.kind,
        error.partial_text,
    )


def test_response_that_outlives_its_turn(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """The same of a response that the caller reads by itself."""
    server.will(Streamed(CHAT))
    create: Any = client.chat.completions.with_raw_response.create
    with conversation.turn("hello"):
        response = create(model="m", messages=MESSAGES, stream=True)
    with pytest.warns(UnrecordedCall, match="has ended while the answer was streaming"):
        assert len(chunks_of(CHAT)) == len(list(response.parse()))

    assert "turn_end" == list(shared_store.read(conversation.id))[-1].type


def test_warned_once_for_each_place(
    server: ReplayServer, client: OpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    """The place of the call is named in warning and log, once, however often it is called."""
    server.will(*[answer()] * 4)
    create = client.chat.completions.create
    with (
        warnings.catch_warnings(record=True) as told,
        caplog.at_level(logging.WARNING, "agent_eventstore"),
    ):
        warnings.simplefilter("always")
        for _ in range(3):
            create(model="m", messages=MESSAGES)
        create(model="m", messages=MESSAGES)

    assert [__file__] * 2 == [each.filename for each in told]
    assert 2 == len({each.lineno for each in told})
    assert 2 == len(caplog.records)
    assert all(f"{__file__}:{line.lineno}" in caplog.text for line in told)


def test_async_calls_are_warned_about_where_they_are_made(server: ReplayServer) -> None:
    """The place of an awaited call is the product's, too."""
    server.will(answer())

    async def main() -> None:
        async with record(AsyncOpenAI(base_url=server.url, api_key="test")) as client:
            await client.chat.completions.create(model="m", messages=MESSAGES)

    with pytest.warns(UnrecordedCall, match=NO_TURN) as told:
        asyncio.run(main())
    assert __file__ == told[0].filename


def test_refused(conversation: Conversation, server: ReplayServer, plain: OpenAI) -> None:
    """A product that must not lose a call has it refused, before anything is sent."""
    client = record(plain, unrecorded="raise")
    with pytest.raises(CallNotRecorded, match=NO_TURN) as refused:
        ask(client.with_options(timeout=9))
    assert isinstance(refused.value, EventStoreError)
    with conversation.turn("hello") as turn:
        bound = turn.client(client)
    with pytest.raises(CallNotRecorded, match="its turn has ended"):
        ask(bound)

    assert [] == server.asked


def test_ignored(server: ReplayServer, plain: OpenAI) -> None:
    """A client that is used within turns and outside of them may be told to say nothing."""
    server.will(answer())
    ask(record(plain, unrecorded="ignore"))

    assert 1 == len(server.asked)


def test_unknown_policy(plain: OpenAI) -> None:
    """A policy that does not exist is refused at once."""
    with pytest.raises(ValueError, match="unrecorded='never': use one of 'warn', 'raise', 'ig"):
        record(plain, unrecorded="never")  # type: ignore[arg-type]


def test_method_that_the_recorder_does_not_see(plain: OpenAI) -> None:
    """A socket to the model is not recorded, and says so."""
    with pytest.warns(UnrecordedCall, match=r"responses.connect is not recorded: the recorder"):
        record(plain).responses.connect()


def test_other_ways_to_the_model(server: ReplayServer, plain: OpenAI) -> None:
    """Completions of before chats, and requests that the product makes by itself, say so, too."""
    client = record(plain)
    server.will(answer(), answer(), answer())
    with pytest.warns(UnrecordedCall, match="OpenAI.completions.create is not recorded"):
        client.completions.create(model="m", prompt="hello")
    with pytest.warns(UnrecordedCall, match="OpenAI.post is not recorded"):
        client.post("/chat/completions", body={"messages": MESSAGES}, cast_to=object)
    with pytest.warns(UnrecordedCall, match="OpenAI.responses.compact is not recorded"):
        client.responses.compact(model="m", input="hello")
    assert 3 == len(server.asked)

    with pytest.raises(CallNotRecorded):
        record(plain, unrecorded="raise").completions.create(model="m", prompt="hello")
    assert 3 == len(server.asked)


class Asking(OpenAI):
    """A product's own client."""

    def ask(self) -> Any:
        """Ask what it always asks."""
        return ask(self)

    def options(self) -> Any:
        """Ask in a way that only the class itself can."""
        return super().copy()


def test_methods_that_a_subclass_adds(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """What a product's own class asks by itself is recorded; where it cannot be, that is said."""
    server.will(answer("Hi."))
    with (
        Asking(base_url=server.url, api_key="t", max_retries=0) as own,
        conversation.turn("hello"),
    ):
        record(own).ask()
        with pytest.warns(UnrecordedCall, match="Asking.options is not recorded"):
            record(own).options()

    assert ["Hi."] == answers(shared_store, conversation)


def test_tool_runner_of_the_sdk(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """The loop that Anthropic's SDK runs by itself goes through the recorded client."""
    from anthropic import beta_tool

    @beta_tool(name="updateIssueList")
    def update() -> str:
        """Update the list."""
        return "Done."

    server.will(Streamed("anthropic-tool-no-args"), Streamed("anthropic-text"))
    with (
        Anthropic(base_url=server.url, api_key="test") as plain,
        conversation.turn("hello") as turn,
    ):
        runner = turn.client(plain).beta.messages.tool_runner(
            model="m", max_tokens=9, messages=MESSAGES, tools=[update], stream=True
        )
        said = ["".join(stream.text_stream) for stream in runner]
    messages = payloads(shared_store, conversation, e.AssistantMessage)

    assert 2 == len(said) == len(messages)
    assert said[1] == "".join(part.text for part in messages[1].parts)
