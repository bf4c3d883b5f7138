"""Waits for PostgreSQL: none lasts because a buffer is full, and none lasts for ever.

The driver waits only to read after a pipeline's last statement, also if part of it is unsent: the
commit of a fold of 8 MB hung, with its conversation locked (psycopg, issues 604 and 685).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from agent_eventstore import AsyncEventStore, EventStore, events, new_id
from eventstore.errors import CannotConnect, DatabaseBusy, ServerSilent
from eventstore.sql import waits
from eventstore.sql.migrate import schema_lock
from projections import Views, worker
from projections.upkeep import rebuild
from tests.exhaustive import partly
from tests.postgres import PostgresServer, fresh_database, place_of_many_files

Way = Literal["socket", "tcp"]

SIZES = [0.1, 0.2, 0.5, 1, 2, 4, 8, 16]
"""Megabytes."""
QUICK = [2]
WAYS = pytest.mark.parametrize("way", ["socket", "tcp"])
MEGABYTES = pytest.mark.parametrize("size", partly([*QUICK, *(s for s in SIZES if s not in QUICK)]))


@pytest.fixture(scope="module")
def server() -> Iterator[dict[Way, str]]:
    """Give the URLs of a server that listens to both kinds of sockets."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {"listen_addresses": "127.0.0.1", "port": str(port)}
    with PostgresServer(settings, directory=place_of_many_files()) as running:
        by_socket = make_url(running.url()).set(port=port)
        by_tcp = by_socket.set(host="127.0.0.1", query={})
        urls = {"socket": by_socket, "tcp": by_tcp}
        yield {way: url.render_as_string(hide_password=False) for way, url in urls.items()}  # type: ignore[misc]


@pytest.fixture
def url(server: dict[Way, str], way: Way) -> Iterator[str]:
    """Give the URL of a new database, by either kind of socket."""
    with fresh_database(server[way]) as url:
        yield url


@contextmanager
def ending(seconds: float = 120) -> Iterator[None]:
    """Fail a test that hangs, in place of all tests after it."""

    def fail(*_: Any) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def random_text(megabytes: float) -> str:
    """Return words that no compression makes smaller than half."""
    return " ".join(secrets.token_hex(8) for _ in range(int(megabytes * 1e6 / 17)))


def impatient(url: str, **limits: str) -> str:
    """Return the URL with a short limit for silence."""
    query = {"response_timeout": "500ms", **limits}
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


@WAYS
@MEGABYTES
def test_a_pipeline_commits_a_large_row(url: str, size: float) -> None:
    """A transaction that ends with a large parameter, unanswered until its commit, ends."""
    with EventStore.open(url) as store, ending():
        with store.writing() as connection:
            connection.execute(text("CREATE TABLE notes (note text)"))
        for _ in range(3):
            with store._driver_transaction(write=True) as driver:
                driver.raw.execute("INSERT INTO notes VALUES (%s)", [random_text(size)])
        with store.reading() as connection:
            assert connection.execute(text("SELECT count(*) FROM notes")).scalar() == 3


@WAYS
@MEGABYTES
@pytest.mark.parametrize("rows", [2, 50])
def test_many_large_rows_in_one_pipeline(url: str, size: float, rows: int) -> None:
    """Statements of together more than any buffer, of which none is answered before the last."""
    with EventStore.open(url) as store, ending():
        with store.writing() as connection:
            connection.execute(text("CREATE TABLE notes (note text)"))
        note = random_text(size / rows)
        with store._driver_transaction(write=True) as driver:
            for _ in range(rows):
                driver.raw.execute("INSERT INTO notes VALUES (%s)", [note])
        with store._driver_transaction(write=True) as driver:
            driver.raw.cursor().executemany("INSERT INTO notes VALUES (%s)", [[note]] * rows)
        with store.reading() as connection:
            assert connection.execute(text("SELECT count(*) FROM notes")).scalar() == 2 * rows


