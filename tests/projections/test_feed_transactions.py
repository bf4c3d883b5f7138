"""The feed and the reads across conversations beside long transactions, and after a restore."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.sql import feed
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine.follower import catch_up_behind
from tests.feed_wait import wait_for_feed


@pytest.fixture
def store(postgres_url: str) -> Iterator[EventStore]:
    """Give a store on an empty database of PostgreSQL."""
    with EventStore.open(postgres_url) as store:
        yield store


def say(store: EventStore, words: str) -> UUID:
    """Append a message to a new conversation."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text(words)])
    return cid


def words(page: feed.FeedPage) -> list[str]:
    """Return what the events of a page say."""
    return [each.data.parts[0].text for each in page.events]  # type: ignore[union-attr]


def test_the_feed_waits_for_an_open_transaction(store: EventStore) -> None:
    """Nothing that committed after it began is handed out before it ends; then nothing misses."""
    say(store, "before")
    wait_for_feed(store)
    with store.writing() as connection:
        store.append(new_id(), [e.UserMessage.text("slow")], connection=connection)
        say(store, "after")
        first = store.read_all()
        assert ["before"] == words(first)
        assert [] == words(store.read_all(after=first.cursor))
    assert ["slow", "after"] == words(wait_for_feed(store).read_all(after=first.cursor))


def test_a_read_across_conversations_sees_what_is_committed(store: EventStore) -> None:
    """A long transaction holds the feed back, but no view; what it commits is seen then."""
    views = Views(store)
    with store.writing() as connection:
        slow = new_id()
        store.append(slow, [e.LlmRequest(llm_call_id="a")], connection=connection)
        say(store, "quick")
        store.append(new_id(), [e.LlmRequest(llm_call_id="b")])
        assert 2 == len(views.conversations())
        assert [1] == [total.calls for total in views.usage()]
    assert 3 == len(views.conversations())
    assert [2] == [total.calls for total in views.usage()]


def test_the_cursor_of_a_projection_waits_too(store: EventStore) -> None:
    """What commits late in a conversation that was current is found by the next round."""
    Views(store)
    old = say(store, "old")
    catch_up_behind(store, PROJECTIONS)
    with store.writing() as connection:
        store.append(old, [e.UserMessage.text("slow")], connection=connection)
        say(store, "quick")
        assert 1 == catch_up_behind(store, PROJECTIONS)
        assert 0 == catch_up_behind(store, PROJECTIONS)
    assert 1 == catch_up_behind(store, PROJECTIONS)


@pytest.mark.parametrize("migrate", [True, False])
def test_a_restore_into_another_cluster_begins_an_epoch(store: EventStore, migrate: bool) -> None:
    """Transaction ids begin anew there; order and cursors of before hold all the same."""
    Views(store)
    say(store, "one")
    say(store, "two")
    catch_up_behind(store, PROJECTIONS)
    # As if dumped from a cluster that had come to far higher transaction ids.
    with store.writing() as connection:
        connection.execute(text("ALTER TABLE events DISABLE TRIGGER USER"))
        connection.execute(
            text("UPDATE events SET tx_id = (tx_id::text::bigint + 1000000000)::text::xid8")
        )
        connection.execute(text("ALTER TABLE events ENABLE TRIGGER USER"))
        connection.execute(text("UPDATE store_epochs SET system_identifier = 'elsewhere'"))
    with EventStore.open(store.engine.url, migrate=migrate) as restored:
        with restored.reading() as connection:
            epochs = connection.execute(text("SELECT epoch FROM store_epochs")).scalars().all()
        assert 2 == len(epochs)
        cursor = restored.read_all(limit=1).cursor
        say(restored, "three")
        assert ["one", "two", "three"] == words(wait_for_feed(restored).read_all())
        assert ["two", "three"] == words(restored.read_all(after=cursor))
        end = restored.read_all().cursor
        say(restored, "four")
        assert ["four"] == words(wait_for_feed(restored).read_all(after=end))
        assert 4 == len(Views(restored).conversations())
    with EventStore.open(store.engine.url) as again, again.reading() as connection:
        assert 2 == connection.execute(text("SELECT count(*) FROM store_epochs")).scalar_one()
