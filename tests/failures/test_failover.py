"""A standby takes over from a primary that had not sent it everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import InvalidCursor
from tests.contract.facade import say, texts
from tests.feed_wait import wait_for_feed
from tests.postgres import PostgresServer, place_of_many_files
from torture.server import PostgresServer as Standby

_PATIENCE_S = 30


@contextmanager
def _standby_of(primary: PostgresServer) -> Iterator[Standby]:
    standby = primary.standby(place_of_many_files())
    standby.start()
    try:
        primary.wait_for_standby(_PATIENCE_S)
        yield standby
    finally:
        standby.close()


class TestFailover:
    """After a failover, a feed that is read on misses no event, or says that it cannot go on."""

    def test_cursor_at_an_event_that_is_there(self, private_postgres: PostgresServer) -> None:
        """All ten events of the new primary follow, though its transaction ids repeat."""
        cid = new_id()
        with EventStore.open(private_postgres.url()) as store:
            store.append(cid, say("kept"))
            cursor = wait_for_feed(store).read_all().cursor
            with _standby_of(private_postgres) as standby:
                standby.stop_following()
                for number in range(30):
                    store.append(new_id(), say(f"lost {number}"))
                lost = wait_for_feed(store).read_all().cursor
                standby.promote()
                with EventStore.open(standby.url()) as promoted:
                    for number in range(10):
                        promoted.append(cid, say(f"new {number}"))
                    wait_for_feed(promoted)
                    found = texts(promoted.read_all(after=cursor))
                    assert [f"new {number}" for number in range(10)] == found
                    with pytest.raises(InvalidCursor):
                        promoted.read_all(after=lost)
