"""Pages of a timeline from its end, model calls, and an earlier request with other choices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from agent_eventstore import Conversation, EventStore
from projections import Views
from projections.models.timeline_items import TimelineItem


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store with a database of its own."""
    with EventStore.open(database_url) as opened:
        yield opened


def _recorded(store: EventStore, turns: int = 4) -> UUID:
    with Conversation.start(store, user_id="ada") as conversation:
        for number in range(turns):
            with conversation.turn(f"Question {number}? " + "More words. " * 40) as turn:
                request = turn.context(max_tokens=4_000, model="gpt-4o")
                with turn.llm_call(request) as call:
                    call.message(f"Answer {number}.", usage={"prompt_tokens": 100 + number})
    return conversation.id


def test_pages_from_the_end_are_the_timeline(store: EventStore) -> None:
    """Page after page, from the end to the beginning, every item is returned once."""
    views, stream = Views(store), _recorded(store)
    found: list[TimelineItem] = []
    before = None
    while page := views.timeline_page(stream, before=before, limit=3):
        found[:0] = page
        before = page[0].version
    assert found == views.timeline(stream)


def test_pages_of_parallel_calls(store: EventStore) -> None:
    """An answer with more calls than a page has items is returned whole, page after page."""
    with Conversation.start(store) as conversation, conversation.turn("All of them") as turn:
        with turn.llm_call(model="gpt-4o") as call:
            wanted = [{"name": "status", "arguments": "{}"} for _ in range(10)]
            call.message("I look.", tool_calls=wanted)
        for each in call.tool_calls:
            with turn.tool(each) as tool:
                tool.result("shipped")
    views, found = Views(store), list[TimelineItem]()
    before = None
    while page := views.timeline_page(conversation.id, before=before, limit=3):
        found[:0] = page
        before = page[0].version, page[0].part
    assert found == views.timeline(conversation.id)
    assert 10 == sum(each.kind == "tool" for each in found)


def test_a_page_has_only_the_kinds(store: EventStore) -> None:
    """The last messages of the user are found without reading the answers between them."""
    views, stream = Views(store), _recorded(store)
    page = views.timeline_page(stream, limit=2, kinds=("user",))
    assert [each.text.split("?")[0] for each in page if each.text] == ["Question 2", "Question 3"]


def test_a_page_of_the_past(store: EventStore) -> None:
    """With a version, the page is what it was at that version."""
    views, stream = Views(store), _recorded(store)
    version = views.timeline_page(stream, limit=1, kinds=("user",))[0].version
    past = views.timeline_page(stream, limit=100, at=version - 1)
    assert past == views.timeline(stream, at=version - 1)


def test_model_calls_are_newest_first(store: EventStore) -> None:
    """With their tokens; ``before`` continues where a page ended."""
    views, stream = Views(store), _recorded(store)
    calls = views.model_calls(conversation_id=stream)
    assert [each.prompt_tokens for each in calls] == [103, 102, 101, 100]
    rest = views.model_calls(conversation_id=stream, before=calls[1].version, limit=1)
    assert [each.prompt_tokens for each in rest] == [101]


def test_model_calls_are_filtered(store: EventStore) -> None:
    """By model, status, time and owner."""
    views, _ = Views(store), _recorded(store, 2)
    assert len(views.model_calls(model="gpt-4o", status="ok")) == 2
    assert views.model_calls(status="timeout") == []
    assert views.model_calls(since=datetime.now(UTC) + timedelta(hours=1)) == []
    assert views.model_calls(user_id="bob") == []
    with pytest.raises(ValueError, match="no time zone"):
        views.model_calls(since=datetime(2026, 1, 1))  # noqa: DTZ001


def test_an_earlier_request_with_another_budget(store: EventStore) -> None:
    """What would have been sent at that moment; what was sent stays the same."""
    views, stream = Views(store), _recorded(store, 8)
    version = views.model_calls(conversation_id=stream)[0].version
    assert version is not None
    sent = views.context_of(stream, version)
    less = views.context_of(stream, version, changes={"max_tokens": 900})
    assert less.tokens.tokens <= 900 < sent.tokens.tokens
    other = views.context_of(stream, version, changes={"strategy": "window"})
    assert other.policy["name"] == "window"
    with pytest.raises(ValueError, match="cannot change 'budget'"):
        views.context_of(stream, version, changes={"budget": 1})
