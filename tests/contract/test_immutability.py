"""Immutability: the database itself refuses to change events, whoever asks."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore
from tests.contract.facade import say
from tests.contract.plain import REFUSED, PlainClient

STATEMENTS = {
    "update": "UPDATE events SET type = 'notebook'",
    "update one": "UPDATE events SET meta = '{}' WHERE version = 2",
    "update to the same": "UPDATE events SET type = type",
    "erase without an erasure": "UPDATE events SET data = NULL, salt = NULL",
    "erase the data alone": "UPDATE events SET data = NULL",
    "delete": "DELETE FROM events",
    "delete one": "DELETE FROM events WHERE version = 2",
}
SQLITE = {
    "replace": "REPLACE INTO events SELECT * FROM events",
    "insert or replace": "INSERT OR REPLACE INTO events SELECT * FROM events WHERE version = 1",
    "replace by version": "INSERT OR REPLACE INTO events SELECT NULL, conversation_id, version, "
    "'00000000-0000-7000-8000-000000000000', type, 1, recorded_at, '{}', '{}', salt, "
    "data_digest, chain FROM events WHERE version = 1",
    "replace by event id": "INSERT OR REPLACE INTO events SELECT NULL, conversation_id, 9, "
    "event_id, type, 1, recorded_at, '{}', '{}', salt, data_digest, chain FROM events",
    "replace by position": "INSERT OR REPLACE INTO events SELECT position, conversation_id, 9, "
    "'00000000-0000-7000-8000-000000000000', type, 1, recorded_at, '{}', '{}', salt, "
    "data_digest, chain FROM events WHERE version = 1",
    "upsert": "INSERT INTO events SELECT * FROM events WHERE true "
    "ON CONFLICT DO UPDATE SET data = '{}'",
    "update or replace": "UPDATE OR REPLACE events SET version = 1 WHERE version = 2",
}
POSTGRESQL = {
    "truncate": "TRUNCATE events",
    "truncate cascade": "TRUNCATE events, conversations CASCADE",
    "upsert": "INSERT INTO events OVERRIDING SYSTEM VALUE SELECT * FROM events "
    "ON CONFLICT (conversation_id, version) DO UPDATE SET data = '{}'",
    "merge": "MERGE INTO events USING (SELECT 1) s ON version = 2 WHEN MATCHED THEN DELETE",
}


def refuses(store: EventStore, client: PlainClient, cid: UUID, statement: str) -> None:
    """Assert that a statement is refused by a trigger and changes nothing."""
    store.append(cid, say("1", "2"))
    before = client.execute("SELECT * FROM events ORDER BY version")

    with pytest.raises(REFUSED, match="events are immutable"):
        client.execute(statement)

    assert before == client.execute("SELECT * FROM events ORDER BY version")


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_change_is_refused(database_url: str, cid: UUID, statement: str) -> None:
    """A plain SQL client cannot change or take away what was recorded."""
    with EventStore.open(database_url) as store, PlainClient(database_url) as client:
        refuses(store, client, cid, statement)


@pytest.mark.parametrize("statement", SQLITE.values(), ids=SQLITE)
def test_change_is_refused_by_sqlite(sqlite_url: str, cid: UUID, statement: str) -> None:
    """Nor by SQLite's ways to delete a row while inserting one."""
    with EventStore.open(sqlite_url) as store, PlainClient(sqlite_url) as client:
        refuses(store, client, cid, statement)


@pytest.mark.parametrize("statement", POSTGRESQL.values(), ids=POSTGRESQL)
def test_change_is_refused_by_postgresql(postgres_url: str, cid: UUID, statement: str) -> None:
    """Nor by PostgreSQL's."""
    with EventStore.open(postgres_url) as store, PlainClient(postgres_url) as client:
        refuses(store, client, cid, statement)


@pytest.mark.parametrize(
    "change",
    [
        "data = NULL, salt = NULL, type = 'notebook'",
        "data = NULL, salt = NULL, meta = '{\"turn\":2}'",
        "data = NULL, salt = NULL, version = 7",
        "data = NULL, salt = NULL, chain = data_digest",
        "data = NULL",
        "salt = NULL",
        "data = '{}'",
        "data = '{}', salt = NULL",
    ],
)
def test_an_erasure_opens_the_door_to_nothing_else(
    database_url: str, cid: UUID, change: str
) -> None:
    """Where an erasure is recorded, data and salt may go together, and nothing may change."""
    with EventStore.open(database_url) as store, PlainClient(database_url) as client:
        store.append(cid, say("1"))
        store.erase(cid, reason="test", versions=[])

        with pytest.raises(REFUSED, match="UPDATE refused"):
            client.execute(f"UPDATE events SET {change} WHERE version = 1")


def test_an_erasure_of_one_conversation_is_none_of_another(database_url: str, cid: UUID) -> None:
    """The door is open for the conversation with the erasure only."""
    with EventStore.open(database_url) as store, PlainClient(database_url) as client:
        store.append(cid, say("1"))
        store.append(other := UUID(int=cid.int ^ 1), say("1"))
        store.erase(other, reason="test")

        with pytest.raises(REFUSED, match="UPDATE refused"):
            client.execute(
                "UPDATE events SET data = NULL, salt = NULL WHERE conversation_id = ?", cid
            )


def test_an_erasure_of_one_version_is_none_of_another(database_url: str, cid: UUID) -> None:
    """What no erasure has named stays, in the same conversation too."""
    with EventStore.open(database_url) as store, PlainClient(database_url) as client:
        store.append(cid, say("1", "2", "3"))
        store.erase(cid, reason="test", versions=[2])

        for version in (1, 3):
            with pytest.raises(REFUSED, match="UPDATE refused"):
                client.execute(
                    f"UPDATE events SET data = NULL, salt = NULL WHERE version = {version}"
                )


@pytest.mark.parametrize(
    "statement", ["DELETE FROM events", "UPDATE events SET type = 'x'", "TRUNCATE events"]
)
def test_a_session_that_says_it_replicates_is_refused(
    postgres_url: str, cid: UUID, statement: str
) -> None:
    """Ordinary triggers do not fire for such a session; these always do."""
    with EventStore.open(postgres_url) as store, PlainClient(postgres_url) as client:
        client.execute("SET session_replication_role = replica")
        refuses(store, client, cid, statement)
