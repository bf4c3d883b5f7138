"""A store whose large tables are divided: all of it works, is guarded as before, and goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import create_engine, text

from agent_eventstore import Conversation
from agent_eventstore.autogenerate import include_object
from eventstore import EventStore, new_id
from eventstore.events import ToolResult
from projections import Views
from projections.upkeep import compare, rebuild
from projections.worker import run as work
from tests.cli.program import run
from tests.contract.facade import say
from tests.contract.plain import PlainClient
from tests.postgres import fresh_database
from tests.touched import touched_parts

LARGE = "large " * 10_000


@pytest.fixture
def url(postgres_server_url: str, installed_database: str) -> Iterator[str]:
    """URL of a store of the test's own with a few conversations, divided into four partitions."""
    with fresh_database(postgres_server_url, template=installed_database) as url:
        with EventStore.open(url) as store:
            for user in ("ada", "bob", "cleo"):
                store.append(f"{user}'s", talk(), user_id=user)
            work(store, once=True)
        divide(url, 4)
        yield url


def talk() -> list[Any]:
    """Return messages, and a result that is stored as a blob."""
    return [*say("hello", "more"), ToolResult(call_id="1.0", content=LARGE)]


def divide(url: str, count: int) -> None:
    """Run the command."""
    done = run("db", "partition", "--partitions", str(count), url=url)
    assert (0, "") == (done.status, done.err), done.err


def described(client: PlainClient) -> list[Any]:
    """Return columns, keys, indexes and triggers of the divided tables, and who may do what."""
    return [
        client.execute(query)
        for query in (
            """SELECT attrelid::regclass::text, attname, atttypid::regtype::text, attnotnull,
                attidentity, coalesce(attstattarget, -1), attstorage FROM pg_attribute
            WHERE attrelid IN ('events'::regclass, 'blobs'::regclass) AND attnum > 0
            ORDER BY attrelid::regclass::text, attnum""",
            """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
            FROM pg_constraint WHERE conrelid IN ('events'::regclass, 'blobs'::regclass)
            AND contype IN ('p', 'u') ORDER BY conname""",
            """SELECT indexrelid::regclass::text, replace(pg_get_indexdef(indexrelid), 'ONLY ', '')
            FROM pg_index WHERE indrelid IN ('events'::regclass, 'blobs'::regclass) ORDER BY 1""",
            """SELECT pg_get_triggerdef(oid), tgenabled FROM pg_trigger
            WHERE tgrelid IN ('events'::regclass, 'blobs'::regclass) AND NOT tgisinternal
            ORDER BY 1""",
        )
    ]


def everything(store: EventStore) -> list[Any]:
    """Return all that there is, with the places in the feed."""
    views = Views(store)
    return [
        [*store.read_all()],
        [(each, [*views.timeline(each.conversation_id)]) for each in store.list()],
        views.conversations(),
        views.search("hello"),
    ]


def test_nothing_changes_for_who_uses_it(url: str) -> None:
    """Rows, order of the feed, cursors, definitions: the same, divided and whole."""
    with EventStore.open(url) as store, PlainClient(url) as client:
        divided, definition = everything(store), described(client)
        cursor = store.read_all(limit=2).cursor
        for count in (0, 3, 0):
            divide(url, count)
            assert divided == everything(store)
            assert definition == described(client)
            assert divided[0][2:] == [*store.read_all(after=cursor)]
            [(parts,)] = client.execute(
                "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass"
            )
            assert count == parts
        last = divided[0][-1].position
        assert last < store.append("ada's", say("next")).events[0].position


def test_a_store_works(url: str, tmp_path: Path) -> None:
    """Append, fork, lease, erase, purge, archive, verify, rebuild, check."""
    with EventStore.open(url) as store:
        ada = store.find(key="ada's")
        assert ada is not None
        cid = ada.conversation_id
        event = store.append(cid, say("once")).events[0]
        assert event == [*store.read(cid)][-1]
        fork = store.fork(cid, before=3).conversation_id
        assert ["user_message"] * 2 + ["conversation_fork"] == [e.type for e in store.read(fork)]
        store.erase(cid, versions=[2], reason="asked for", vacuum=True)
        assert [True] == [each.erased for each in store.read(cid, after=1, limit=1)]
        store.purge("bob's", reason="asked for")
        store.archive(tmp_path, inactive_for=timedelta(microseconds=1))
        assert 1 == len(store.archived())
        store.restore(store.archived()[0].conversation_id)
        assert store.verify().ok
        work(store, once=True)
        rebuild(store)
        assert compare(store).ok
        done = run("doctor", "--all", url=url)
        assert 0 == done.status, done.out


def test_a_conversation_is_in_one_partition(url: str) -> None:
    """What names a conversation reads one partition alone."""
    with PlainClient(url) as client:
        [(cid,)] = client.execute("SELECT conversation_id FROM conversations LIMIT 1")
        for table in ("events", "blobs"):
            plan = client.execute(
                f"EXPLAIN (ANALYZE, COSTS off) SELECT * FROM {table} "
                f"WHERE conversation_id = '{cid}'"
            )
            named = {
                word for (line,) in plan for word in line.split() if word.startswith(f"{table}_p")
            }
            assert 1 == len(named)


