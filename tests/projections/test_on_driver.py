"""Transactions on the driver's connection, as the messages[] view reads and folds in them."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from eventstore import EventStore
from eventstore.errors import StatementRefused
from eventstore.sql.backend import cursor


def one(store: EventStore, sql: str, **options: bool) -> object:
    """Return the single value that a query gives in a transaction of its own."""
    with store._driver_transaction(**options) as connection:
        run = cursor(connection)
        run.execute(sql)
        return run.fetchone()[0]


def note(store: EventStore, *numbers: int, error: Exception | None = None) -> None:
    """Insert numbers, no two of which may be equal, in one transaction; raise within it."""
    with store._driver_transaction(write=True, durable=False) as connection:
        for number in numbers:
            cursor(connection).execute(f"INSERT INTO noted VALUES ({number:d})")
        if error is not None:
            raise error


@pytest.fixture
def noting(store: EventStore) -> EventStore:
    """Give a store with a table for numbers."""
    with store.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE noted (number integer PRIMARY KEY)")
    return store


def test_what_failed_leaves_nothing_behind(noting: EventStore) -> None:
    """A statement that nobody fetches from fails when the block ends at the latest."""
    with pytest.raises(StatementRefused) as caught:
        note(noting, 1, 1)
    assert isinstance(caught.value.__cause__, sqlite3.IntegrityError | psycopg.IntegrityError)
    assert 0 == one(noting, "SELECT count(*) FROM noted")


def test_an_error_of_the_block_undoes_what_was_sent(noting: EventStore) -> None:
    """Also what the server has not been asked about yet."""
    with pytest.raises(LookupError):
        note(noting, 1, error=LookupError())
    assert 0 == one(noting, "SELECT count(*) FROM noted", write=True)


def test_what_is_set_for_a_transaction_ends_with_it(postgres_url: str) -> None:
    """A snapshot and a commit that does not wait are of one transaction, not of its connection."""
    with EventStore.open(postgres_url) as store:
        shown = "SELECT current_setting('transaction_isolation') || current_setting('{}')"
        sync = shown.format("synchronous_commit")
        usual = one(store, sync)
        assert "repeatable read" in str(one(store, sync, snapshot=True))
        assert "read committedoff" == one(store, sync, write=True, durable=False)
        assert usual == one(store, sync)
        with pytest.raises(StatementRefused, match="42P01"):
            one(store, "SELECT 1 FROM nowhere", snapshot=True)
        assert usual == one(store, sync)
