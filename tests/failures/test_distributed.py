"""What a distributed PostgreSQL does and a single one does not; for Citus: `make test-citus`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import URL, Connection, make_url

from eventstore import EventStore
from eventstore.database import distribute, grant, relations, secure
from eventstore.erasure.erase import lock_stream
from eventstore.errors import NotWritable, OwnerMismatch
from eventstore.ids import new_id
from eventstore.sql.conversation_fork import locate
from eventstore.sql.feed import delayed_events
from projections import PROJECTIONS, Views
from projections.engine import heads
from projections.engine.generations import Generation, find_live
from tests.contract.facade import say
from tests.distributed import CITUS, CitusDatabase

pytestmark = pytest.mark.skipif(CITUS is None, reason="there is no distributed PostgreSQL")

SHARD = re.compile(r"public\.([a-z_0-9]+)_([0-9]{6,})")


@pytest.fixture(scope="module")
def database() -> Iterator[CitusDatabase]:
    """Give a distributed database with the tables of all projections."""
    assert CITUS is not None
    with closing(CitusDatabase(CITUS, installed=True)) as found:
        found.url()
        yield found


@pytest.fixture
def url(database: CitusDatabase) -> Iterator[str]:
    """URL of the database, which is empty."""
    yield database.url()
    database.reset()


@pytest.fixture(scope="module")
def moving_url() -> Iterator[str]:
    """URL of a database in which shards may be moved; it is not emptied between tests."""
    assert CITUS is not None
    with closing(CitusDatabase(CITUS, installed=True)) as found:
        yield found.url()


@pytest.mark.parametrize(
    "act",
    [
        lambda store, views, cid: store.append(cid, say("again")),
        lambda store, views, cid: [*store.read(cid)],
        lambda store, views, cid: store.get(cid),
        lambda store, views, cid: views.timeline(cid),
        lambda store, views, cid: views.context(cid, max_tokens=4_000),
        lambda store, views, cid: store.verify(cid),
    ],
    ids=["append", "read", "get", "timeline", "context", "verify"],
)
def test_what_names_a_conversation_is_sent_to_one_group_of_shards(
    url: str, act: Callable[[EventStore, Views, Any], object]
) -> None:
    """Citus says what it sends: of each table, one shard."""
    sent: list[str] = []
    with EventStore.open(url, pool_size=2) as store:
        views, cid = Views(store), new_id()
        store.append(cid, say("hello", "again"))
        views.timeline(cid)
        views.context(cid, max_tokens=4_000)
        pool: Any = store.engine.pool

        def listen(raw: psycopg.Connection[Any]) -> None:
            raw.add_notice_handler(lambda each: sent.append(str(each.message_primary)))
            raw.execute("SET citus.log_remote_commands = on")
            raw.execute("SET client_min_messages = log")
            raw.commit()

        store._at_hand.close()
        held = [store.engine.raw_connection() for _ in range(pool.size())]
        for each in held:
            listen(each.driver_connection)  # type: ignore[arg-type]
            each.close()
        act(store, views, cid)
    shards: dict[str, set[str]] = {}
    for table, shard in SHARD.findall("\n".join(sent)):
        shards.setdefault(table, set()).add(shard)
    assert "conversations" in shards or "events" in shards
    assert {table: len(found) for table, found in shards.items()} == dict.fromkeys(shards, 1)


def test_a_head_that_is_remembered_and_no_longer_there(url: str) -> None:
    """The events that would follow it are not written: there would be a gap before them."""
    with EventStore.open(url) as store, EventStore.open(url) as other:
        cid = new_id()
        store.append(cid, say("1", "2"))
        other.purge(cid, reason="requested")
        other.append(cid, say("1"))
        assert store.append(cid, say("2")).version == 2
        assert store.verify(cid).ok


def test_who_holds_events_back_is_named(url: str) -> None:
    """As the session that the product sees, not the one of the coordinator on another server."""
    named = make_url(url).update_query_dict({"application_name": "slow importer"})
    with EventStore.open(named) as slow, EventStore.open(url) as store:
        cid = new_id()
        with slow.transaction() as connection:
            slow.append(cid, say("1"), connection=connection)
            for _ in range(20):  # on each server
                store.append(new_id(), say("2"))
            with store.reading() as reading:
                found = delayed_events(reading)
        assert found.events
        assert found.holder is not None
        assert found.holder.application_name == "slow importer"
        assert "slow importer" in found.description


def _append_again(store: EventStore, connection: Connection, cid: UUID) -> None:
    """Append in the way that locks the conversation first."""
    store._appending._heads.pop(cid.int, None)
    store.append(cid, say("again"), connection=connection)


@pytest.mark.parametrize(
    "lock",
    [
        _append_again,
        lambda store, connection, cid: lock_stream(connection, cid),
        lambda store, connection, cid: locate(connection, cid, None, None, None),
        lambda store, connection, cid: heads.lock(connection, [_generation(store)], cid),
    ],
    ids=["append", "erase", "fork", "fold"],
)
def test_what_is_locked_does_not_move_until_the_end_of_the_transaction(
    moving_url: str, lock: Callable[[EventStore, Connection, UUID], object]
) -> None:
    """A lock on rows of the old place would keep nobody out of the new one.

    Two appends went on from the same version, and one of them was acknowledged and not stored.
    """
    with EventStore.open(moving_url) as store:
        cid = new_id()
        store.append(cid, say("hello"))
        Views(store).timeline(cid)
        with store.transaction() as connection:
            lock(store, connection, cid)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                _move(moving_url, cid, "SET lock_timeout = 300")
        _move(moving_url, cid)
        assert store.append(cid, say("again")).version == store.get(cid).version
        assert store.verify(cid).ok


def _generation(store: EventStore) -> Generation:
    with store.reading() as connection:
        found = find_live(connection, PROJECTIONS[0])
    assert found is not None
    return found


def _move(url: str, cid: UUID, *settings: str) -> None:
    """Move a conversation to another server."""
    with psycopg.connect(_plain(url), autocommit=True) as run:
        for each in settings:
            run.execute(each.encode())
        found = run.execute(
            "SELECT shardid, nodename, nodeport FROM pg_dist_placement "
            "JOIN pg_dist_node USING (groupid) "
            "WHERE shardid = get_shard_id_for_distribution_column('conversations', %s)",
            [cid],
        ).fetchone()
        assert found is not None
        target = run.execute(
            "SELECT nodename, nodeport FROM pg_dist_node "
            "WHERE shouldhaveshards AND (nodename, nodeport) <> (%s, %s)",
            [*found[1:]],
        ).fetchone()
        assert target is not None
        run.execute(
            "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'block_writes')",
            [*found, *target],
        )


def test_a_worker_is_refused(url: str) -> None:
    """Positions would jump there, and its locks would not be the coordinator's."""
    address = make_url(url)
    with EventStore.open(url) as store, store.reading() as connection:
        host, port = connection.exec_driver_sql(
            "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 LIMIT 1"
        ).one()
    with pytest.raises(NotWritable, match="through its coordinator"):
        EventStore.open(address.set(host=host, port=port))