OPERATIONS: dict[str, Callable[[EventStore, UUID], object]] = {
    "append": lambda store, cid: store.append(cid, say("next")),
    "append some": lambda store, cid: [store.append(cid, say("x", "y")) for _ in range(8)],
    "read": lambda store, cid: [[*store.read(cid)] for _ in range(8)],
    "blob": lambda store, cid: store.blob(cid, sha256(LARGE.encode()).hexdigest()),
    "timeline": lambda store, cid: Views(store).timeline(cid),
    "context": lambda store, cid: Views(store).context(cid, max_tokens=4_000),
    "verify": lambda store, cid: store.verify(cid),
    "open and record": lambda store, cid: record(store, cid),
    "erase": lambda store, cid: store.erase(cid, versions=[2], reason="asked for"),
    "purge": lambda store, cid: store.purge(cid, reason="asked for"),
}


def record(store: EventStore, cid: UUID) -> None:
    """Go through a turn with a request and a tool call."""
    with Conversation.open(store, cid) as conversation, conversation.turn("hello") as turn:
        with turn.llm_call(turn.context(), model="m") as call:
            call.text("yes")


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_touches_one_partition(url: str, name: str) -> None:
    """Of the events and of the blobs: the server's own count of scans says so."""
    for table, touched in touched_by(url, OPERATIONS[name]).items():
        assert len(touched) <= 1, (table, touched)


def test_the_feed_touches_all(url: str) -> None:
    """What concerns all conversations reads every partition, and the count of scans sees it."""
    assert 4 == len(touched_by(url, lambda store, _: store.read_all())["events"])


def touched_by(url: str, operation: Callable[[EventStore, UUID], object]) -> dict[str, set[str]]:
    """Return the partitions of each table that an operation on ada's conversation touches."""
    parts = touched_parts(url, "^(events|blobs)_p", operation)
    return {
        table: {part for part in parts if part.startswith(table)} for table in ("events", "blobs")
    }


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {part} SET data = NULL, salt = NULL",
        "UPDATE {part} SET meta = '{{}}'",
        "DELETE FROM {part}",
        "TRUNCATE {part}",
        "TRUNCATE events",
        "DELETE FROM events",
    ],
)
def test_events_stay_immutable(url: str, statement: str) -> None:
    """In every partition, whatever the session's settings."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as client:
        [name] = {
            row[0] for row in client.execute("SELECT tableoid::regclass::text FROM events LIMIT 1")
        }
        for role in ("origin", "replica"):
            client.execute(f"SET session_replication_role = {role}")
            with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="immutable"):
                client.execute(statement.format(part=name))


def test_doctor_sees_a_trigger_that_does_not_fire(url: str) -> None:
    """In a partition too."""
    with PlainClient(url) as client:
        client.execute("DROP TRIGGER events_refuse_truncate ON events_p0002")
    done = run("doctor", url=url)
    assert 1 == done.status
    assert "events_refuse_truncate of events_p0002" in " ".join(done.out.split())


def test_rights_and_row_security_stay(url: str) -> None:
    """A login has what it had, on the whole tables, and sees one owner's rows."""
    login = f"divided-{new_id().hex[:12]}"
    with PlainClient(url) as client:
        client.execute(f"CREATE ROLE \"{login}\" LOGIN PASSWORD 'secret'")
        try:
            for command in (("db", "grant", login), ("db", "secure")):
                assert 0 == run(*command, url=url).status
            for count in (0, 5):
                divide(url, count)
                own = create_engine(url).url.set(username=login, password="secret")
                with EventStore.open(own.render_as_string(hide_password=False)) as store:
                    ada = store.for_owner(user_id="ada")
                    ada.append("ada's", say("again"))
                    assert 1 == len(ada.list())
                    with store.reading() as connection:
                        assert 0 == connection.execute(text("SELECT count(*) FROM events")).scalar()
                done = run("doctor", url=url)
                assert 0 == done.status, done.out
        finally:
            client.execute(f'DROP OWNED BY "{login}"; DROP ROLE "{login}"')


def test_a_products_autogenerate_leaves_partitions_alone(url: str) -> None:
    """They are the store's, as the whole tables are."""
    from sqlalchemy import MetaData

    metadata = MetaData()
    engine = create_engine(url)
    metadata.reflect(engine)
    engine.dispose()
    seen = [
        name
        for name, table in metadata.tables.items()
        if include_object(table, name, "table", True, None)
    ]
    assert [] == seen
    assert "events_p0001" in metadata.tables


def test_what_cannot_be_divided(sqlite_url: str, url: str) -> None:
    """SQLite has no partitions; a product's materialized view is not dropped behind its back."""
    EventStore.open(sqlite_url).close()
    done = run("db", "partition", url=sqlite_url)
    assert (2, True) == (done.status, "SQLite has no partitions" in done.err)
    with PlainClient(url) as client:
        client.execute("CREATE VIEW plain AS SELECT conversation_id FROM events")
        client.execute("CREATE VIEW upon AS SELECT count(*) FROM plain")
        divide(url, 2)
        assert [(9,)] == client.execute("SELECT * FROM upon")
        client.execute("CREATE MATERIALIZED VIEW theirs AS SELECT conversation_id FROM plain")
    done = run("db", "partition", "--partitions", "0", url=url)
    assert 2 == done.status
    assert "theirs" in done.err
    with EventStore.open(url) as store:
        assert store.verify().ok
