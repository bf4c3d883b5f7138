"""Summaries that a model writes: stored as events, reused; done without when the model fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.requests import Request
from eventstore import AsyncEventStore, EventStore
from eventstore.events import Summary
from projections.context import ContextSettings
from projections.context.compression import LlmSummary, Message, Strategy

SAID = "I would like to know where my order W{0} is, and when it arrives. " * 4


class Writer:
    """A product's callable, which notes what it was asked."""

    def __init__(self, fails: bool = False) -> None:
        self.asked: list[Sequence[Message]] = []
        self._fails = fails

    def __call__(self, messages: Sequence[Message]) -> str:
        """Answer, or fail."""
        self.asked.append(messages)
        if self._fails:
            raise TimeoutError("no answer")
        return f"SUMMARY {len(self.asked)}"


def converse(
    store: EventStore, strategy: Strategy | None, settings: ContextSettings | None = None
) -> tuple[Conversation, list[Request]]:
    """Hold a conversation of twenty turns in a small budget, and return its requests."""
    conversation = Conversation.start(store)
    requests = []
    for number in range(20):
        with conversation.turn(SAID.format(number)) as turn:
            requests.append(turn.context(max_tokens=600, strategy=strategy, settings=settings))
    return conversation, requests


def summaries(store: EventStore, conversation: Conversation) -> list[Summary]:
    """Return the summaries that the log has."""
    events = store.read(conversation.id)
    return [event.data for event in events if isinstance(event.data, Summary)]


@pytest.fixture
def store(shared_store: EventStore) -> EventStore:
    """Give a store that others use too; each test has a conversation of its own."""
    return shared_store


def test_what_is_dropped_is_summarised_once_and_the_summary_is_sent(store: EventStore) -> None:
    """Later requests send the newest; the model is asked for each of them once."""
    writer = Writer()
    conversation, requests = converse(store, LlmSummary(writer, least_tokens=200))
    stored = summaries(store, conversation)
    assert [f"SUMMARY {n}" for n in range(1, len(stored) + 1)] == [each.text for each in stored]
    assert len(writer.asked) == len(stored) > 1
    contents = [str(message["content"]) for message in requests[-1].messages]
    assert [f"CONVERSATION_SUMMARY\n{stored[-1].text}"] == [
        content for content in contents if content.startswith("CONVERSATION_SUMMARY")
    ]
    assert requests[-1].notes == ()


def test_a_strategy_of_the_settings_writes_summaries_too(store: EventStore) -> None:
    """By name and options, as by the strategy itself."""
    writer = Writer()
    options: dict[str, Any] = {"summarize": writer, "least_tokens": 200}
    settings = ContextSettings(strategy="llm_summary", strategy_options=options)
    conversation, _ = converse(store, None, settings)
    assert len(writer.asked) == len(summaries(store, conversation)) > 1


def test_a_model_that_fails_is_done_without_and_the_request_says_so(store: EventStore) -> None:
    """The base strategy's request goes out, with a note."""
    conversation, requests = converse(store, LlmSummary(Writer(fails=True), least_tokens=200))
    assert [] == summaries(store, conversation)
    why = "no summary was written (TimeoutError: no answer)"
    assert (f"{why}: the strategy hybrid stands in for it",) == requests[-1].notes


def test_in_an_event_loop(sqlite_url: str) -> None:
    """The asynchronous recorder does the same, with the callable in a thread."""
    writer = Writer()

    async def hold() -> tuple[str, ...]:
        async with await AsyncEventStore.open(sqlite_url) as store:
            conversation = await AsyncConversation.start(store)
            for number in range(12):
                async with conversation.turn(SAID.format(number)) as turn:
                    request = await turn.context(
                        max_tokens=600, strategy=LlmSummary(writer, least_tokens=200)
                    )
            return tuple(str(message["content"]) for message in request.messages)

    contents = asyncio.run(hold())
    assert f"CONVERSATION_SUMMARY\nSUMMARY {len(writer.asked)}" in contents
