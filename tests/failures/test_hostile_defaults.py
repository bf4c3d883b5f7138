"""Defaults of a role or a database that would take away what correctness rests on."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url, text

from agent_eventstore.conversation import Conversation
from eventstore import EventStore, new_id
from projections import Views
from tests.contract.facade import say, texts

HOSTILE = {
    "default_transaction_isolation": "serializable",
    "synchronous_commit": "off",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "TimeZone": "Asia/Kathmandu",
    "DateStyle": "SQL, DMY",
    "bytea_output": "escape",
    "extra_float_digits": "-5",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
}
SAFE = {
    "transaction_isolation": "read committed",
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "5min",
    "TimeZone": "UTC",
    "DateStyle": "ISO, DMY",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
}


@pytest.fixture
def postgres_url(fresh_postgres_url: str) -> str:
    """URL of a database of its own, whose defaults are hostile."""
    change(fresh_postgres_url, HOSTILE)
    return fresh_postgres_url


def change(url: str, defaults: dict[str, str]) -> None:
    """Set a database's defaults."""
    address = make_url(url).set(drivername="postgresql")
    conninfo = address.render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for name, value in defaults.items():
            change = sql.SQL("ALTER DATABASE {} SET {} = {}")
            connection.execute(
                change.format(
                    sql.Identifier(str(address.database)), sql.Identifier(name), sql.Literal(value)
                )
            )


def shown(execute: object) -> dict[str, str]:
    """Return the settings as a connection has them."""
    return {name: execute(f"SHOW {name}") for name in SAFE}  # type: ignore[operator]


@pytest.mark.parametrize("pooler", ["none", "transaction"])
def test_every_way_into_a_transaction(postgres_url: str, pooler: str) -> None:
    """The library's settings hold, and each kind of its transactions has the isolation it needs."""
    with EventStore.open(f"{postgres_url}&pooler={pooler}") as store:
        with store.reading() as connection:
            run = connection.exec_driver_sql
            assert shown(lambda show: run(show).scalar()) == SAFE
        for options in ({}, {"write": True}):
            with store._driver_transaction(**options) as driver:
                found = shown(lambda show, raw=driver.raw: raw.execute(show).fetchone()[0])
                rests = {"idle_in_transaction_session_timeout": "30s"} if options else {}
                assert found == SAFE | rests
        with store.reading(snapshot=True) as connection:
            found_level = connection.execute(text("SHOW transaction_isolation")).scalar()
            assert "repeatable read" == found_level
        with store.reading() as connection:  # what had the snapshot is as it was
            level = connection.execute(text("SHOW transaction_isolation")).scalar()
            assert "read committed" == level
        with store.transaction() as connection:
            resting = connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar()
            assert "5min" == resting


@pytest.mark.parametrize("pooler", ["none", "transaction"])
def test_a_conversation(postgres_url: str, pooler: str) -> None:
    """It is written, read and seen as ever."""
    with EventStore.open(f"{postgres_url}&pooler={pooler}") as store:
        conversation = Conversation.start(store, title="Größe — ½ ✓ \\n")
        with conversation.turn("naïve \\ ✓"):
            pass
        conversation.close()
        store.append(cid := new_id(), say("✓"))

        assert ["✓"] == texts(store.read(cid))
        assert store.verify().ok
        assert "naïve \\ ✓" in [item.text for item in Views(store).timeline(conversation.id)]


def test_what_an_administrator_has_chosen(postgres_url: str) -> None:
    """A stronger commit and tighter limits are kept; a weaker commit is for the URL to say."""
    mine = {"synchronous_commit": "remote_apply", "lock_timeout": "1s"}
    change(postgres_url, {**mine, "idle_in_transaction_session_timeout": "7s"})
    asked = ("synchronous_commit", "lock_timeout", "idle_in_transaction_session_timeout")

    def found(url: str) -> list[str | None]:
        with EventStore.open(url) as store, store.transaction() as connection:
            return [connection.execute(text(f"SHOW {name}")).scalar() for name in asked]

    assert ["remote_apply", "1s", "7s"] == found(postgres_url)
    lowered = "&synchronous_commit=local&lock_timeout=2min&idle_in_transaction_session_timeout=0"
    assert ["local", "2min", "0"] == found(postgres_url + lowered)


def test_sqlite(sqlite_url: str) -> None:
    """Each connection has the levels that the promises rest on, also where the file has others."""
    with EventStore.open(sqlite_url) as store:
        store.append(new_id(), say("1"))
        with store.writing() as connection:
            found = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("synchronous", "foreign_keys", "secure_delete", "fullfsync")
            }
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    assert {"synchronous": 2, "foreign_keys": 1, "secure_delete": 1, "fullfsync": 1} == found
    assert "wal" == mode
