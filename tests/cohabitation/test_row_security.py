"""Row-level security: a login that may change rows sees those of one owner, whatever it asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import make_url, text

from agent_eventstore import (
    AsyncConversation,
    AsyncEventStore,
    Conversation,
    EventStore,
    Views,
    worker,
)
from eventstore.errors import (
    ConversationArchived,
    ConversationNotFound,
    EventStoreError,
    NotWritable,
    OwnerMismatch,
)
from eventstore.events import UserMessage
from projections.upkeep import compare, rebuild
from tests.cli.program import run
from tests.contract.plain import PlainClient
from tests.failures.forking import EACH
from tests.warm import Programs


@pytest.fixture
def postgres_url(installed_url: str) -> str:
    """URL of a database of the test's own that has the tables of all projections."""
    return installed_url


@pytest.fixture
def login(postgres_url: str) -> Iterator[str]:
    """Name of a login without any rights, dropped in the end."""
    name = f"rows-of-one-{uuid4().hex[:8]}"
    with PlainClient(postgres_url) as client:
        client.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'secret'")
        yield name
        client.execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')


@pytest.fixture
def url(postgres_url: str, login: str) -> str:
    """URL of the login, on tables that the owner has made, granted and secured."""
    for command in (("db", "upgrade"), ("db", "grant", login), ("db", "secure"), ("db", "secure")):
        done = run(*command, url=postgres_url)
        assert (0, "") == (done.status, done.err)
    own = make_url(postgres_url).set(username=login, password="secret")
    return own.render_as_string(hide_password=False)


def talk(store: EventStore, said: str) -> UUID:
    """Go through a conversation of two turns; return its id."""
    with Conversation.start(store, title=said) as conversation:
        for _ in range(2):
            with conversation.turn(said) as turn, turn.llm_call(turn.context(), model="m") as call:
                call.text(f"{said}!")
    return conversation.id


def seen(store: EventStore, said: str) -> list[str]:
    """Return what an owner is shown, by every view."""
    views = Views(store)
    (entry,) = views.conversations()
    assert 2 == len(views.search(said, limit=10)) // 2
    assert views.usage()
    assert store.verify(entry.conversation_id).ok
    return [item.text or "" for item in views.timeline(entry.conversation_id) if item.role]