@WAYS
@MEGABYTES
def test_a_pipeline_rolls_back_a_large_row(url: str, size: float) -> None:
    """A transaction that fails behind a large parameter ends, and leaves nothing."""
    with EventStore.open(url) as store, ending():
        with store.writing() as connection:
            connection.execute(text("CREATE TABLE notes (note text)"))
        with pytest.raises(ZeroDivisionError), store._driver_transaction(write=True) as driver:  # noqa: PT012 - the order
            driver.raw.execute("INSERT INTO notes VALUES (%s)", [random_text(size)])
            raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError), store._driver_transaction(write=True) as driver:  # noqa: PT012 - the order
            driver.raw.execute("INSERT INTO notes VALUES (%s)", [random_text(size)])
            driver.raw.rollback()
            raise ZeroDivisionError
        with store.reading() as connection:
            assert connection.execute(text("SELECT count(*) FROM notes")).scalar() == 0


@WAYS
@MEGABYTES
def test_a_refused_large_row_in_a_pipeline(url: str, size: float) -> None:
    """A large statement that the server refuses before it is sent whole is an error, not a hang."""
    with EventStore.open(url) as store, ending():
        with (
            pytest.raises(Exception, match="absent"),
            store._driver_transaction(write=True) as driver,
        ):
            driver.raw.execute("INSERT INTO absent VALUES (%s)", [random_text(size)])
        store.append(new_id(), [events.UserMessage.text("hello")])


@WAYS
@MEGABYTES
def test_a_large_message_is_appended_folded_and_rebuilt(url: str, size: float) -> None:
    """Every path that pipelines ends with a large message, and reads give it back."""
    words, conversation_id = random_text(size), new_id()
    with EventStore.open(url) as store, ending(500):
        store.append(conversation_id, [events.UserMessage.text(words)])
        views = Views(store)
        request = views.context(conversation_id, max_tokens=10**8, mode=None)
        assert words in str(request.messages[-1])
        store.append(conversation_id, [events.UserMessage.text(words)])
        worker.run(store, once=True)
        rebuild(store)
        assert [item.text for item in views.timeline(conversation_id)] == [words, words]


@WAYS
def test_notices_while_rows_are_copied(url: str) -> None:
    """A server that sends notices for rows it is given does not wait for a client that writes."""
    with EventStore.open(url) as store, ending():
        with store.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE noisy (note text)")
            connection.exec_driver_sql(
                "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE NOTICE '%%', repeat('x', 10000); RETURN new; END $$"
            )
            connection.exec_driver_sql(
                "CREATE TRIGGER shouts BEFORE INSERT ON noisy FOR EACH ROW EXECUTE FUNCTION shout()"
            )
        rows = [("y" * 10_000,)] * 2_000
        with store._driver_transaction(write=True, pipelined=False) as driver:
            driver.backend.load(driver.raw.cursor(), "noisy", {"note": "text"}, rows)
        with store.reading() as connection:
            assert connection.execute(text("SELECT count(*) FROM noisy")).scalar() == 2_000


@contextmanager
def stopped(*processes: int) -> Iterator[None]:
    """Stop processes of the server: they answer nothing, and their sockets stay open."""
    for each in processes:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in processes:
            with suppress(ProcessLookupError):  # one that had ended, and was waited for only now
                os.kill(each, signal.SIGCONT)


@WAYS
@pytest.mark.parametrize("size", [0.001, 2])
def test_a_server_that_goes_silent_in_a_transaction(url: str, size: float) -> None:
    """What waits for a stopped process of the server fails, and says so; then the store goes on."""
    conversation_id, message = new_id(), events.UserMessage.text(random_text(size))
    with EventStore.open(impatient(url)) as store:
        with ending(), pytest.raises(ServerSilent, match="SELECT version"):  # noqa: PT012 - the order
            with store.transaction() as connection:
                pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
                with stopped(pid):
                    store.append(conversation_id, [message], connection=connection)
        assert store.append(conversation_id, [message]).version == 1
        assert [each.data for each in store.read(conversation_id)] == [message]


