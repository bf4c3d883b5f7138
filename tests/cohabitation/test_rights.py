"""A login that may change rows and nothing else runs the product; upgrades stay the owner's."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import URL, make_url

from agent_eventstore import Conversation
from agent_eventstore.cli.program import WRONG_USE
from eventstore import EventStore, new_id
from eventstore.errors import DatabaseBusy, NotWritable
from eventstore.sql.migrate import schema_lock
from projections import Views, worker
from projections.errors import GenerationGone
from projections.upkeep import compare, rebuild
from tests.cli.program import run
from tests.contract.facade import say, texts
from tests.contract.plain import PlainClient
from tests.feed_wait import wait_for_feed
from tests.postgres import fresh_database

HINT = "`eventstore db upgrade`"


@pytest.fixture
def postgres_url(postgres_server_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a database that has the schema if the test asks for a login that may use it."""
    template = "template0"
    if "url" in request.fixturenames:
        of_schema = request.getfixturevalue("schema") is not None
        template = request.getfixturevalue("shared_database" if of_schema else "installed_database")
    with fresh_database(postgres_server_url, template=template) as url:
        yield url


@pytest.fixture(params=["agent", None])
def schema(request: pytest.FixtureRequest) -> str | None:
    """Name of a schema of the tables' own, and None for ``public``."""
    name: str | None = request.param
    return name


@pytest.fixture
def owners_url(schema: str | None, postgres_url: str) -> URL:
    """URL of the tables' owner."""
    url = make_url(postgres_url)
    return url if schema is None else url.update_query_dict({"schema": schema})


@pytest.fixture
def login(postgres_url: str) -> Iterator[str]:
    """Name of a login without any rights, dropped in the end."""
    name = f"Rows-only-{uuid4().hex[:8]}"
    with PlainClient(postgres_url) as client:
        client.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'secret'")
        client.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        yield name
        client.execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')


@pytest.fixture
def url(owners_url: URL, login: str) -> str:
    """URL of the login, on tables that the owner has made and granted."""
    owner = owners_url.render_as_string(hide_password=False)
    for command in (("db", "upgrade"), ("db", "grant", login)):
        done = run(*command, url=owner)
        assert (0, "") == (done.status, done.err)
    return owners_url.set(username=login, password="secret").render_as_string(hide_password=False)


def test_everything_of_every_day(url: str) -> None:
    """Open, record, views of every kind, search, worker, comparison, erasure."""
    with EventStore.open(url) as store:
        with Conversation.start(store, title="t", user_id="ada") as conversation:
            with conversation.turn("Hello.") as turn:
                turn.context(max_tokens=1000)
            cid = conversation.id
        views = Views(store)
        assert "Hello." in [item.text for item in views.timeline(cid)]
        assert views.context(cid, max_tokens=1000, strategy="retrieval").messages
        assert 1 == len(views.conversations(user_id="ada"))
        worker.run(store, once=True)
        assert compare(wait_for_feed(store)).ok
        store.erase(cid, reason="asked")
        assert "Hello." not in [item.text for item in views.timeline(cid)]
        assert store.verify().ok
    assert 0 == run("doctor", url=url).status


