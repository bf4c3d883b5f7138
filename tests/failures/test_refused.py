"""What the server refuses for good: told apart from a lost connection, and not tried again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from agent_eventstore.conversation import Conversation
from eventstore import EventStore, new_id
from eventstore.errors import NotWritable, StatementRefused
from eventstore.events import UserMessage

CODES = ("22003", "22P05", "23505", "42703", "42804", "53200", "53400", "54000", "54001")
_REFUSING = """
    CREATE SEQUENCE tried;
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM nextval('tried');
        RAISE EXCEPTION 'index row size 6016 exceeds maximum' USING ERRCODE = '54000';
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()
    """


@pytest.fixture
def store(postgres_url: str) -> Iterator[EventStore]:
    """Give a store on PostgreSQL."""
    with EventStore.open(postgres_url) as store:
        yield store


def _raise(store: EventStore, code: str) -> None:
    with store.writing() as connection:
        connection.execute(
            text(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$")
        )


@pytest.mark.parametrize("code", CODES)
def test_what_waiting_does_not_mend(store: EventStore, code: str) -> None:
    """A name too long for an index (54000) was `CannotConnect`, and waited for again and again."""
    with pytest.raises(Exception, match="no") as caught:
        _raise(store, code)
    assert isinstance(caught.value, StatementRefused)
    assert code == caught.value.code


def test_a_full_disk_is_itself(store: EventStore) -> None:
    """It is of class 53 as well, and has an error of its own."""
    with pytest.raises(NotWritable, match="disk is full"):
        _raise(store, "53100")


def test_a_recorder_tries_once(store: EventStore) -> None:
    """It neither waits for the server, nor keeps the fact to fail with it for ever."""
    conversation = Conversation.start(store, mode="chat")
    with store.writing() as connection:
        connection.exec_driver_sql(_REFUSING)
    with pytest.raises(StatementRefused, match="54000: index row size 6016"):
        conversation.switch_mode("agent")
    with store.writing() as connection:
        # Together with what others append, then by itself.
        assert 2 == connection.execute(text("SELECT last_value FROM tried")).scalar()
        connection.exec_driver_sql("DROP TRIGGER refuse ON events")
    conversation.switch_mode("agent")
    assert "mode_switch" == list(store.read(conversation.id))[-1].type


def test_a_number_that_no_database_counts_to(database_url: str) -> None:
    """SQLite's driver raised OverflowError, PostgreSQL's its own DataError."""
    with EventStore.open(database_url) as store:
        with pytest.raises(StatementRefused) as caught:
            store.append("t", UserMessage.text("x"), parent=(new_id(), 2**63))
        assert "22003" == caught.value.code