def as_ada(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run a statement in a transaction that names an owner, on all servers; return its rows."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as connection:
        for each in (
            "citus.propagate_set_commands = 'local'",
            "eventstore.tenant_id = '-'",
            "eventstore.user_id = '+ada'",
        ):
            connection.execute(f"SET LOCAL {each}".encode())
        ran = connection.execute(statement.encode())
        return ran.fetchall() if ran.description else []


def test_each_owner_works_as_without_it(url: str) -> None:
    """Record, read, list, search and add up: their own, and nobody else's."""
    with EventStore.open(url, migrate=False) as store:
        ada = store.for_owner(tenant_id="acme", user_id="ada")
        bob = store.for_owner(user_id="bob")
        of_ada, of_bob = talk(ada, "apple"), talk(bob, "berry")
        for _ in range(2):
            assert ["apple", "apple!"] * 2 == seen(ada, "apple")
            assert ["berry", "berry!"] * 2 == seen(bob, "berry")
        assert [] == Views(ada).search("berry")
        with pytest.raises((ConversationNotFound, OwnerMismatch)):
            Views(ada).timeline(of_bob)
        with pytest.raises(EventStoreError):
            Conversation.open(bob, of_ada)
        tenant = store.for_owner(tenant_id="acme")
        assert [of_ada] == [each.conversation_id for each in Views(tenant).conversations()]


def test_plain_sql_after_close(url: str, postgres_url: str) -> None:
    """A closed conversation is in the views, and `view_lag` shows an owner its own alone."""
    with EventStore.open(url, migrate=False) as store, PlainClient(postgres_url) as client:
        ada = store.for_owner(tenant_id="acme", user_id="ada")
        of_ada = talk(ada, "apple")
        assert [(2,)] == client.execute("SELECT count(*) FROM usage_by_call")
        for _ in range(2):
            message = [UserMessage.text("more")]
            store.for_owner(user_id="bob").append(uuid4(), message)
            ada.append(of_ada, message)
        with ada.reading() as connection:
            behind = text("SELECT DISTINCT conversation_id FROM view_lag")
            assert [of_ada] == list(connection.execute(behind).scalars())
        assert [(3,)] == client.execute("SELECT count(DISTINCT conversation_id) FROM view_lag")


def test_plain_sql_sees_one_owner_at_most(url: str, postgres_url: str) -> None:
    """All tables and views; without a name there is nothing, and nothing can be written."""
    with EventStore.open(url, migrate=False) as store:
        ada, bob = store.for_owner(user_id="ada"), store.for_owner(user_id="bob")
        of_ada, of_bob = talk(ada, "apple"), talk(bob, "berry")
        for each, cid in ((ada, of_ada), (bob, of_bob)):
            Views(each).search("x")
            Views(each).timeline(cid)
        names = text(
            "SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON attrelid = c.oid"
            " WHERE relkind IN ('r', 'p', 'v') AND attname = 'conversation_id'"
            " AND relnamespace = current_schema()::regnamespace"
        )
        with store.reading() as connection:
            relations = list(connection.execute(names).scalars())
            for name in relations:
                assert [] == connection.execute(text(f"SELECT * FROM {name}")).all()
        assert {"events", "timeline_items", "conversations", "directory"} <= {*relations}
        with ada.reading() as connection:
            for name in relations:
                found = connection.execute(text(f"SELECT DISTINCT conversation_id FROM {name}"))
                assert {*found.scalars()} <= {of_ada}
            shown = connection.execute(text("SELECT text FROM timeline_items")).scalars().all()
            assert "apple" in shown
    assert [(of_ada,)] == as_ada(url, "SELECT DISTINCT conversation_id FROM events")
    as_ada(url, f"UPDATE conversations SET writer_epoch = 99 WHERE conversation_id = '{of_bob}'")
    as_ada(url, "UPDATE projections SET cursor = NULL")
    for statement in (
        "UPDATE conversations SET user_id = 'bob'",
        f"INSERT INTO writer_leases VALUES ('{of_bob}', 's', 'p', 'w', now(), now())",
        f"UPDATE events SET conversation_id = '{of_bob}' WHERE version = 1",
    ):
        with pytest.raises(psycopg.Error):
            as_ada(url, statement)
    with EventStore.open(postgres_url) as upkeep:
        assert 0 == run("verify", url=postgres_url).status
        with upkeep.reading() as connection:
            epochs = connection.execute(text("SELECT writer_epoch FROM conversations"))
            assert {0} == {*epochs.scalars()}


def test_upkeep_sees_all(url: str, postgres_url: str) -> None:
    """Worker, rebuild, comparison: of the tables' owner; new tables are secured as well."""
    with EventStore.open(url, migrate=False) as store, EventStore.open(postgres_url) as upkeep:
        ada, bob = store.for_owner(user_id="ada"), store.for_owner(user_id="bob")
        talk(ada, "apple"), talk(bob, "berry")
        worker.run(upkeep, once=True)
        assert compare(upkeep).ok
        rebuild(upkeep)
        talk(store.for_owner(user_id="eve"), "elder")
        assert ["apple", "apple!"] * 2 == seen(ada, "apple")
        assert ["berry", "berry!"] * 2 == seen(bob, "berry")
        with store.reading() as connection:
            assert [] == connection.execute(text("SELECT * FROM timeline_items")).all()
        assert compare(upkeep).ok
    checked = {
        each["name"]: each for each in run("doctor", "--json", url=postgres_url).document["checks"]
    }
    assert ("ok", True) == (
        checked["row security"]["status"],
        "on" in checked["row security"]["found"],
    )


def test_it_is_taken_off_again(url: str, postgres_url: str) -> None:
    """Then every login sees all, as before."""
    with EventStore.open(url, migrate=False) as store:
        talk(store.for_owner(user_id="ada"), "apple")
    assert 0 == run("db", "unsecure", url=postgres_url).status
    with EventStore.open(url, migrate=False) as store:
        assert 1 == len(Views(store).conversations())
    found = run("doctor", "--json", url=postgres_url).document["checks"]
    assert ["off"] == [each["found"][:3] for each in found if each["name"] == "row security"]


def test_behind_a_pooler(url: str) -> None:
    """What a transaction says ends with it, so that the next one of the connection says its own."""
    with EventStore.open(
        f"{url}{'&' if '?' in url else '?'}pooler=transaction", migrate=False
    ) as store:
        for name in ("ada", "bob"):
            talk(store.for_owner(user_id=name), name)
        for name in ("ada", "bob"):
            assert [name, f"{name}!"] * 2 == seen(store.for_owner(user_id=name), name)
        with store.reading() as connection:
            assert [] == connection.execute(text("SELECT * FROM events")).all()


def test_in_a_schema_whose_name_needs_quotes(postgres_url: str, login: str) -> None:
    """The commands, the check and the store find their tables there."""
    own = make_url(postgres_url).update_query_dict({"schema": "the store's"})
    theirs = own.set(username=login, password="secret")
    for command in (("db", "upgrade"), ("db", "grant", login), ("db", "secure")):
        done = run(*command, url=own.render_as_string(hide_password=False))
        assert (0, "") == (done.status, done.err)
    with EventStore.open(theirs, migrate=False) as store:
        ada, bob = store.for_owner(user_id="ada"), store.for_owner(user_id="bob")
        of_ada = talk(ada, "apple")
        assert ["apple", "apple!"] * 2 == seen(ada, "apple")
        with pytest.raises((ConversationNotFound, OwnerMismatch)):
            bob.get(of_ada)
    checks = run("doctor", "--json", url=own.render_as_string(hide_password=False)).document
    assert ["ok"] * 2 == [
        each["status"] for each in checks["checks"] if each["name"] in ("row security", "size")
    ]


def test_on_an_event_loop_too(url: str) -> None:
    """Appends of several owners' tasks do not get into each other's transactions."""

    async def one(store: AsyncEventStore, name: str) -> list[str]:
        mine = store.for_owner(user_id=name)
        async with await AsyncConversation.start(mine) as conversation:
            for _ in range(3):
                async with conversation.turn(name):
                    pass
        return [event.type async for event in mine.read(conversation.id)]

    async def main() -> list[list[str]]:
        async with await AsyncEventStore.open(url, migrate=False) as store:
            return await asyncio.gather(*(one(store, f"user-{n}") for n in range(5)))

    assert {12} == {len(each) for each in asyncio.run(main())}


def test_in_forked_children_too(url: str, postgres_url: str, programs: Programs) -> None:
    """They use connections of their own: the bound store kept its parent's, which were closed."""
    done = programs.run("-m", "tests.failures.forking", "bound", url)

    told = json.loads(done.stdout.splitlines()[-1])
    with EventStore.open(postgres_url) as store:
        assert [EACH] * 3 == [len(list(store.read(cid))) for cid in told], done.stderr


def test_sqlite_has_none(sqlite_url: str) -> None:
    """And says so."""
    assert 0 == run("db", "upgrade", url=sqlite_url).status
    done = run("db", "secure", url=sqlite_url)
    assert (2, True) == (done.status, "SQLite has no row-level security" in done.err)


def test_what_an_owner_may_do_is_done_to_their_own_alone(url: str) -> None:
    """Another's conversation is neither appended to, erased nor begun again; their own is."""
    with EventStore.open(url, migrate=False) as store:
        ada, bob = store.for_owner(user_id="ada"), store.for_owner(user_id="bob")
        of_ada, of_bob = talk(ada, "apple"), talk(bob, "berry")
        before = bob.get(of_bob).version
    # One that has not seen whose it is, so that the database alone refuses.
    with EventStore.open(url, migrate=False) as store:
        ada, bob = store.for_owner(user_id="ada"), store.for_owner(user_id="bob")
        for attempt in (
            lambda: ada.append(of_bob, [UserMessage.text("x")]),
            lambda: ada.erase(of_bob, reason="asked"),
            lambda: ada.raise_writer_epoch(of_bob),
            lambda: Conversation.start(ada, conversation_id=of_bob),
            lambda: Conversation.fork(ada, of_bob),
        ):
            with pytest.raises((ConversationNotFound, OwnerMismatch)):
                attempt()
        assert before == bob.get(of_bob).version
        assert bob.verify(of_bob).ok
        with ada.transaction() as connection:
            assert 1 == connection.execute(text("SELECT count(*) FROM conversations")).scalar()
            ada.append(of_ada, [UserMessage.text("within")], connection=connection)
        with Conversation.fork(ada, of_ada) as fork, fork.turn("more") as turn:
            turn.context()
        assert "apple" in [item.text for item in Views(ada).timeline(fork.id)]
        ada.erase(of_ada, reason="asked")
        assert "apple" not in [item.text for item in Views(ada).timeline(fork.id)]
        assert ada.verify(of_ada).ok


def test_the_archive(url: str, postgres_url: str, tmp_path: Path) -> None:
    """An owner's login sees its own files, and neither moves, restores nor begins anything."""
    moment = timedelta(microseconds=1)
    with EventStore.open(url, migrate=False) as store, EventStore.open(postgres_url) as whole:
        ada, bob = store.for_owner(user_id="ada"), store.for_owner(user_id="bob")
        of_ada = talk(ada, "apple")
        talk(bob, "berry")
        with pytest.raises(OwnerMismatch):
            store.archive(tmp_path, inactive_for=moment)
        assert 2 == whole.archive(tmp_path, inactive_for=moment).conversations
        assert [of_ada] == [each.conversation_id for each in ada.archived()]
        assert [] == store.archived()
        with pytest.raises(ConversationArchived):
            ada.append(of_ada, [UserMessage.text("again")])
        with pytest.raises(ConversationArchived):
            Views(ada).timeline(of_ada)
        for call in (ada.restore, lambda cid: ada.erase(cid, reason="asked for")):
            with pytest.raises(NotWritable, match="the tables' owner may"):
                call(of_ada)
        whole.restore(of_ada)
        assert ["apple", "apple!"] * 2 == seen(ada, "apple")
        assert 1 == len([*tmp_path.iterdir()])