def test_it_is_distributed_once(url: str) -> None:
    """And says so the second time."""
    with (
        EventStore.open(url, distributed=True) as store,
        pytest.raises(NotWritable, match="distributed already"),
    ):
        distribute(store.engine)


def test_row_level_security_holds_on_each_server_and_after_a_move() -> None:
    """A store that had it before it was distributed has it afterwards: for a login, and in shards.

    Whoever connects to a worker and asks a shard itself sees no more than through the coordinator.
    """
    assert CITUS is not None
    login = f"rows-of-one-{uuid4().hex[:8]}"
    with closing(CitusDatabase(CITUS, installed=True, is_distributed=False)) as own:
        url = own.url()
        with psycopg.connect(_plain(url), autocommit=True) as run:
            run.execute(f"CREATE ROLE \"{login}\" LOGIN PASSWORD 'secret'".encode())
        try:
            with EventStore.open(url) as store:
                with store.transaction() as connection:
                    grant(connection, login)
                    secure(connection, [name for each in relations(connection) for name in each])
                distribute(store.engine, 4)
            theirs = make_url(url).set(username=login, password="secret")
            with EventStore.open(theirs, migrate=False) as store:
                ada, bob = store.for_owner(user_id="ada"), store.for_owner(user_id="bob")
                of_ada, of_bob = new_id(), new_id()
                for _ in range(2):
                    ada.append(of_ada, say("apple"))
                    bob.append(of_bob, say("berry"))
                    assert len(Views(ada).timeline(of_ada)) == len(Views(bob).timeline(of_bob))
                    with pytest.raises(OwnerMismatch):
                        ada.append(of_bob, say("x"))
                    with store.reading() as connection:
                        for table in ("conversations", "events", "timeline_items"):
                            count = f"SELECT count(*) FROM {table}"
                            assert connection.exec_driver_sql(count).scalar_one() == 0
                    assert _seen_in_shards(url, theirs, "+bob") == {of_bob}
                    assert _seen_in_shards(url, theirs, "") == set()
                    _move_all(url)
        finally:
            own.close()
            with psycopg.connect(_plain(CITUS), autocommit=True) as run:
                run.execute(f'DROP ROLE "{login}"'.encode())


