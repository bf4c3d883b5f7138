"""The block of what is recalled for the latest user message, in requests that are made in steps."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore import events as e
from projections import Views
from projections.context import ContextView
from projections.context.prompts import RECALLED
from projections.context.settings import ContextSettings
from tests.projections.searching import FACT, QUESTION, small_talk, talk

pytestmark = pytest.mark.exhaustive_when("postgresql")

BUDGET = 2_000


@pytest.fixture(params=["retrieval", "hybrid"])
def strategy(request: pytest.FixtureRequest) -> str:
    """Return each strategy that retrieves."""
    return str(request.param)


def asked(views: Views, cid: UUID, strategy: str, **options: Any) -> ContextView:
    """Return the request as it stands."""
    asked: dict[str, Any] = {"max_tokens": BUDGET, "strategy": strategy} | options
    return views.context(cid, **asked)


def place_of(view: ContextView) -> int:
    """Return the place of the block."""
    texts = [str(message["content"]) for message in view.messages]
    return next(place for place, text in enumerate(texts) if text.startswith(RECALLED))


def test_an_old_fact_is_recalled_word_for_word(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """In one block before the question that it answers, with what was said around it."""
    talk(store, cid, "Hello", "Hello", FACT, "Noted.", *small_talk(400), QUESTION)
    view = asked(views, cid, strategy)
    block = view.messages[place_of(view)]["content"]
    assert f"[2 assistant] Hello\n[3 user] {FACT}\n[4 assistant] Noted." in block
    assert len(view.messages) - 2 == place_of(view)
    assert view.tokens.tokens <= BUDGET


def test_the_requests_of_a_turn_have_the_same_block(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """What the model and its tools say in the turn is only added behind it."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(401), QUESTION)
    before = asked(views, cid, strategy)
    for number in range(4):
        call = e.ToolCallRequest(name="look", arguments_text="{}")
        done = store.append(cid, [e.AssistantMessage(tool_calls=(call,))])
        store.append(cid, [e.ToolResult(call_id=f"{done.version}.0", content=f"locker {number}")])
        now = asked(views, cid, strategy)
        assert before.messages == now.messages[: len(before.messages)]
        before = now


def test_what_stands_before_the_block_outlasts_the_turn(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """Between two steps, another question changes the block and nothing in front of it."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(401), "What of weather number 7?")
    before = asked(views, cid, strategy)
    talk(store, cid, QUESTION)
    now = asked(views, cid, strategy)
    assert before.step == now.step
    front = before.messages[: place_of(before)]
    assert front == now.messages[: len(front)]
    assert FACT in now.messages[place_of(now)]["content"]


def test_the_ledger_tells_of_the_block(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """With the events that are in it, and its tokens."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(401), QUESTION)
    view = asked(views, cid, strategy)
    [entry] = [entry for entry in view.ledger if entry.kind == "recalled"]
    assert 3 in entry.source_versions
    assert 3 in view.versions
    assert entry.tokens_after > 0
    assert "groups for the latest user message" in entry.reason


def test_there_is_none_while_everything_fits(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """Nothing is said twice."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(11), QUESTION)
    view = asked(views, cid, strategy)
    assert RECALLED not in str(view.messages)
    assert view.complete


def test_there_is_none_once_the_turn_needs_its_room(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """A large result of a tool is sent whole where it fits."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(401), QUESTION)
    call = e.ToolCallRequest(name="look", arguments_text="{}")
    done = store.append(cid, [e.AssistantMessage(tool_calls=(call,))])
    told = " ".join(map(str, range(600)))
    store.append(cid, [e.ToolResult(call_id=f"{done.version}.0", content=told)])
    view = asked(views, cid, strategy, max_tokens=2_600)
    assert told in str(view.messages)
    assert RECALLED not in str(view.messages)


def test_tool_results_that_are_not_sent_are_not_recalled(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """A setting that keeps them out keeps them out of the block."""
    call = e.ToolCallRequest(name="find_locker", arguments_text="{}")
    store.append(cid, [e.UserMessage.text("Hello"), e.AssistantMessage(tool_calls=(call,))])
    store.append(cid, [e.ToolResult(call_id="2.0", content=FACT)])
    talk(store, cid, *small_talk(400), QUESTION)
    view = asked(views, cid, strategy, settings=ContextSettings(include_tool_results=False))
    assert "find_locker" in view.messages[place_of(view)]["content"]
    assert FACT not in str(view.messages)


def test_an_earlier_request_is_given_back(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """The past is searched in memory, and gives the same bytes."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(401), QUESTION)
    now = asked(views, cid, strategy)
    talk(store, cid, "And now?")
    assert now.digest == asked(views, cid, strategy, at=405).digest


@pytest.mark.parametrize("format", ["anthropic_messages", "openai_responses", "neutral"])
def test_every_format_has_the_block(
    store: EventStore, views: Views, cid: UUID, format: str
) -> None:
    """Within the same budget."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(401), QUESTION)
    view = asked(views, cid, "retrieval", format=format)
    assert FACT in str(view.messages)
    assert view.tokens.tokens <= BUDGET
