"""A first user message that the budget cannot hold is sent in its shorter form, before refusal."""

from __future__ import annotations

from uuid import UUID

import pytest

from agent_eventstore import Conversation
from eventstore import EventStore
from eventstore import events as e
from projections import Views
from projections.errors import BudgetInfeasible

ORDER = "Please never charge account AC-77-1182 in euro. "
TASK = ORDER + "It was a long day, and nothing much happened in it. " * 400 + "So it is."
READ = {"type": "function", "function": {"name": "read_output", "parameters": {}}}


def told(store: EventStore, cid: UUID, *more: str) -> None:
    """Append the task, an answer, and what the user says then."""
    store.append(cid, [e.UserMessage.text(TASK), e.AssistantMessage.of("I see.")])
    store.append(cid, [e.UserMessage.text(text) for text in more])


def test_it_is_sent_in_its_shorter_form(store: EventStore, views: Views, cid: UUID) -> None:
    """What it demands stays, and the ledger says what became of it."""
    told(store, cid, "Go on.")
    view = views.context(cid, max_tokens=1_000)
    assert ORDER.strip() in view.messages[0]["content"]
    assert "Go on." == view.messages[-1]["content"]
    entry = view.ledger[0]
    assert "shortened" == entry.level
    assert 0 < entry.tokens_after < (entry.tokens_before or 0)
    assert "mandatory: first user message" in entry.reason
    assert "the budget cannot hold it whole" in entry.reason


def test_where_it_fits_it_is_whole(store: EventStore, views: Views, cid: UUID) -> None:
    """However little room it leaves."""
    told(store, cid, "Go on.")
    assert TASK == views.context(cid, max_tokens=8_000).messages[0]["content"]


def test_nobody_shortens_what_was_never_answered(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """Whoever asks for the first time is told that it is too large."""
    store.append(cid, [e.UserMessage.text(TASK)])
    with pytest.raises(BudgetInfeasible, match="first user message"):
        views.context(cid, max_tokens=1_000)


def test_a_model_that_reads_outputs_can_read_it(store: EventStore) -> None:
    """By an alias, which stands where such a tool is declared, and nowhere else."""
    with Conversation.start(store) as conversation:
        with conversation.turn(TASK):
            pass
        store.append(conversation.id, [e.AssistantMessage.of("I see.")])
        store.append(conversation.id, [e.UserMessage.text("Go on.")])
        views = conversation.views
        view = views.context(conversation.id, max_tokens=1_400, tools=[READ], mode=None)
        [alias] = view.ledger[0].full_aliases
        assert view.messages[0]["content"].endswith(f"\nFull message: {alias}")
        assert TASK == conversation.resolve(alias)
        bare = views.context(conversation.id, max_tokens=1_400, mode=None)
        assert "Full message" not in str(bare.messages)


def test_the_request_is_given_back(store: EventStore, views: Views, cid: UUID) -> None:
    """A year later, the same bytes."""
    told(store, cid, "Go on.")
    view = views.context(cid, max_tokens=1_000)
    store.append(cid, [e.UserMessage.text("And on.")])
    assert view.digest == views.context(cid, max_tokens=1_000, at=3).digest
