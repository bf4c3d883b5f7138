"""The caller's own transaction: an append commits with it, and is rolled back with it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

from eventstore import AsyncEventStore, EventStore, NewEvent, new_id
from eventstore.errors import StatementRefused, UnsafeTransaction, WrongExpectedVersion
from eventstore.events import ToolResult
from tests.contract.facade import say, texts
from tests.postgres import fresh_database


@pytest.fixture
def own(shared_url: str) -> Iterator[EventStore]:
    """Give a synchronous store; a connection belongs to one thread."""
    with EventStore.open(shared_url) as store:
        yield store


@contextmanager
def closing_engine(url: str | URL) -> Iterator[Engine]:
    """Give an engine of the product's own."""
    engine = create_engine(make_url(url).difference_update_query(["schema"]))
    yield engine
    engine.dispose()


def test_nothing_is_seen_before_the_commit(own: EventStore, cid: UUID) -> None:
    """Until the caller commits, nobody else sees the event; then everybody does."""
    with own.transaction() as connection:
        done = own.append(cid, say("1"), connection=connection)
        during = list(own.read(cid))

    assert ([], list(done.events)) == (during, list(own.read(cid)))


def test_rollback_takes_everything_back(own: EventStore, cid: UUID) -> None:
    """Events, blobs and the conversation itself go when the caller rolls back."""
    large = ToolResult(call_id="1.0", content="x" * 100_000)
    with own.transaction() as connection:
        own.append(cid, [*say("1"), large], connection=connection)
        connection.rollback()

    with own.reading() as connection:
        counts = [
            connection.execute(
                text(f"SELECT count(*) FROM {table} WHERE conversation_id = '{cid}'")
            ).scalar()
            for table in ("events", "conversations", "blobs")
        ]
    assert [0, 0, 0] == counts


def test_errors_of_own_statements_are_left_as_they_are(own: EventStore, cid: UUID) -> None:
    """Who writes them knows what they mean; those of the append are the store's."""

    def fail(raised: list[BaseException]) -> None:
        with own.transaction() as connection:
            own.append(cid, say("1"), connection=connection)
            try:
                connection.execute(text("SELECT * FROM nowhere"))
            except DBAPIError as error:
                raised.append(error)
                raise

    raised: list[BaseException] = []
    with pytest.raises(DBAPIError) as caught:
        fail(raised)
    assert raised == [caught.value]
    assert [] == list(own.read(cid))


def test_errors_of_an_append_are_the_stores(own: EventStore, cid: UUID) -> None:
    """Also where the product has taken away what the append writes to."""

    def fail() -> None:
        with own.transaction() as connection:
            connection.execute(text("ALTER TABLE events RENAME TO moved"))
            own.append(cid, say("1"), connection=connection)

    with pytest.raises(StatementRefused) as caught:
        fail()
    assert isinstance(caught.value.__cause__, sqlite3.Error | psycopg.Error)
    assert [] == list(own.read(cid))


def test_a_transaction_that_an_error_has_ended_is_not_said_to_be_committed(
    own: EventStore, cid: UUID
) -> None:
    """PostgreSQL answers the commit of a broken transaction with a rollback, and no error."""

    def go_on() -> None:
        with own.transaction() as connection:
            own.append(cid, say("1"), connection=connection)
            if own.engine.dialect.name == "sqlite":
                connection.execute(text("ROLLBACK"))
            else:
                with suppress(DBAPIError):
                    connection.execute(text("SELECT * FROM nowhere"))

    with pytest.raises(UnsafeTransaction, match="nothing was committed"):
        go_on()
    assert [] == list(own.read(cid))


def test_two_appends_are_one_transaction(own: EventStore) -> None:
    """Several conversations are appended to together, or not at all."""
    one, two = new_id(), new_id()
    own.append(two, say("there already"))

    def append_both() -> None:
        with own.transaction() as connection:
            own.append(one, say("1"), connection=connection)
            own.append(two, say("2"), expected_version=0, connection=connection)

    with pytest.raises(WrongExpectedVersion):
        append_both()

    assert [] == list(own.read(one))


def test_a_conflict_leaves_the_transaction_usable(own: EventStore, cid: UUID) -> None:
    """The caller may catch the conflict and go on; what it did before is kept."""
    with own.transaction() as connection:
        own.append(cid, say("1"), connection=connection)
        with pytest.raises(WrongExpectedVersion):
            own.append(cid, say("no"), expected_version=7, connection=connection)
        own.append(cid, say("2"), expected_version=1, connection=connection)

    assert ["1", "2"] == texts(own.read(cid))


