"""A read catches up what it is asked for: it is never stale, and costs what is new."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.errors import ConversationNotFound
from eventstore.sql.read import read_page
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.context import CONTEXT
from projections.engine import pages
from projections.engine.follower import catch_up_behind
from tests.feed_wait import wait_for_feed
from tests.projections.support import (
    converse,
    everything,
    expected,
    read_all_views,
    statements,
    stored,
    turn,
)


@pytest.fixture
def events_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the versions of the events that catch-ups read, in order."""
    versions: list[int] = []
    real = read_page

    def counted(*args: Any, **options: Any) -> list[e.RecordedEvent]:
        page = real(*args, **options)
        versions.extend(event.version for event in page)
        return page

    monkeypatch.setattr(pages, "read_page", counted)
    return versions


def test_a_read_after_each_append_equals_a_fresh_fold(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """After every single event, each table holds what folding all events from the first gives.

    Those of messages[] once they are saved: a read may keep its last few events in memory.
    """
    at_once = [each for each in PROJECTIONS if each is not CONTEXT]
    for payload in turn(0, "a"):
        store.append(cid, [payload])
        read_all_views(views, cid)
        assert expected(store.read(cid), at_once) == stored(store, cid, at_once)
    catch_up_behind(store, [CONTEXT])
    assert expected(store.read(cid)) == stored(store, cid)


def test_a_read_of_one_conversation_folds_its_new_events_once(
    store: EventStore, views: Views, events_read: list[int]
) -> None:
    """What has been folded is not read again, however long the conversation is."""
    cid = converse(store, 3)
    views.timeline(cid)
    assert list(range(1, 22)) == events_read
    events_read.clear()
    store.append(cid, [e.UserMessage.text("news"), e.UserMessage.text("more")])
    views.timeline(cid)
    views.timeline(cid)
    assert [22, 23] == events_read


def test_a_read_folds_nothing_of_other_projections(
    store: EventStore, views: Views, cid: UUID, events_read: list[int]
) -> None:
    """The timeline does not pay for the context: each is caught up when it is read itself."""
    store.append(cid, turn(0, "a"))
    views.timeline(cid)
    timeline_alone = stored(store, cid)
    assert timeline_alone["timeline_items"]
    assert {} == timeline_alone["context_messages"]


def test_a_read_across_conversations_folds_what_is_new(
    store: EventStore, views: Views, events_read: list[int]
) -> None:
    """The directory reads the new events of one conversation, not those of the others."""
    cids = [converse(store, 1) for _ in range(3)]
    views.conversations()
    events_read.clear()
    store.append(cids[1], [e.UserMessage.text("news")])
    assert "news" == next(
        entry.last_user_text for entry in views.conversations() if entry.conversation_id == cids[1]
    )
    assert [8] == events_read


@pytest.mark.parametrize("size", [1_000, 1_001])
def test_a_catch_up_of_many_pages_equals_a_fresh_fold(
    store: EventStore, views: Views, cid: UUID, size: int
) -> None:
    """Where a page of events ends makes no difference to the rows."""
    chunks = [
        e.AssistantChunk(llm_call_id=f"c{number // 50}", index=number, text=f"{number} ")
        for number in range(size)
    ]
    store.append(cid, chunks)
    views.timeline(cid)
    views.usage(conversation_id=cid)
    held = stored(store, cid)
    should = expected(store.read(cid))
    for name in ("timeline_items", "usage_by_call"):
        assert should[name] == held[name]


def test_a_warm_read_writes_nothing(store: EventStore, views: Views, cid: UUID) -> None:
    """Reading again what is current runs SELECTs alone, and so cannot wait for a writer."""
    store.append(cid, turn(0, "a"))
    wait_for_feed(store)
    read_all_views(views, cid)
    with statements(store) as seen:
        read_all_views(views, cid)
    assert [] == [sql for sql in seen if sql.split()[0] in ("INSERT", "UPDATE", "DELETE", "CREATE")]


def test_reading_what_does_not_exist_is_an_error(store: EventStore, views: Views) -> None:
    """An unknown id is named by every view of one conversation, and leaves no head behind."""
    unknown = new_id()
    for read in (
        views.timeline,
        views.context,
        views.run_state,
        lambda cid: views.usage(conversation_id=cid),
        lambda cid: views.tool_calls(conversation_id=cid),
    ):
        with pytest.raises(ConversationNotFound) as caught:
            read(unknown)
        assert unknown == caught.value.conversation_id
    assert [] == everything(store)["projection_heads"]


def test_catching_up_all_leaves_nothing_behind(store: EventStore, views: Views) -> None:
    """One call folds every conversation for every projection, and counts it once."""
    cids = [converse(store, 1) for _ in range(45)]
    assert 45 == catch_up_behind(store, PROJECTIONS)
    assert 0 == catch_up_behind(store, PROJECTIONS)
    for cid in cids[::15]:
        assert expected(store.read(cid)) == stored(store, cid)


def test_projections_at_different_places_catch_up_a_conversation_together(
    store: EventStore, views: Views
) -> None:
    """What is behind in several of them is folded once for all, and counted once."""
    views.timeline(converse(store, 1))
    assert 1 == catch_up_behind(wait_for_feed(store), list(PROJECTIONS)[:1])
    cids = [converse(store, 1) for _ in range(3)]
    assert 4 == catch_up_behind(wait_for_feed(store), PROJECTIONS)
    assert 0 == catch_up_behind(store, PROJECTIONS)
    for cid in cids:
        assert expected(store.read(cid)) == stored(store, cid)