@WAYS
def test_a_server_that_goes_silent_before_a_commit(url: str) -> None:
    """The error of a commit that waited says that it was the commit."""
    with EventStore.open(impatient(url)) as store, ExitStack() as stack:
        with (  # noqa: PT012 - the order
            ending(),
            pytest.raises(ServerSilent, match="COMMIT, after 'DELETE FROM writer_leases"),
        ):
            with store._driver_transaction(write=True, pipelined=False) as driver:
                driver.raw.execute("DELETE FROM writer_leases")
                stack.enter_context(stopped(driver.raw.info.backend_pid))
        assert store.append(new_id(), [events.UserMessage.text("hello")]).version == 1


@WAYS
def test_a_connection_that_went_silent_in_the_pool(url: str) -> None:
    """A connection that is silent when it is taken is replaced, and the call succeeds."""
    with EventStore.open(impatient(url), pool_size=1) as store:
        with store._driver_transaction(write=True) as driver:
            pid = driver.raw.info.backend_pid
        with ending(), stopped(pid):
            assert store.append(new_id(), [events.UserMessage.text("hello")]).version == 1


def test_a_server_that_is_stopped_as_a_whole(private_postgres: PostgresServer) -> None:
    """Without any answer, also to a new connection, calls end with the time to connect."""
    url = impatient(private_postgres.url(), connect_timeout="2")
    with EventStore.open(url) as store:
        conversation_id, found = (
            new_id(),
            private_postgres.execute("SELECT pid FROM pg_stat_activity"),
        )
        postmaster = private_postgres.pid
        assert postmaster is not None
        alive = [pid for (pid,) in found if Path(f"/proc/{pid}").exists()]
        with ending(), stopped(postmaster, *alive), pytest.raises(CannotConnect):
            store.append(conversation_id, [events.UserMessage.text("hello")])
        assert store.append(conversation_id, [events.UserMessage.text("hello")]).version == 1


@WAYS
def test_what_a_given_up_statement_had_locked(url: str) -> None:
    """The locks of a statement that is given up are free at once, because it is cancelled."""
    conversation_id, message = new_id(), events.UserMessage.text("hello")
    with EventStore.open(url) as other, EventStore.open(impatient(url)) as store:
        other.append(conversation_id, [message])
        with ending(), pytest.raises(OperationalError, match="SELECT pg_sleep"):  # noqa: PT012 - the order
            with store.transaction() as connection:
                store.append(conversation_id, [message], connection=connection)
                connection.execute(text("SELECT pg_sleep(600)"))
        assert other.append(conversation_id, [message]).version == 2


def test_an_asynchronous_store_before_a_silent_server(postgres_url: str) -> None:
    """Its calls fail as those of its twin do, and it closes."""
    message = events.UserMessage.text("hello")

    async def append() -> None:
        async with await AsyncEventStore.open(impatient(postgres_url)) as store:
            with pytest.raises(ServerSilent):  # noqa: PT012 - the order
                async with store.transaction() as connection:
                    pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
                    with stopped(pid):
                        await store.append(new_id(), [message], connection=connection)
            await store.append(new_id(), [message])

    with ending():
        asyncio.run(append())


def test_a_silent_server_on_the_products_connections(postgres_url: str) -> None:
    """A connection of the product's engine waits no longer, and has its own class afterwards."""
    engine: Engine = create_engine(postgres_url, pool_size=1, max_overflow=0)
    with closing(engine.raw_connection()) as pooled:
        kind: Any = type(pooled.dbapi_connection)
    with EventStore.from_engine(engine) as store:
        with closing(engine.raw_connection()) as pooled:
            assert type(pooled.dbapi_connection) is kind
            assert "statement" not in vars(pooled.dbapi_connection)
        with ending(), store._driver_transaction(write=True) as driver:
            assert type(driver.raw) is not kind
            assert driver.raw.silence_s == 305
    engine.dispose()


def test_long_statements_within_the_limit(postgres_url: str) -> None:
    """A statement that is silent for less than the limit is not disturbed."""
    with EventStore.open(impatient(postgres_url, response_timeout="60s")) as store:
        with store.reading() as connection:
            assert connection.execute(text("SELECT 1 FROM pg_sleep(0.7)")).scalar() == 1