def test_what_is_the_owners(url: str) -> None:
    """A rebuild, an upgrade or a grant is refused in words, and nothing is left of it."""
    with EventStore.open(url) as store:
        store.append(cid := new_id(), say("1"))
        with pytest.raises(NotWritable, match=HINT):
            rebuild(store)
        with pytest.raises(NotWritable, match=HINT):
            search_tables_again(store)
        assert ["1"] == [item.text for item in Views(store).timeline(cid)]
    with PlainClient(url.partition("?")[0] + "?" + driver_options(url)) as client:
        client.execute(f"SET search_path = {make_url(url).query.get('schema', 'public')}")
        for statement in (
            "DELETE FROM purges",
            "TRUNCATE events",
            "DROP TABLE events",
            "ALTER TABLE events DISABLE TRIGGER USER",
            "CREATE TABLE mine (id INT)",
            "UPDATE eventstore_version SET version_num = 'x'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                client.execute(statement)
        for statement in ("UPDATE events SET type = 'x'", "DELETE FROM events"):
            with pytest.raises(psycopg.IntegrityError, match="immutable"):
                client.execute(statement)


def test_tables_that_only_their_owner_rewrites(url: str) -> None:
    """An erasure that asks for it is committed, which the error did not say."""
    with EventStore.open(url) as store:
        store.append(cid := new_id(), say("secret"))

        with pytest.raises(NotWritable, match=r"is committed, .* not rewritten: .* in all"):
            store.erase(cid, reason="test", vacuum=True)

        assert store.verify(cid).ok
        assert all(event.erased for event in store.read(cid) if event.version == 1)


def test_two_things_that_an_erasure_of_a_user_could_not_do(url: str, owners_url: URL) -> None:
    """That tables were not rewritten hid that a conversation was not erased at all."""
    busy = make_url(url).update_query_dict({"lock_timeout": "100ms"})
    schema = owners_url.query.get("schema", "public")
    plain = owners_url.difference_update_query(["schema"]).render_as_string(False)
    with EventStore.open(busy) as store, PlainClient(plain) as client:
        kept, gone = (store.append(new_id(), say("secret"), user_id="ada") for _ in range(2))
        client.execute("BEGIN")
        lock = f"SELECT 1 FROM {schema}.conversations WHERE conversation_id = ? FOR UPDATE"
        client.execute(lock, kept.conversation_id)

        with pytest.raises(DatabaseBusy) as failed:
            store.erase_user("ada", reason="test", vacuum=True)
        asked = ("erase", "--user", "ada", "--reason", "test", "--vacuum", "--yes")
        told = run(*asked, url=busy.render_as_string(hide_password=False))
        client.execute("ROLLBACK")

        assert "tables were not rewritten" in "".join(failed.value.__notes__)
        assert WRONG_USE == told.status
        [said] = [line for line in told.err.splitlines() if line.startswith("eventstore: ")]
        assert "lock" in said
        assert "tables were not rewritten" in said
        erased = {
            done.conversation_id: next(event.erased for event in store.read(done.conversation_id))
            for done in (kept, gone)
        }
        assert {kept.conversation_id: False, gone.conversation_id: True} == erased
        assert (kept.conversation_id,) == store.erase_user("ada", reason="test").conversations


def search_tables_again(store: EventStore) -> None:
    """Have something created under the schema lock, as whoever finds a table missing does."""
    with schema_lock(store.engine) as connection:
        connection.exec_driver_sql("CREATE TABLE search_heads_too (id INT)")


def driver_options(url: str) -> str:
    """Return the options of a URL that are the driver's."""
    query = make_url(url).query
    return "&".join(f"{name}={value}" for name, value in query.items() if name != "schema")


def test_a_rebuild_of_the_owners(url: str, owners_url: URL) -> None:
    """The login goes on reading and writing the generation that is live now."""
    with EventStore.open(url) as store:
        cid = store.append(new_id(), say("1")).conversation_id
        views = Views(store)
        assert ["1"] == [item.text for item in views.timeline(cid)]
        with EventStore.open(owners_url) as owner:
            rebuild(owner)
        store.append(cid, say("2"))
        try:
            found = views.timeline(cid)
        except GenerationGone:
            found = views.timeline(cid)
        assert ["1", "2"] == [item.text for item in found]
        with store.reading() as connection:
            rows = connection.exec_driver_sql("SELECT count(*) FROM timeline_items").scalar()
        assert 2 == rows
        assert ["1", "2"] == texts(store.read(cid))


def test_what_the_owner_has_not_made(owners_url: URL, login: str) -> None:
    """A login that finds no tables is told who makes them."""
    own = owners_url.set(username=login, password="secret")
    with pytest.raises(NotWritable, match=HINT):
        EventStore.open(own)
    EventStore.open(owners_url).close()
    with pytest.raises(NotWritable):
        EventStore.open(own)


def test_roles_that_cannot_be_granted_anything(postgres_url: str, sqlite_url: str) -> None:
    """One that is not there, and any of SQLite's, which has none."""
    for url, said in ((postgres_url, "CREATE ROLE"), (sqlite_url, "SQLite has no roles")):
        EventStore.open(url).close()
        done = run("db", "grant", "nobody at all", url=url)
        assert 2 == done.status
        assert said in done.err.replace("\n", " ")


def test_who_owns_no_table_grants_nothing(url: str, postgres_url: str) -> None:
    """PostgreSQL merely warns of it, and the command said that the role may use the store."""
    other = f"other-{uuid4().hex[:8]}"
    with PlainClient(postgres_url) as client:
        client.execute(f'CREATE ROLE "{other}" LOGIN')
        try:
            done = run("db", "grant", other, url=url)
        finally:
            client.execute(f'DROP OWNED BY "{other}"; DROP ROLE "{other}"')

    assert 2 == done.status
    assert "the owner of the tables has to do this" in done.err
