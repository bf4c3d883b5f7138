"""Stores in schemas of one PostgreSQL database, beside a product's tables of the same names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from alembic.operations.ops import DropTableOp
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, create_engine, text

from agent_eventstore import Conversation
from agent_eventstore.autogenerate import include_object
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import (
    InvalidUrl,
    NotWritable,
    SchemaOutdated,
    StatementRefused,
    UnsafeTransaction,
)
from eventstore.events import UserMessage
from eventstore.sql.migrate import schema_lock
from projections import Views, worker
from projections.upkeep import compare, rebuild
from tests.cli.program import run
from tests.cohabitation.conftest import PRODUCT
from tests.contract.facade import say, texts
from tests.contract.plain import PlainClient
from tests.feed_wait import wait_for_feed
from tests.pgbouncer import PgBouncer, needs_pgbouncer
from tests.postgres import fresh_database

ODD = 'the "store\'s" 100%'


@pytest.fixture
def postgres_url(postgres_server_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a database of the test's own, with both schemas if it asks for a store in its own."""
    shared = "store" in request.fixturenames
    template = request.getfixturevalue("shared_database") if shared else "template0"
    with fresh_database(postgres_server_url, template=template) as url:
        yield url


@pytest.fixture
def product(postgres_url: str) -> Iterator[PlainClient]:
    """Give a client of a database whose schema ``public`` has tables of a product's."""
    with PlainClient(postgres_url) as client:
        if not tables(client, "public"):
            client.execute(PRODUCT)
        yield client
        assert [(1, "ours")] == client.execute("SELECT * FROM public.conversations")
        assert [(1,)] == client.execute("SELECT count(*) FROM public.events")


@pytest.fixture
def store(product: PlainClient, postgres_url: str) -> Iterator[EventStore]:
    """Give a store in a schema of its own."""
    with EventStore.open(postgres_url, schema="agent") as store:
        yield store


def tables(client: PlainClient, schema: str) -> set[str]:
    """Return the names of a schema's tables and views."""
    query = "SELECT relname, relkind FROM pg_class WHERE relnamespace = to_regnamespace(?)"
    return {name for name, kind in client.execute(query, f'"{schema}"') if kind in "rv"}


def test_everything_is_in_the_schema(product: PlainClient, postgres_url: str) -> None:
    """Log, version table, read models and their views; the product's schema stays as it was."""
    before = tables(product, "public")
    with EventStore.open(postgres_url, schema="agent") as store:
        conversation = Conversation.start(store, title="t")
        with conversation.turn("Hello."):
            pass
        views = Views(store)
        assert "Hello." in [item.text for item in views.timeline(conversation.id)]
        assert views.context(conversation.id, max_tokens=1000).messages

    there = tables(product, "agent")
    assert {
        "events",
        "eventstore_version",
        "timeline_items",
        "token_counts",
        "projections",
    } <= there
    assert before == tables(product, "public")


def test_two_stores_know_nothing_of_each_other(store: EventStore, postgres_url: str) -> None:
    """One conversation's id in both: two logs, two feeds, two sets of views."""
    cid = new_id()
    with EventStore.open(f"{postgres_url}&schema=other") as other:
        store.append(cid, say("one"))
        other.append(cid, say("two", "three"), expected_version=0)

        assert (["one"], ["two", "three"]) == (texts(store.read(cid)), texts(other.read(cid)))
        assert (1, 2) == (
            len(wait_for_feed(store).read_all()),
            len(wait_for_feed(other).read_all()),
        )
        assert ["one"] == [item.text for item in Views(store).timeline(cid)]
        assert ["two", "three"] == [item.text for item in Views(other).timeline(cid)]
        assert 1 == store.erase(cid, reason="asked").versions[-1]
        assert ["two", "three"] == texts(other.read(cid))
        assert store.verify().ok
        assert other.verify().ok


def test_locks_of_one_schema_are_not_those_of_another(store: EventStore, postgres_url: str) -> None:
    """A change of the one's tables, and an erasure there, hold up nothing in the other."""
    cid = new_id()
    with EventStore.open(postgres_url + "&lock_timeout=1s", schema="other") as other:
        for each in (store, other):
            each.append(cid, say("1"))
            Views(each).timeline(cid)
        with schema_lock(store.engine):
            rebuild(other)
            other.erase(cid, reason="asked")


