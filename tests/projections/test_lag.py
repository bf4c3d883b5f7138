"""Lag: counted from what is committed, whatever the feed hands out; and who holds the feed back."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from sqlalchemy import make_url, text

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.sql.feed import DelayedEvents, delayed_events
from projections import PROJECTIONS, Views, worker
from projections.engine.follower import catch_up_behind
from projections.engine.lag import Lag
from projections.upkeep import rebuild, status
from tests.feed_wait import wait_for_feed
from tests.postgres import PostgresServer, place_of_many_files


def say(store: EventStore, *words: str, cid: UUID | None = None) -> UUID:
    """Append messages to a conversation, or to a new one."""
    cid = cid or new_id()
    store.append(cid, [e.UserMessage.text(word) for word in words])
    return cid


def lagging(store: EventStore) -> list[int]:
    """Return how many events each projection lacks."""
    return [each.lag.events for each in status(store)]


def held(store: EventStore) -> DelayedEvents:
    """Return what the store's feed holds back."""
    with store.reading() as connection:
        return delayed_events(connection)


def test_what_nobody_has_read_lags_whole(store: EventStore) -> None:
    """Without a live generation nothing has been folded."""
    say(store, "one", "two")
    assert [2] * len(PROJECTIONS) == lagging(store)


def test_a_round_of_the_worker_takes_it_away(store: EventStore) -> None:
    """What has been folded does not lag."""
    say(store, "one")
    worker.run(store, once=True)
    assert [Lag(0, 0.0)] * len(PROJECTIONS) == [each.lag for each in status(store)]


def test_only_what_is_missing_counts(store: EventStore) -> None:
    """Of a conversation that has been folded in part the rest lags, in those that lack it."""
    cid = say(store, "one")
    worker.run(store, once=True)
    say(store, "two", "three", cid=cid)
    catch_up_behind(store, PROJECTIONS.named(["timeline"]))
    lacking = {each.name: each.lag.events for each in status(store)}
    assert {**{each.name: 2 for each in PROJECTIONS}, "timeline": 0} == lacking


def test_what_a_read_has_folded_does_not_lag(store: EventStore) -> None:
    """A read that catches up takes the lag away without moving a cursor."""
    views, cid = Views(store), say(store, "one")
    views.timeline(cid)
    assert 0 == {each.name: each.lag.events for each in status(store)}["timeline"]


def test_a_rebuilt_generation_lags_by_what_came_later(store: EventStore) -> None:
    """The new generation holds what there was; later events are missing until they are folded."""
    say(store, "one")
    rebuild(store)
    assert [0] * len(PROJECTIONS) == lagging(wait_for_feed(store))
    say(store, "two")
    assert [1] * len(PROJECTIONS) == lagging(store)


def test_the_oldest_tells_how_long(store: EventStore) -> None:
    """The age is that of the oldest event that is missing, and only grows."""
    say(store, "one")
    before = status(store)[0].lag.seconds
    say(store, "two")
    assert before <= status(store)[0].lag.seconds


def test_nothing_is_held_back_on_sqlite(sqlite_url: str) -> None:
    """One writer at a time: what is committed is handed out."""
    with EventStore.open(sqlite_url) as store:
        say(store, "one")
        assert DelayedEvents(0, 0.0, None) == held(store)


class TestHeldBack:
    """PostgreSQL: one open transaction holds back what commits after it began."""

    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[EventStore]:
        """Give a store that nobody else's transaction holds back."""
        with EventStore.open(postgres_url) as store:
            yield wait_for_feed(store)

    def test_lag_is_counted_all_the_same(self, store: EventStore) -> None:
        """The feed hands nothing out, and the lag says what is missing."""
        worker.run(store, once=True)
        with store.writing() as connection:
            connection.execute(text("SELECT pg_current_xact_id()"))
            after = store.read_all().cursor
            say(store, "one", "two")
            assert () == store.read_all(after=after).events
            assert [2] * len(PROJECTIONS) == lagging(store)
            assert 2 == held(store).events

    def test_the_session_is_named(self, store: EventStore, postgres_url: str) -> None:
        """Its process, name, state and age are told, and nothing of its statements."""
        url = make_url(postgres_url).update_query_dict({"application_name": "the-culprit"})
        with EventStore.open(url, migrate=False) as other, other.writing() as connection:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            connection.execute(text("SELECT pg_current_xact_id(), 'a secret'"))
            say(store, "one")
            found = held(store)
        assert found.holder is not None
        who = (found.holder.pid, found.holder.application_name, found.holder.state)
        assert (pid, "the-culprit", "idle in transaction") == who
        assert "1 event held back" in found.description
        assert f"by process {pid} (the-culprit, idle in transaction" in found.description
        assert "secret" not in repr(found)

    def test_nobody_is_named_without_need(self, store: EventStore) -> None:
        """Once all transactions have ended nothing is held back."""
        say(store, "one")
        assert 0 == held(wait_for_feed(store)).events

    def test_our_own_sessions_have_a_name(self, store: EventStore, postgres_url: str) -> None:
        """A session is told by the project's name, unless the URL gives it another."""
        query = text("SELECT current_setting('application_name')")
        with store.reading() as connection:
            assert "agent-eventstore" == connection.execute(query).scalar_one()
        url = make_url(postgres_url).update_query_dict({"application_name": "mine"})
        with EventStore.open(url, migrate=False) as other, other.reading() as connection:
            assert "mine" == connection.execute(query).scalar_one()


def test_a_prepared_transaction_is_named() -> None:
    """One that no session holds any more is told by its own name."""
    settings = {"max_prepared_transactions": "1"}
    with (
        PostgresServer(settings, directory=place_of_many_files()) as server,
        EventStore.open(server.url()) as store,
    ):
        with store.engine.connect() as connection:
            prepared = connection.begin_twophase("left behind")
            connection.execute(text("SELECT pg_current_xact_id()"))
            prepared.prepare()
            say(store, "one")
            found = held(store)
    assert found.holder is not None
    assert (None, "left behind") == (found.holder.pid, found.holder.prepared)
    assert "by the prepared transaction 'left behind' (user postgres" in found.description
