"""What a cut-over may meet on PostgreSQL: folds and reads that hold the old tables."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from eventstore import EventStore
from eventstore import events as e
from projections import Views
from projections.upkeep import compare, rebuild
from tests.projections.support import in_thread, turn, wait_until_blocked


def test_a_fold_that_holds_its_head_does_not_deadlock_with_cleaning_up(
    postgres_url: str, cid: UUID
) -> None:
    """Who has locked a head when the tables are dropped is told that the table is gone.

    Dropping tables and deleting their heads in one transaction locks them in the order opposite
    to a fold's, and one of the two ended with a deadlock.
    """
    with EventStore.open(postgres_url) as store:
        views = Views(store)
        store.append(cid, turn(0, "a"))
        views.timeline(cid)
        store.append(cid, [e.UserMessage.text("news")])
        with store.engine.connect() as connection:
            connection.execute(
                text("SELECT 1 FROM projection_heads WHERE generation = 1 FOR UPDATE")
            )
            thread, problems = in_thread(lambda: rebuild(store, ["timeline"]))
            wait_until_blocked(store, thread)
            outcome = "the table is there"
            try:
                connection.execute(text("SELECT count(*) FROM timeline_items_g1"))
            except DBAPIError as error:
                outcome = type(error.orig).__name__
            connection.rollback()
        thread.join(30)
        assert [] == problems
        assert "UndefinedTable" == outcome
        assert "news" == views.timeline(cid)[-1].text
        assert compare(store).ok


def test_a_read_that_holds_the_old_table_delays_its_end_alone(postgres_url: str, cid: UUID) -> None:
    """The cut-over does not wait for readers of the old tables; only dropping them does."""
    with EventStore.open(postgres_url) as store:
        views = Views(store)
        store.append(cid, turn(0, "a"))
        before = views.timeline(cid)
        with store.engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM timeline_items_g1"))
            thread, problems = in_thread(lambda: rebuild(store, ["timeline"]))
            wait_until_blocked(store, thread)
            assert before == views.timeline(cid)
            live = "SELECT generation FROM projections WHERE name = 'timeline' AND status = 'live'"
            with store.reading() as other:
                assert [2] == other.execute(text(live)).scalars().all()
            connection.rollback()
        thread.join(30)
        assert [] == problems
