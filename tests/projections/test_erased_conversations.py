"""An erased conversation leaves lists and searches, and its bill stays unless that goes too."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore import events as e
from eventstore.errors import ConversationNotFound, OwnerMismatch
from projections import Views, worker
from projections.upkeep import compare, rebuild
from tests.feed_wait import wait_for_feed
from tests.projections.support import converse, read_all_views

pytestmark = pytest.mark.exhaustive_when("postgresql")


def bill(views: Views) -> list[Any]:
    """Return usage by every grouping that a bill needs."""
    groups = ("call", "day", "model", "conversation", "turn", "user")
    return [views.usage(by=group) for group in groups]  # type: ignore[arg-type]


def listed(views: Views, **wanted: Any) -> list[UUID]:
    """Return the ids of the conversations in a list."""
    return [entry.conversation_id for entry in views.conversations(**wanted)]


def test_the_bill_stays(store: EventStore, views: Views) -> None:
    """By call, day, model and user, also after a rebuild; a diff finds nothing."""
    cid = converse(store, 2, user="ada")
    before = bill(views)
    receipt = store.erase(cid, reason="asked for")
    assert 4 == receipt.billed_calls
    assert before == bill(views)
    rebuild(store)
    assert before == bill(views)
    assert compare(store).ok
    assert store.verify(cid).ok


def test_the_bill_goes_where_that_is_asked_for(store: EventStore, views: Views) -> None:
    """Also what an earlier erasure has kept of it: the next one takes that event's payload too."""
    cid = converse(store, 1)
    store.erase(cid, reason="asked for")
    receipt = store.erase(cid, reason="the bill too", keep_usage=False)
    assert 0 == receipt.billed_calls
    assert (8,) == receipt.versions, "the event that kept it"
    assert [[], [], [], [], [], []] == bill(views)
    assert store.verify(cid).ok
    assert compare(store).ok


def test_the_bill_of_single_versions_stays(store: EventStore, views: Views) -> None:
    """Erasing a question takes the request along, and the call keeps its model and times."""
    cid = converse(store, 1)
    before = bill(views)
    store.erase(cid, reason="asked for", versions=[1])
    store.erase(cid, reason="asked for", versions=[3])
    assert before == bill(views)
    store.erase(cid, reason="asked for")
    assert before == bill(views)


def test_a_fork_keeps_its_own_bill(store: EventStore, views: Views) -> None:
    """Calls that it shares are billed to the parent, before an erasure and after it."""
    cid = converse(store, 1)
    invocation = e.Invocation(provider="openai", model="gpt-4o")
    usage = e.TokenUsage(prompt_tokens=7, completion_tokens=3)
    own = [
        e.LlmRequest(llm_call_id="own", invocation=invocation),
        e.AssistantMessage.of("other", llm_call_id="own", usage=usage),
    ]
    fork = store.fork(cid, events=own).conversation_id
    before = bill(views)
    for each in (fork, cid):
        store.erase(each, reason="asked for")
        assert before == bill(views)
    assert store.verify().ok
    assert compare(store).ok


def test_it_leaves_lists(store: EventStore, views: Views) -> None:
    """It is listed by its status alone, without title and previews, and found by no word."""
    cid, other = converse(store, 1, word="walrus"), converse(store, 1)
    assert views.search("walrus0")
    store.erase(cid, reason="asked for")
    assert [other] == listed(views)
    assert [other] == listed(views, status="open")
    [entry] = views.conversations(status="erased")
    assert (cid, None, None, None) == (
        entry.conversation_id,
        entry.title,
        entry.last_user_text,
        entry.last_message_text,
    )
    assert [] == views.search("walrus0")
    assert compare(store).ok


def test_it_is_back_with_the_next_message(store: EventStore, views: Views) -> None:
    """Whoever goes on with it sees it again; what a writer still had to say does not show it."""
    cid = converse(store, 1)
    store.erase(cid, reason="asked for")
    store.append(cid, [e.TurnEnd(status="aborted")])
    assert [] == listed(views)
    store.append(cid, [e.UserMessage.text("again")])
    assert [cid] == listed(views)
    assert compare(store).ok


def test_erasing_single_versions_leaves_it_in_lists(store: EventStore, views: Views) -> None:
    """Only a conversation that was erased as a whole is gone from them."""
    cid = converse(store, 1)
    store.erase(cid, reason="asked for", versions=[1])
    assert [cid] == listed(views)


def test_another_owner_is_refused(store: EventStore) -> None:
    """By name, and through a store that is bound."""
    cid = converse(store, 1, user="ada")
    with pytest.raises(OwnerMismatch):
        store.erase(cid, reason="asked for", user_id="bob")
    with pytest.raises(OwnerMismatch):
        store.for_owner(user_id="bob").erase(cid, reason="asked for")
    assert store.for_owner(user_id="ada").erase(cid, reason="asked for").versions


def test_a_purged_conversation_leaves_every_view(store: EventStore, views: Views) -> None:
    """Lists, usage and open views of a living process know it no more; it can begin anew."""
    cid, other = converse(store, 1, word="walrus"), converse(store, 1)
    read_all_views(views, cid)
    store.purge(cid, reason="asked for")
    assert [other] == listed(views)
    assert [str(other)] == [each.key for each in views.usage(by="conversation")]
    with pytest.raises(ConversationNotFound):
        views.timeline(cid)
    assert compare(store).ok
    store.append(cid, [e.UserMessage.text("anew")])
    assert ["anew"] == [item.text for item in views.timeline(cid)]
    assert [{"role": "user", "content": "anew"}] == list(views.context(cid).messages)
    assert {cid, other} == {*listed(views)}
    worker.run(wait_for_feed(store), once=True)
    rebuild(store)
    assert compare(store).ok


def test_a_fork_and_its_source_are_purged(store: EventStore, views: Views) -> None:
    """The forks' own rows go with theirs."""
    cid = converse(store, 1)
    fork = store.fork(cid, events=[e.UserMessage.text("other")]).conversation_id
    read_all_views(views, fork)
    store.purge(cid, reason="asked for", forks=True)
    assert [] == listed(views)
    assert [] == views.search("other")
    assert compare(store).ok