def test_a_schema_of_any_name(product: PlainClient, postgres_url: str) -> None:
    """Quotes, blanks and percent signs are parts of a name; a URL tells it to every process."""
    with EventStore.open(postgres_url, schema=ODD) as store:
        cid = store.append(new_id(), say("1")).conversation_id
        Views(store).timeline(cid)
        report = rebuild(store, ["timeline"], workers=2)
        assert 1 == report.events
        assert compare(wait_for_feed(store)).ok

    query = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(?)"
    [(count,)] = product.execute(query, '"' + ODD.replace('"', '""') + '"')
    assert count > 20


@pytest.mark.parametrize("schema", ["", "pg_own", "x" * 64, "$user"])
def test_names_that_postgresql_would_not_take(postgres_url: str, schema: str) -> None:
    """They are refused before anything is opened."""
    with pytest.raises(InvalidUrl, match="schema"):
        EventStore.open(postgres_url, schema=schema)


def test_two_names_of_schemas(postgres_url: str) -> None:
    """The URL and the argument must not contradict each other."""
    with pytest.raises(InvalidUrl, match="'b' contradicts"):
        EventStore.open(f"{postgres_url}&schema=a", schema="b")


@pytest.mark.parametrize("option", ["?schema=agent", ""])
def test_sqlite_has_no_schemas(sqlite_url: str, option: str) -> None:
    """It is refused, and not taken for a name of a file or ignored."""
    with pytest.raises(InvalidUrl, match="SQLite has no schemas"):
        EventStore.open(sqlite_url + option, schema=None if option else "agent")


def test_a_missing_schema(product: PlainClient, postgres_url: str) -> None:
    """It is told by who may not make it, and is not looked for in another schema."""
    with pytest.raises(SchemaOutdated, match="db upgrade"):
        EventStore.open(postgres_url, schema="agent", migrate=False)
    with pytest.raises(SchemaOutdated, match="db upgrade"):
        EventStore.open(postgres_url, schema="agent", read_only=True)


def test_a_store_in_public_is_not_taken_for_another(postgres_url: str) -> None:
    """One that has no schema of its own was there first."""
    cid = new_id()
    with EventStore.open(postgres_url) as first, EventStore.open(postgres_url, schema="a") as own:
        first.append(cid, say("1"))
        assert [] == list(own.read(cid))


def test_asynchronous_store(product: PlainClient, postgres_url: str) -> None:
    """The other kind of store takes the same argument."""

    async def converse() -> list[str]:
        async with await AsyncEventStore.open(postgres_url, schema="agent") as store:
            cid = new_id()
            await store.append(cid, say("1"))
            return texts([event async for event in store.read(cid)])

    assert ["1"] == asyncio.run(converse())


def test_read_only(store: EventStore, postgres_url: str) -> None:
    """A store that may only read finds log and views in the schema."""
    cid = store.append(new_id(), say("1")).conversation_id
    with EventStore.open(postgres_url, schema="agent", read_only=True) as reader:
        assert ["1"] == texts(reader.read(cid))
        assert ["1"] == [item.text for item in Views(reader).timeline(cid)]
        with pytest.raises(NotWritable):
            reader.append(cid, say("2"))


def test_forks(store: EventStore) -> None:
    """A conversation that begins from another's past."""
    parent = store.append(new_id(), say("1", "2")).conversation_id
    child = store.fork(parent, before=2).conversation_id

    assert ["1"] == texts(list(store.read(child))[:1])
    assert "1" in [item.text for item in Views(store).timeline(child)]
    assert store.verify().ok


def test_commands(store: EventStore, postgres_url: str) -> None:
    """Each command finds the schema by the URL: the doctor, the worker, rebuild and comparison."""
    url = f"{postgres_url}&schema=agent"
    with Conversation.start(store, title="t").turn("Hello."):
        pass
    for command in (
        ("db", "upgrade"),
        ("db", "current"),
        ("list",),
        ("projections", "run", "--once"),
        ("projections", "rebuild", "--workers", "2"),
        ("projections", "rebuild", "--diff"),
        ("projections", "status"),
        ("verify",),
        ("doctor",),
    ):
        done = run(*command, url=url)
        assert (0, "") == (done.status, done.err), command


def test_the_doctor_looks_into_the_schema(store: EventStore, postgres_url: str) -> None:
    """What protects the events there, and not what another schema has."""
    with EventStore.open(postgres_url + "&schema=other"), store.writing() as connection:
        connection.execute(text("ALTER TABLE events DISABLE TRIGGER USER"))

    done = run("doctor", "--json", url=f"{postgres_url}&schema=agent")
    found = {check["name"]: check["status"] for check in done.document["checks"]}
    assert ("problem", "ok") == (found["triggers"], found["tables"])