def test_a_slow_change_of_the_schema(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A change of the schema may take longer than the limit; that it does is logged."""
    with EventStore.open(impatient(postgres_url)) as store, caplog.at_level(logging.WARNING):
        with ending(), schema_lock(store.engine) as connection:
            connection.exec_driver_sql("SELECT pg_sleep(1.2)")
    assert "still_waiting_for_server" in caplog.text
    assert "pg_sleep" in caplog.text


def test_a_change_of_the_schema_ends_too(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even what may take long is given up in the end."""
    monkeypatch.setattr(waits, "_LONG_S", 1.0)
    with EventStore.open(impatient(postgres_url)) as store:
        with ending(), pytest.raises(ServerSilent), schema_lock(store.engine) as connection:
            connection.exec_driver_sql("SELECT pg_sleep(600)")


def test_a_lock_is_waited_for_longer_than_silence(postgres_url: str) -> None:
    """By default the server says itself that a lock was not free in time."""
    conversation_id = new_id()
    url = make_url(postgres_url).update_query_dict({"lock_timeout": "1s"})
    with EventStore.open(url) as store, EventStore.open(url) as other:
        store.append(conversation_id, [events.UserMessage.text("hello")])
        with store.transaction() as connection:
            store.append(conversation_id, [events.UserMessage.text("a")], connection=connection)
            with pytest.raises(DatabaseBusy):
                other.append(conversation_id, [events.UserMessage.text("b")])


@pytest.mark.parametrize(
    ("query", "limit_s"),
    [
        ({}, 305.0),
        ({"lock_timeout": "10min"}, 900.0),
        ({"lock_timeout": "0"}, float("inf")),
        ({"response_timeout": "2s"}, 2.0),
        ({"response_timeout": "0"}, float("inf")),
    ],
)
def test_the_limit(postgres_url: str, query: dict[str, str], limit_s: float) -> None:
    """Unless it is set, the limit leaves the server the time that it may wait for a lock."""
    with EventStore.open(make_url(postgres_url).update_query_dict(query)) as store:
        with store._driver_transaction(write=True) as driver:
            assert driver.raw.silence_s == limit_s


def test_a_roles_own_patience_with_locks(fresh_postgres_url: str) -> None:
    """A lock timeout of the database, which the store leaves as it is, counts as the URL's does."""
    name = make_url(fresh_postgres_url).database
    with psycopg.connect(fresh_postgres_url.replace("+psycopg", ""), autocommit=True) as plain:
        plain.execute(f"ALTER DATABASE \"{name}\" SET lock_timeout TO '20min'")
        try:
            with (
                EventStore.open(fresh_postgres_url) as store,
                store._driver_transaction(write=True) as driver,
            ):
                assert driver.raw.silence_s == 1500
        finally:
            plain.execute(f'ALTER DATABASE "{name}" RESET lock_timeout')


def test_a_statement_that_waited_is_named_without_its_values(postgres_url: str) -> None:
    """The message of the error has no literal of a statement, which may be part of a payload."""
    with EventStore.open(impatient(postgres_url)) as store:
        with ending(), pytest.raises(ServerSilent) as raised, store.reading() as connection:
            connection.exec_driver_sql("SELECT 'secret', pg_sleep(600)")
    assert "secret" not in str(raised.value)


def test_other_threads_go_on_beside_a_silent_connection(postgres_url: str) -> None:
    """A connection that is given up leaves the store's other connections in use."""
    with EventStore.open(impatient(postgres_url, response_timeout="2s"), pool_size=2) as store:
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                with store.reading() as connection:
                    connection.execute(text("SELECT pg_sleep(600)"))
            except ServerSilent as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        conversation_id = new_id()
        while thread.is_alive():
            store.append(conversation_id, [events.UserMessage.text("hello")])
        thread.join()
        assert len(failed) == 1
        assert store.append(conversation_id, [events.UserMessage.text("last")]).version > 1


def test_a_connection_whose_server_has_just_restarted(private_postgres: PostgresServer) -> None:
    """It was used a moment ago, and is replaced all the same: no call fails."""
    with EventStore.open(private_postgres.url()) as store:
        conversation_id = new_id()
        for number in range(3):
            store.append(conversation_id, [events.UserMessage.text("hello")])
            private_postgres.restart("immediate")
            assert store.stream(conversation_id) == conversation_id
            assert store.get(conversation_id).version == number + 1
