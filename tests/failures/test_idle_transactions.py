"""A transaction of the caller's that PostgreSQL has ended because it was idle for too long."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from eventstore import EventStore, new_id
from eventstore.errors import EventStoreError
from tests.contract.facade import say, texts
from tests.contract.plain import PlainClient

Act = Callable[[EventStore, Connection, UUID], object]


def end_by_idling(url: str, connection: Connection) -> None:
    """Return when PostgreSQL has ended the transaction of a connection."""
    limit = "set_config('idle_in_transaction_session_timeout', '1ms', true)"
    pid = connection.execute(text(f"SELECT pg_backend_pid(), {limit}")).one()[0]
    query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ?"
    with PlainClient(url) as client:
        while client.execute(query, pid) != [(0,)]:
            pass


@pytest.mark.parametrize(
    "act",
    [
        lambda store, connection, cid: store.append(cid, say("2"), connection=connection),
        lambda store, connection, _: store.append(new_id(), say("2"), connection=connection),
        lambda *_: None,
    ],
    ids=["append", "append to a new conversation", "commit"],
)
def test_what_the_library_runs_in_an_ended_transaction_raises_its_own_error(
    postgres_url: str, act: Act
) -> None:
    """The append or the commit fails with it; nothing is written, and the store goes on."""

    def idle(store: EventStore, cid: UUID) -> None:
        with store.transaction() as connection:
            end_by_idling(postgres_url, connection)
            act(store, connection, cid)

    with EventStore.open(postgres_url) as store:
        store.append(cid := new_id(), say("1"))
        with pytest.raises(EventStoreError) as caught:
            idle(store, cid)
        assert caught.value.__cause__ is not None
        assert ["1"] == texts(store.read(cid))
        assert 2 == store.append(cid, say("2"), expected_version=1).version


def test_an_append_in_a_connection_of_the_products_raises_the_librarys_error(
    postgres_url: str,
) -> None:
    """At the append itself, so that the product can tell before it leaves its own block."""
    with EventStore.open(postgres_url) as store, store.engine.connect() as connection:
        end_by_idling(postgres_url, connection)
        with pytest.raises(EventStoreError):
            store.append(new_id(), say("1"), connection=connection)
        connection.invalidate()
