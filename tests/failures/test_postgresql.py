"""PostgreSQL in trouble: not there, not willing, or gone in the middle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url, text
from sqlalchemy.pool import QueuePool

from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import CannotConnect, NotWritable, StoreUnavailable
from tests.contract.facade import say, texts
from tests.postgres import fresh_database

PASSWORD = "s3cret-and-right"


def test_a_connection_that_cannot_be_given_back(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLAlchemy logged it with the whole traceback, and with what the driver quotes."""
    with EventStore.open(postgres_url) as store:
        lent = store.engine.raw_connection()
        cursor = lent.cursor()
        cursor.execute("SELECT pg_backend_pid(), 'my-words'")
        [[pid, _]] = cursor.fetchall()
        with administrator(postgres_url) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        lent.close()
        assert 1 == store.append(new_id(), say("hello")).version

    told = [each for each in caplog.records if each.name.startswith("eventstore.sql.pools")]
    [record] = [each for each in told if each.levelno >= logging.WARNING]
    assert (None, "WARNING") == (record.exc_info, record.levelname)
    assert "is discarded (" in record.getMessage()
    assert "\n" not in record.getMessage()


def administrator(url: str) -> psycopg.Connection:
    """Connect as the tests' own user."""
    conninfo = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(conninfo, autocommit=True)


@pytest.fixture
def role_url(postgres_url: str) -> Iterator[str]:
    """URL of the database for a role that may log in and read, and nothing else."""
    with reader_of(postgres_url) as url:
        yield url


@contextmanager
def reader_of(postgres_url: str) -> Iterator[str]:
    """Make a role that may log in and read; yield the database's URL for it."""
    name = f"reader_{uuid4().hex}"
    role = sql.Identifier(name)
    with administrator(postgres_url) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(PASSWORD))
        )
        connection.execute(sql.SQL("GRANT pg_read_all_data TO {}").format(role))
    url = make_url(postgres_url).set(username=name, password=PASSWORD)
    yield url.render_as_string(hide_password=False)
    with administrator(postgres_url) as connection:
        connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_wrong_password(role_url: str) -> None:
    """The server's reason is told, the password is not."""
    wrong = make_url(role_url).set(password="s3cret-but-wrong")

    with pytest.raises(CannotConnect, match="password authentication failed") as caught:
        EventStore.open(wrong)

    shown = f"{caught.value} {caught.value.url} {caught.value.details} {caught.value.__cause__}"
    assert "s3cret" not in shown
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)


def test_wrong_password_of_an_asynchronous_store(role_url: str) -> None:
    """The awaiting task meets the same error."""
    with pytest.raises(CannotConnect, match="password authentication failed"):
        asyncio.run(AsyncEventStore.open(make_url(role_url).set(password="wrong")))


def test_no_server() -> None:
    """Nobody listens at the port."""
    with pytest.raises(CannotConnect, match=r"127\.0\.0\.1"):
        EventStore.open("postgresql://somebody:s3cret@127.0.0.1:1/agent")


def test_no_such_database(postgres_url: str) -> None:
    """The missing database is named."""
    url = make_url(postgres_url).set(database="no_such_database")

    with pytest.raises(CannotConnect, match='"no_such_database" does not exist'):
        EventStore.open(url)


def test_role_that_may_only_read(postgres_url: str, role_url: str) -> None:
    """It reads and verifies; its append is refused with the server's reason."""
    cid = new_id()
    with EventStore.open(postgres_url) as store:
        store.append(cid, say("1"))

    with EventStore.open(role_url, migrate=False) as store:
        with pytest.raises(NotWritable, match=r"permission denied.*`eventstore db grant`"):
            store.append(cid, say("2"))
        assert ["1"] == texts(store.read(cid))
        assert store.verify().ok


def test_role_that_may_not_create_tables(postgres_server_url: str) -> None:
    """Opening a new database without the right to make tables is not a driver's error either."""
    with (
        fresh_database(postgres_server_url) as url,
        reader_of(url) as role_url,
        pytest.raises(NotWritable, match="permission denied"),
    ):
        EventStore.open(role_url)


@pytest.mark.parametrize(
    "write",
    [
        lambda store, cid: store.append(cid, say("2")),
        lambda store, cid: store.append(new_id(), say("2")),
        lambda store, cid: store.erase(cid, reason="test"),
        lambda store, cid: store.raise_writer_epoch(cid),
    ],
    ids=["append", "first append", "erase", "raise_writer_epoch"],
)
def test_read_only_store_refuses_writes(
    postgres_url: str, write: Callable[[EventStore, Any], Any]
) -> None:
    """A store that was opened for reading never writes, and says so."""
    cid = new_id()
    with EventStore.open(postgres_url) as store:
        store.append(cid, say("1"))

    with EventStore.open(postgres_url, read_only=True) as store:
        with pytest.raises(NotWritable):
            write(store, cid)
        assert ["1"] == texts(store.read(cid))


def test_connection_cut_in_a_transaction(postgres_url: str) -> None:
    """What the transaction had appended is gone, and the store is usable at once."""
    cid = new_id()
    with EventStore.open(postgres_url) as store, administrator(postgres_url) as other:

        def append_and_be_cut() -> None:
            with store.writing() as connection:
                store.append(cid, say("lost"), connection=connection)
                pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
                store.append(cid, say("never"), connection=connection)

        with pytest.raises(StoreUnavailable):
            append_and_be_cut()

        assert [] == list(store.read(cid))
        assert 1 == store.append(cid, say("found")).version


@pytest.mark.parametrize("asked", [{}, {"write": True}, {"snapshot": True}], ids=str)
def test_connection_closed_in_a_transaction(postgres_url: str, asked: dict[str, Any]) -> None:
    """The pool has its place back at once, and not when the garbage is collected."""
    with EventStore.open(postgres_url) as store:
        store._at_hand.close()

        def close_and_go_on() -> None:
            with store._driver_transaction(**asked) as connection:
                connection.raw.close()
                connection.raw.execute("SELECT 1")

        with pytest.raises(StoreUnavailable):
            close_and_go_on()
        assert isinstance(store.engine.pool, QueuePool)
        assert 0 == store.engine.pool.checkedout()