def _plain(url: str | URL) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _seen_in_shards(url: str, login: URL, user: str) -> set[UUID]:
    """Return the conversations whose events a login sees that asks each server for its shards."""
    with psycopg.connect(_plain(url)) as run:
        placed = run.execute(
            "SELECT nodename, nodeport, shardid FROM pg_dist_shard "
            "JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid) "
            "WHERE logicalrelid = 'events'::regclass"
        ).fetchall()
    found: set[UUID] = set()
    for host, port, shard in placed:
        with psycopg.connect(_plain(login.set(host=host, port=port))) as run:
            run.execute("SET eventstore.tenant_id = '-'")
            run.execute(f"SET eventstore.user_id = '{user}'".encode())
            rows = run.execute(f"SELECT conversation_id FROM events_{shard}".encode())
            found.update(row[0] for row in rows)
    return found


def _move_all(url: str) -> None:
    with psycopg.connect(_plain(url), autocommit=True) as run:
        placed = run.execute(
            "SELECT shardid, nodename, nodeport FROM pg_dist_shard "
            "JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid) "
            "WHERE logicalrelid = 'conversations'::regclass"
        ).fetchall()
        nodes = {each[1:] for each in placed}
        for shard, *place in placed:
            target = min(nodes - {tuple(place)})
            run.execute(
                "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'block_writes')",
                [shard, *place, *target],
            )


def test_a_store_with_events_is_distributed_and_nothing_is_left_behind() -> None:
    """Its cursors stand for the same events, and the coordinator keeps none of the rows."""
    assert CITUS is not None
    with closing(CitusDatabase(CITUS, installed=True, is_distributed=False)) as own:
        with EventStore.open(own.url()) as store:
            streams = [new_id() for _ in range(5)]
            for stream in streams:
                store.append(stream, say("1", "2", "3"))
            before = store.read_all(limit=4)
            timelines = [Views(store).timeline(stream) for stream in streams]
            with pytest.raises(NotWritable, match="has conversations"):
                EventStore.open(own.url(), distributed=True)
            distribute(store.engine, 4)
        with EventStore.open(own.url()) as store:
            store.append(streams[0], say("4"))
            rest = store.read_all(after=before.cursor)
            assert len(rest) == 12
            assert not {each.event_id for each in before} & {each.event_id for each in rest}
            assert [Views(store).timeline(stream) for stream in streams[1:]] == timelines[1:]
            assert store.verify().ok
            with store.reading() as connection:
                left = "SELECT pg_relation_size('events') + pg_relation_size('conversations')"
                assert connection.exec_driver_sql(left).scalar_one() == 0
