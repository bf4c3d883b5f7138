"""Products of LangChain, which asks for raw responses, and whose tools nobody tells us of."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI

from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore import events as e
from tests.exhaustive import partly
from tests.integration.test_clients import SAID, WHOLE
from tests.products.harness import Scene, assert_truth, interrupted_everywhere, outcome
from tests.products.provider import Provider, said_in

TOOL = "openai-chat-groq-tool-call"
TEXT = {"openai": "openai-chat-azure-router", "anthropic": "anthropic-text"}


@tool
def weather() -> str:
    """Tell the weather."""
    return "18 degrees"


def openai_model(turn: Any, provider: Provider, asynchronous: bool = False, **options: Any) -> Any:
    """Return LangChain's model of OpenAI's with the turn's client."""
    client = turn.client(provider.client(AsyncOpenAI if asynchronous else OpenAI))
    names = ("root_async_client", "async_client") if asynchronous else ("root_client", "client")
    given = dict(zip(names, (client, client.chat.completions), strict=True))
    return ChatOpenAI(model="m", api_key="test", max_retries=0, **given, **options)


def anthropic_model(turn: Any, provider: Provider, asynchronous: bool = False) -> Any:
    """Return LangChain's model of Anthropic's with the turn's client."""
    model = ChatAnthropic(model="claude-test", api_key="test", max_retries=0)
    name = "_async_client" if asynchronous else "_client"
    kind = AsyncAnthropic if asynchronous else Anthropic
    model.__dict__[name] = turn.client(provider.client(kind))
    return model


MODEL = {"openai": openai_model, "anthropic": anthropic_model}
WHOLE_ANSWER = {
    "openai": WHOLE["openai_chat"],
    "responses": WHOLE["openai_responses"],
    "anthropic": WHOLE["anthropic_messages"],
}


def answers(store: EventStore, conversation: Conversation) -> list[str]:
    """Return what was answered in a conversation."""
    return [
        "".join(part.text for part in event.data.parts if isinstance(part, e.TextPart))
        for event in store.read(conversation.id)
        if isinstance(event.data, e.AssistantMessage)
    ]


@pytest.mark.parametrize("maker", ["openai", "responses", "anthropic"])
def test_invoke(store: EventStore, maker: str) -> None:
    """An answer that is not streamed is recorded, though LangChain takes it raw."""
    conversation = Conversation.start(store)
    options = {"use_responses_api": True} if maker == "responses" else {}
    with conversation.turn("hello") as turn:
        make = MODEL.get(maker, openai_model)
        model = make(turn, Provider(WHOLE_ANSWER[maker]), **options)
        said = model.invoke([HumanMessage("hello")]).text

    assert [SAID] == [said] == answers(store, conversation)
    assert_truth(store, conversation.id, SAID)


@pytest.mark.parametrize("headers", [True, False])
def test_stream(store: EventStore, headers: bool) -> None:
    """A stream is recorded, whether or not LangChain asks for the headers and so takes it raw."""
    conversation = Conversation.start(store)
    with conversation.turn("hello") as turn:
        provider = Provider(TEXT["openai"])
        model = openai_model(turn, provider, include_response_headers=headers)
        said = "".join(chunk.text for chunk in model.stream("hello"))

    assert [said_in(TEXT["openai"])] == [said] == answers(store, conversation)


def test_stream_of_anthropic(store: EventStore) -> None:
    """The same of Anthropic's, which is always taken raw."""
    conversation = Conversation.start(store)
    with conversation.turn("hello") as turn:
        model = anthropic_model(turn, Provider(TEXT["anthropic"]))
        said = "".join(chunk.text for chunk in model.stream("hello"))

    assert [said_in(TEXT["anthropic"])] == [said] == answers(store, conversation)


def test_stream_that_is_left(store: EventStore) -> None:
    """A stream that LangChain's user leaves is cancelled at the turn's end, with what was shown."""
    conversation = Conversation.start(store)
    with conversation.turn("hello") as turn:
        stream = anthropic_model(turn, Provider(TEXT["anthropic"])).stream("hello")
        shown = ""
        while not shown:
            shown += next(stream).text
    [error] = [r.data for r in store.read(conversation.id) if isinstance(r.data, e.LlmError)]

    assert "cancelled" == error.kind
    assert_truth(store, conversation.id, shown)


async def loop(scene: Scene) -> None:
    """Stream, run the tools that the model wants, and stream again, as LangChain's agents do."""
    async with scene.conversation.turn("hello") as turn:
        model = openai_model(turn, scene.provider, asynchronous=True).bind_tools([weather])
        messages: list[Any] = [HumanMessage("hello")]
        while True:
            whole: Any = None
            async for chunk in model.astream(messages):
                scene.shown.append(chunk.text)
                whole = chunk if whole is None else whole + chunk
            if not whole.tool_calls:
                return
            messages.append(whole)
            for call in whole.tool_calls:
                result = await weather.ainvoke(call["args"])
                messages.append(ToolMessage(result, tool_call_id=call["id"]))


@pytest.mark.parametrize("every", partly([3, 1]))
def test_cancelled_at_every_await(store: EventStore, every: int) -> None:
    """Wherever the task is cancelled, the log has what was shown and done, and how it ended."""

    def check(scene: Scene, finished: bool) -> None:
        if finished:
            events = [event.data for event in store.read(scene.conversation.id)]
            [result] = [data for data in events if isinstance(data, e.ToolResult)]
            assert ("ok", "success") == (outcome(scene), result.status)
            assert said_in(TEXT["openai"]) == "".join(scene.shown)

    assert interrupted_everywhere(store, [TOOL, TEXT["openai"]], loop, check, every) > 20


async def ask_once(scene: Scene) -> None:
    """Ask, and show the answer once it is there."""
    async with scene.conversation.turn("hello") as turn:
        model = anthropic_model(turn, scene.provider, asynchronous=True)
        scene.shown.append((await model.ainvoke("hello")).text)


@pytest.mark.parametrize("every", partly([3, 1]))
def test_invoke_cancelled_at_every_await(store: EventStore, every: int) -> None:
    """The same of an answer that is not streamed."""

    def check(scene: Scene, finished: bool) -> None:
        if finished:
            assert "ok" == outcome(scene)
            assert [SAID] == scene.shown

    assert interrupted_everywhere(store, [WHOLE_ANSWER["anthropic"]], ask_once, check, every) > 3