def test_a_client_of_another_path_is_refused(store: EventStore, product: PlainClient) -> None:
    """A path or a table of its own does not open what the triggers keep closed."""
    cid = store.append(new_id(), say("1")).conversation_id
    product.execute("CREATE TEMPORARY TABLE erased_versions (LIKE agent.erased_versions)")
    product.execute("INSERT INTO erased_versions VALUES (?, ?, 1, 9)", cid, cid)
    for path in ("public", "pg_temp, agent, public"):
        product.execute(f"SET search_path = {path}")
        for statement in (
            "UPDATE agent.events SET data = NULL, salt = NULL",
            "UPDATE agent.events SET type = 'x'",
            "DELETE FROM agent.events",
            "TRUNCATE agent.events",
        ):
            with pytest.raises(psycopg.IntegrityError, match="immutable"):
                product.execute(statement)


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    """Give the product's own engine, whose connections commit without waiting for the disk."""
    engine = create_engine(postgres_url, connect_args={"options": "-c synchronous_commit=off"})
    yield engine
    engine.dispose()


def setting(connection: Connection, name: str) -> Any:
    """Return a setting's value."""
    return connection.execute(text("SELECT current_setting(:name)"), {"name": name}).scalar()


@pytest.mark.parametrize("schema", ["agent", None])
def test_a_transaction_of_the_products(
    postgres_url: str, engine: Engine, schema: str | None
) -> None:
    """The append reaches the store's tables, durably; the product's names stay the product's."""
    cid = new_id()
    with EventStore.open(postgres_url, schema=schema) as store:
        with engine.begin() as connection:
            connection.execute(text("CREATE SCHEMA shop; SET LOCAL search_path = shop, public"))
            connection.execute(text("CREATE TABLE events (number INT)"))
            connection.execute(text("INSERT INTO events VALUES (7)"))
            store.append(cid, say("1"), connection=connection)
            with pytest.raises(UnsafeTransaction), engine.connect() as other:
                store.append(cid, say("no"), connection=other)
            assert 7 == connection.execute(text("SELECT number FROM events")).scalar()
            assert ("shop, public", "on") == (
                setting(connection, "search_path"),
                setting(connection, "synchronous_commit"),
            )
        assert ["1"] == texts(store.read(cid))
        with engine.connect() as connection:
            assert "off" == setting(connection, "synchronous_commit")


def test_a_statement_that_fails_within_a_savepoint(store: EventStore, engine: Engine) -> None:
    """The product goes on from its savepoint, with its own names."""
    cid, first = new_id(), say("1")
    with engine.begin() as connection:
        savepoint = connection.begin_nested()
        connection.execute(text("ALTER TABLE agent.events RENAME TO moved"))
        with pytest.raises(StatementRefused):
            store.append(cid, first, connection=connection)
        savepoint.rollback()
        assert '"$user", public' == setting(connection, "search_path")
        store.append(cid, first, connection=connection)

    assert ["1"] == texts(store.read(cid))


def test_autogenerate(store: EventStore, engine: Engine) -> None:
    """Of all schemas, only the product's own table that its code has dropped is found."""
    Views(store).timeline(store.append(new_id(), say("1")).conversation_id)
    metadata = MetaData()
    Table(
        "conversations", metadata, Column("id", Integer, primary_key=True), Column("topic", Integer)
    )
    Table("erased_versions", metadata, Column("id", Integer, primary_key=True))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_object": include_object, "include_schemas": True}
        )
        found = produce_migrations(context, metadata).upgrade_ops
    assert found is not None
    dropped = [(op.schema, op.table_name) for op in found.ops if isinstance(op, DropTableOp)]
    assert [(None, "events")] == dropped


def test_many_processes_make_one_schema(product: PlainClient, postgres_url: str) -> None:
    """Whoever comes first makes it, and the others find it made."""
    cids: list[UUID] = []

    def begin() -> None:
        with EventStore.open(postgres_url, schema="agent") as store:
            cids.append(store.append(new_id(), UserMessage.text("1")).conversation_id)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 4 == len(cids)


@needs_pgbouncer
def test_behind_a_pooler(
    product: PlainClient, postgres_server_url: str, postgres_url: str, tmp_path: Path
) -> None:
    """Where sessions are shared, each transaction finds the schema, and leaves none behind."""
    with PgBouncer(postgres_server_url) as pooler:
        url = pooler.url(postgres_url)
        with EventStore.open(url, schema="agent") as store:
            with Conversation.start(store, title="t").turn("Hello."):
                pass
            worker.run(store, once=True)
            [cid] = [info.conversation_id for info in store.list()]
            store.erase(cid, reason="asked", vacuum=True)
            assert compare(wait_for_feed(store)).ok
        with EventStore.open(url, schema="other") as other:
            assert [] == other.list()