def test_the_next_append_goes_on_from_an_own_one(own: EventStore, cid: UUID) -> None:
    """Retries and versions know nothing of who owned the transaction."""
    events = [NewEvent(message, new_id()) for message in say("1", "2")]
    with own.transaction() as connection:
        first = own.append(cid, events, connection=connection)

    assert first == own.append(cid, events)
    assert 3 == own.append(cid, say("3"), expected_version=2).version
    assert own.verify(cid).ok


def test_every_commit_waits_for_the_disk(sqlite_url: str, cid: UUID) -> None:
    """A view that was written without waiting left its sync level behind: 41 of 80 power cuts."""
    levels = []
    watched: list[Connection] = []
    with EventStore.open(sqlite_url, pool_size=1) as store:

        @event.listens_for(store.engine, "commit")
        def look(connection: Connection) -> None:
            if connection not in watched:
                return
            found = connection.connection.cursor().execute("PRAGMA synchronous").fetchone()
            levels.append(found[0])

        for begin in (store.transaction, store.writing, store.engine.begin):
            with store.writing(durable=False):
                pass
            with begin() as connection:
                watched.append(connection)
                store.append(cid, say("1"), connection=connection)

    assert [2, 2, 2] == levels


def test_commits_that_do_not_wait_are_refused(sqlite_url: str, cid: UUID) -> None:
    """Also on a connection that the product has opened for itself."""
    with EventStore.open(sqlite_url) as store:
        with (
            store.writing(durable=False) as connection,
            pytest.raises(UnsafeTransaction, match="NORMAL"),
        ):
            store.append(cid, say("1"), connection=connection)
        with closing_engine(sqlite_url) as engine, engine.begin() as connection:
            connection.execute(text("PRAGMA synchronous=OFF"))
            connection.execute(text("UPDATE conversations SET version = version"))
            with pytest.raises(UnsafeTransaction, match="OFF"):
                store.append(cid, say("1"), connection=connection)

        assert [] == list(store.read(cid))


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_connection_to_another_database_is_refused(
    backend: str, sqlite_url: str, postgres_server_url: str, postgres_url: str, cid: UUID
) -> None:
    """Where that one is a store too, the event would stand there without a word."""
    with ExitStack() as stack:
        url, other = sqlite_url, f"{sqlite_url}.other"
        if backend == "postgresql":
            url, other = postgres_url, stack.enter_context(fresh_database(postgres_server_url))
        store = stack.enter_context(EventStore.open(url))
        wrong = stack.enter_context(EventStore.open(other))
        with wrong.transaction() as connection:
            with pytest.raises(UnsafeTransaction, match="but the store is in"):
                store.append(cid, say("1"), connection=connection)
            wrong.append(cid, say("2"), connection=connection)

        assert ["2"] == texts(wrong.read(cid))


def test_connection_without_a_transaction_is_refused(own: EventStore, cid: UUID) -> None:
    """SQLite would write it piece by piece, and PostgreSQL roll it back with the connection."""
    with (
        own.engine.connect() as connection,
        pytest.raises(UnsafeTransaction, match=r"store\.transaction"),
    ):
        own.append(cid, say("1"), connection=connection)
    with (
        closing_engine(own.engine.url) as engine,
        engine.connect() as connection,
        pytest.raises(UnsafeTransaction),
    ):
        own.append(cid, say("1"), connection=connection)

    assert [] == list(own.read(cid))


def test_asynchronous_transaction(shared_url: str, cid: UUID) -> None:
    """Its end commits, an error or a cancellation rolls back."""

    async def append_in_one(store: AsyncEventStore, said: str, error: type[Exception]) -> None:
        with suppress(error):
            async with (
                asyncio.timeout(0.05 if error is TimeoutError else None),
                store.transaction() as connection,
            ):
                await store.append(cid, say(said), connection=connection)
                if error is TimeoutError:
                    await asyncio.Event().wait()
                raise error

    async def append_all() -> list[str]:
        async with await AsyncEventStore.open(shared_url) as store:
            async with store.transaction() as connection:
                await store.append(cid, say("1"), connection=connection)
            await append_in_one(store, "2", TimeoutError)
            await append_in_one(store, "3", ZeroDivisionError)
            return texts([event async for event in store.read(cid)])

    assert ["1"] == asyncio.run(append_all())


def test_another_file_is_refused_too_if_the_url_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cid: UUID
) -> None:
    """Or the store in memory: the event was appended to the other database."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        urls = ("sqlite:///one.db", "sqlite://", "sqlite:///two.db")
        *own, other = [stack.enter_context(EventStore.open(url)) for url in urls]
        monkeypatch.chdir("/")
        for store in own:
            with other.transaction() as connection:
                with pytest.raises(UnsafeTransaction, match="but the store is in"):
                    store.append(cid, say("1"), connection=connection)

        assert [] == list(other.read(cid))
