"""The feed of a store on several servers, on real servers: each has a part of one table of events.

What a distributed PostgreSQL does by itself is done here by hand: events are inserted on the server
that has their conversation, its trigger sets epoch and transaction, and a move copies rows as they
are. So every order of commits, moves, splits and failures can be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any
from uuid import UUID

import psycopg
import pytest

from eventstore.errors import InvalidCursor, StoreUnavailable
from eventstore.ids import new_id
from eventstore.sql import vector_feed
from eventstore.sql.distribute import _FUNCTIONS, _PLACE
from eventstore.sql.vector_feed import Vector
from tests.postgres import PostgresServer, fill, place_of_many_files

SCHEMA = """
    CREATE TABLE events (position bigint, conversation_id uuid, version bigint, event_id uuid,
        type text, schema_version int, recorded_at timestamptz, data json, meta json, salt bytea,
        data_digest bytea, chain bytea, epoch int, tx_id xid8,
        PRIMARY KEY (conversation_id, version));
    CREATE INDEX ON events (epoch, tx_id, position);
    CREATE TABLE erased_versions (conversation_id uuid, first_version bigint, last_version bigint);
    CREATE TABLE purges (first_position bigint, last_position bigint)
"""


class Servers:
    """Servers as `Nodes`, and what a distributed database does with them."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._position = 0
        self._runs = [psycopg.connect(url, autocommit=True) for url in urls]
        self.silent: set[int] = set()
        self.there = list(range(len(urls)))
        self.when_asked: list[Any] = []
        self.keeps_asking = False

    def close(self) -> None:
        """Close the connections."""
        for run in self._runs:
            run.close()

    def members(self) -> Any:
        """Return the servers that are there."""
        return tuple(self.there)

    def holders(self) -> list[tuple[Any, ...]]:
        """Return nothing: no test here asks who holds events back."""
        return []

    def borders(self) -> list[tuple[int, int] | None]:
        """Ask each server, then let happen what a test wants to happen then."""
        ask = "SELECT eventstore_epoch(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        found = [
            None if each in self.silent else self._runs[each].execute(ask).fetchone()
            for each in self.there
        ]
        for happen in self.when_asked:
            happen()
        if not self.keeps_asking:
            self.when_asked.clear()
        return found

    def select(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of all servers that are there."""
        rows: list[Any] = []
        for each in self.there:
            rows += self._runs[each].execute(statement, values).fetchall()
        return rows

    def session(self, server: int) -> psycopg.Connection[Any]:
        """Return a session on a server, whose transactions the test ends."""
        return psycopg.connect(self._urls[server])

    def append(self, run: Any, conversation: UUID, *versions: int) -> None:
        """Insert events in a session's transaction, or in one of its own on a server."""
        run = self._runs[run] if isinstance(run, int) else run
        for version in versions:
            self._position += 1
            chain = self._position.to_bytes(32, "big")[::-1]
            run.execute(
                "INSERT INTO events VALUES (%s, %s, %s, %s, 'user_message', 1, clock_timestamp(), "
                "'{}', '{}', 'salt', '', %s, 0, '0')",
                [self._position, conversation, version, new_id(), chain],
            )

    def move(self, conversation: UUID, source: int, target: int) -> None:
        """Copy a conversation's rows as they are, as a logical move does, and delete the others."""
        rows = self._runs[source].execute(
            "SELECT * FROM events WHERE conversation_id = %s", [conversation]
        )
        with self._runs[target].transaction():
            self._runs[target].execute("SET LOCAL session_replication_role = replica")
            for row in rows.fetchall():
                values = [str(value) if n in (7, 8) else value for n, value in enumerate(row)]
                marks = ", ".join(["%s"] * 13 + ["%s::text::xid8"])
                values[7:9] = "{}", "{}"
                self._runs[target].execute(f"INSERT INTO events VALUES ({marks})", values)
        self._runs[source].execute("DELETE FROM events WHERE conversation_id = %s", [conversation])


@pytest.fixture(scope="module")
def server_urls(template_server: PostgresServer) -> Iterator[list[str]]:
    """Give three servers, each a cluster with transaction ids of its own."""
    servers = [PostgresServer(directory=place_of_many_files()) for _ in range(3)]
    try:
        for number, each in enumerate(servers):
            if number == 0:
                fill(each, template_server)
            each.start()
        yield [each.url("postgres").replace("+psycopg", "") for each in servers]
    finally:
        for each in servers:
            each.close()


@pytest.fixture
def servers(server_urls: list[str]) -> Iterator[Servers]:
    """Give the servers with no events."""
    for url in server_urls:
        with psycopg.connect(url, autocommit=True) as run:
            run.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            run.execute(SCHEMA)
            for function in (_FUNCTIONS[0], _FUNCTIONS[2]):
                run.execute(function)
            run.execute(_PLACE)
    with closing(Servers(server_urls)) as found:
        yield found


def read(servers: Servers, after: Vector | None = None, limit: int = 3) -> list[tuple[UUID, int]]:
    """Return conversation and version of all events that can be read, page by page."""
    vector = Vector({}) if after is None else after
    found: list[tuple[UUID, int]] = []
    while True:
        page = vector_feed.page(servers, vector, limit)
        if not page.rows:
            return found
        found += [(row[1], row[2]) for row in page.rows]
        vector = vector_feed.parse(str(page.after), lambda _: ())
        assert vector == page.after


def test_each_event_is_returned_once_in_the_order_of_its_conversation(servers: Servers) -> None:
    """Whatever the size of pages."""
    streams = [new_id() for _ in range(3)]
    for version in range(1, 8):
        for server, stream in enumerate(streams):
            servers.append(server, stream, version)
    for limit in (1, 2, 5, 100):
        found = read(servers, limit=limit)
        assert len(found) == len(set(found)) == 21
        for stream in streams:
            assert [version for own, version in found if own == stream] == list(range(1, 8))


def test_what_is_not_committed_holds_back_its_own_server_alone(servers: Servers) -> None:
    """And nothing is lost when it is committed later."""
    slow, late, other = new_id(), new_id(), new_id()
    with servers.session(0) as session:
        servers.append(session, slow, 1)
        servers.append(0, late, 1)
        servers.append(1, other, 1)
        first = vector_feed.page(servers, Vector({}), 10)
        assert [row[1] for row in first.rows] == [other]
        assert vector_feed.lag(servers)[0] == 1
        session.commit()
    assert {slow, late} == {stream for stream, _ in read(servers, first.after)}
    assert vector_feed.lag(servers) == (0, None)


def test_who_waited_for_a_lock_comes_after_whom_it_waited_for(servers: Servers) -> None:
    """Its transaction began first, so its own id would put it before its predecessor."""
    stream = new_id()
    with servers.session(0) as session:
        session.execute("SELECT pg_current_xact_id()")
        servers.append(0, stream, 1)
        servers.append(session, stream, 2)
        session.commit()
    assert read(servers, limit=1) == [(stream, 1), (stream, 2)]


def test_an_event_waits_for_its_predecessor_of_another_epoch(servers: Servers) -> None:
    """A conversation that has moved is not turned round."""
    moved, blocking = new_id(), new_id()
    servers.append(0, moved, 1, 2)
    with servers.session(0) as session:
        servers.append(session, blocking, 1)
        servers.append(0, moved, 3)
        servers.move(moved, 0, 1)
        servers.append(1, moved, 4)
        first = vector_feed.page(servers, Vector({}), 10)
        assert [row[2] for row in first.rows if row[1] == moved] == [1, 2]
        session.commit()
    rest = read(servers, first.after)
    assert [version for stream, version in rest if stream == moved] == [3, 4]
    assert (blocking, 1) in rest


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_conversations_that_move_there_and_back(servers: Servers, limit: int) -> None:
    """Every event is returned once, each after its predecessor."""
    streams = [new_id() for _ in range(4)]
    at = dict.fromkeys(streams, 0)
    for version in range(1, 10):
        for number, stream in enumerate(streams):
            servers.append(at[stream], stream, version)
            if (version + number) % 3 == 0:
                target = (at[stream] + 1 + number % 2) % 3
                servers.move(stream, at[stream], target)
                at[stream] = target
    found = read(servers, limit=limit)
    assert len(found) == len(set(found)) == 36
    for stream in streams:
        assert [version for own, version in found if own == stream] == list(range(1, 10))


def test_events_that_wait_for_each_other_are_returned_together(servers: Servers) -> None:
    """Two transactions hold ids while two conversations move past each other."""
    one, two = new_id(), new_id()
    servers.append(0, one, 1)
    servers.append(1, two, 1)
    with servers.session(0) as here, servers.session(1) as there:
        # Each takes its id before the other conversation's last event where it came from.
        here.execute("SELECT pg_current_xact_id()")
        there.execute("SELECT pg_current_xact_id()")
        servers.append(0, one, 2)
        servers.append(1, two, 2)
        servers.move(one, 0, 1)
        servers.move(two, 1, 0)
        servers.append(there, one, 3)
        servers.append(here, two, 3)
        here.commit()
        there.commit()
    found = read(servers, limit=1)
    assert len(found) == len(set(found)) == 6
    for stream in (one, two):
        assert [version for own, version in found if own == stream] == [1, 2, 3]


def test_a_silent_server_holds_back_what_may_be_its(servers: Servers) -> None:
    """Its epoch is not taken for that of a server that is gone."""
    stream, other = new_id(), new_id()
    servers.append(0, stream, 1)
    servers.append(1, other, 1)
    servers.silent = {0}
    first = vector_feed.page(servers, Vector({}), 10)
    assert [row[1] for row in first.rows] == [other]
    servers.silent = set()
    assert read(servers, first.after) == [(stream, 1)]


def test_the_epoch_of_a_removed_server_is_read_to_its_end(servers: Servers) -> None:
    """Its events have moved, with the epoch in which they were appended."""
    stream = new_id()
    servers.append(2, stream, 1, 2)
    first = vector_feed.page(servers, Vector({}), 1)
    servers.move(stream, 2, 0)
    servers.there = [0, 1]
    servers.append(0, stream, 3)
    assert read(servers, first.after) == [(stream, 2), (stream, 3)]


def test_a_server_that_joins_during_a_read_is_asked(servers: Servers) -> None:
    """Otherwise its epoch would be passed while a transaction there has yet to commit."""
    early, late = new_id(), new_id()
    servers.there = [0, 1]
    with servers.session(2) as session:

        def join() -> None:
            servers.there = [0, 1, 2]
            servers.append(session, early, 1)
            servers.append(2, late, 1)

        servers.when_asked.append(join)
        first = vector_feed.page(servers, Vector({}), 10)
        session.commit()
    found = [(row[1], row[2]) for row in first.rows] + read(servers, first.after)
    assert sorted(found) == sorted([(early, 1), (late, 1)])


def test_servers_that_come_and_go_all_the_time_are_an_error(servers: Servers) -> None:
    """After several attempts, instead of a page that may lack something."""

    def flap() -> None:
        servers.there = [0, 1] if len(servers.there) == 3 else [0, 1, 2]

    servers.when_asked = [flap]
    servers.keeps_asking = True
    with pytest.raises(StoreUnavailable, match="added or removed"):
        vector_feed.page(servers, Vector({}), 10)


def test_two_servers_with_one_identifier_are_an_error(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copied data directory: their transaction ids would be mixed up."""
    monkeypatch.setattr(servers, "there", [0, 0])
    with pytest.raises(StoreUnavailable, match="same epoch"):
        vector_feed.page(servers, Vector({}), 10)


def test_a_cursor_of_one_server_stands_for_the_same_events(servers: Servers) -> None:
    """What was appended before the store was distributed keeps its epoch."""
    stream, older = new_id(), new_id()
    servers.append(0, older, 1)
    servers.append(0, stream, 1, 2)
    run = servers.session(0)
    with run:
        run.execute("UPDATE events SET epoch = 2, tx_id = (700 + version)::text::xid8")
        run.execute("UPDATE events SET epoch = 1 WHERE conversation_id = %s", [older])
        [(position, chain)] = run.execute(
            "SELECT position, chain FROM events WHERE conversation_id = %s AND version = 1",
            [stream],
        ).fetchall()
    servers.append(1, stream := new_id(), 1)
    text = f"p2:2:701:{position}:{chain[:8].hex()}"
    found = read(servers, vector_feed.parse(text, lambda epoch: range(1, epoch)))
    assert [version for _, version in found] == [2, 1]
    assert older not in {own for own, _ in found}
    begun = vector_feed.parse("p2:0:0:0:0000000000000000", lambda _: ())
    assert len(read(servers, begun)) == 4


def test_a_cursor_at_an_event_that_is_not_there_is_refused(servers: Servers) -> None:
    """Unless the event was purged."""
    stream = new_id()
    servers.append(0, stream, 1, 2)
    at = vector_feed.page(servers, Vector({}), 1).after
    assert vector_feed.holds(servers, at)
    text = str(at)
    last = text[-1]
    forged = vector_feed.parse(text[:-1] + ("0" if last != "0" else "1"), lambda _: ())
    assert not vector_feed.holds(servers, forged)
    with pytest.raises(InvalidCursor):
        vector_feed.page(servers, forged, 1)
    with servers.session(0) as session:
        session.execute("DELETE FROM events WHERE version = 1")
    with pytest.raises(InvalidCursor):
        vector_feed.page(servers, at, 1)
    with servers.session(0) as session:
        session.execute("INSERT INTO purges VALUES (1, 1)")
    assert vector_feed.holds(servers, at)
    assert read(servers, at) == [(stream, 2)]


def test_a_server_whose_transactions_went_back_is_noticed(servers: Servers) -> None:
    """A standby that lacked the last events: their ids are given again, to other events."""
    stream = new_id()
    servers.append(0, stream, 1, 2)
    at = vector_feed.page(servers, Vector({}), 2).after
    with servers.session(0) as session:
        session.execute("DELETE FROM events WHERE version = 2")
    servers.borders = lambda: [(epoch, 1) for epoch, *_ in servers_epochs(servers)]  # type: ignore[method-assign]
    with pytest.raises(InvalidCursor):
        vector_feed.page(servers, at, 2)


def servers_epochs(servers: Servers) -> list[Any]:
    """Return the epoch of each server."""
    return servers.select("SELECT eventstore_epoch()", [])


@pytest.mark.parametrize(
    "text",
    [
        "d2:x",
        "d2:1.2.3",
        "d2:1.2.3.zz",
        "d2:1.99999999999999999999.1.",
        "d2:1.1.1.:1.1.1.",
        "p1:1",
        "s1:1:0000000000000000",
        "",
        "p2:1:2:3",
    ],
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    """With the error that says so."""
    with pytest.raises(InvalidCursor):
        vector_feed.parse(text, lambda _: ())


def test_conversations_behind_and_where_to_go_on(servers: Servers) -> None:
    """Also those whose events are not safe to pass yet: the saved place is before them."""
    done, slow, late = new_id(), new_id(), new_id()
    servers.append(0, done, 1)
    with servers.session(0) as session:
        servers.append(session, slow, 1)
        servers.append(0, late, 1)
        streams, seen, safe, more = vector_feed.behind(servers, Vector({}), 10)
        assert ({*streams}, more) == ({done, late}, False)
        assert vector_feed.behind(servers, seen, 10)[0] == []
        session.commit()
    assert {*vector_feed.behind(servers, safe, 10)[0]} == {slow, late}
    assert {*vector_feed.gained(servers, safe)} == {slow, late}
    assert vector_feed.behind(servers, vector_feed.end(servers), 10)[0] == []
    assert vector_feed.behind(servers, Vector({}), 1)[3]


def test_a_watch_sees_every_change(servers: Servers) -> None:
    """An event, and that it has become safe to pass."""
    known = vector_feed.newest(servers, ())
    assert vector_feed.newest(servers, known) == known
    with servers.session(0) as session:
        servers.append(session, new_id(), 1)
        servers.append(0, new_id(), 1)
        held = vector_feed.newest(servers, known)
        assert held != known
        session.commit()
    free = vector_feed.newest(servers, held)
    assert free != held
    assert vector_feed.newest(servers, free) == free
