"""PgBouncer in transaction mode: each transaction may have another session of the server's.

What was prepared in one session is not there in the next, what was set in one is met by another
client, and options at the start of a session are refused. With prepared statements two tool
results got lost so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from sqlalchemy import URL, text

from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore.errors import CannotConnect, NotWritable
from eventstore.sql.driver_errors import driver_error
from projections import Views, worker
from projections.upkeep import rebuild
from tests.contract.facade import say
from tests.integration.recording import Access, Recorder, ask, ask_for_tool, recorder
from tests.pgbouncer import PgBouncer, needs_pgbouncer
from tests.projections.support import expected, stored

pytestmark = needs_pgbouncer

TURNS = 4


@pytest.fixture(scope="module")
def pooler(postgres_server_url: str) -> Iterator[PgBouncer]:
    """Give a pooler with two connections to the server."""
    with PgBouncer(postgres_server_url) as running:
        yield running


@pytest.fixture
def pooled(pooler: PgBouncer, postgres_url: str) -> URL:
    """Give the URL of the test's own database by way of the pooler."""
    return pooler.url(postgres_url)


def converse(recording: Recorder) -> Conversation:
    """Hold a conversation with streams and tools, and leave it."""
    with recording.start() as conversation:
        for _ in range(TURNS):
            with conversation.turn("what is new?") as turn:
                with turn.tool(ask_for_tool(turn, query="x")) as tool:
                    tool.result({"found": "a" * 10})
                ask(turn)
    return conversation


@pytest.mark.parametrize("access", ["sync", "async"])
def test_conversations(pooled: URL, postgres_url: str, access: Access) -> None:
    """Two processes record, with two threads each; every event is there, and views are right."""
    plain, made = pooled.render_as_string(hide_password=False), []
    with ExitStack() as stack:
        stores = [stack.enter_context(EventStore.open(plain, pool_size=3)) for _ in range(2)]
        for store in stores:
            Views(store)

        def record() -> None:
            with recorder(plain, access, pool_size=2) as recording:
                made.append(converse(recording).id)

        threads = [threading.Thread(target=record) for _ in range(2)]
        for thread in threads:
            thread.start()
        for store in stores:
            worker.run(store, once=True)
        for thread in threads:
            thread.join()
        worker.run(stores[0], once=True)
        rebuild(stores[1])

        assert 2 == len(made)
        for cid in made:
            events = list(stores[0].read(cid))
            kinds = [event.type for event in events]
            assert [TURNS] * 3 == [
                kinds.count(kind) for kind in ("tool_call", "tool_result", "turn_end")
            ]
            assert 2 * TURNS == kinds.count("assistant_message")
            assert "session_end" == kinds[-1]
            assert expected(events) == stored(stores[1], cid)
        assert stores[1].verify().ok
        assert len(stores[0].read_all(limit=1000)) == sum(
            len(list(stores[1].read(cid))) for cid in made
        )


def test_settings_of_each_transaction(pooled: URL, postgres_url: str) -> None:
    """Every way into a transaction sets what correctness rests on, and leaves nothing behind."""
    ask_for = "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')"
    with EventStore.open(pooled.update_query_dict({"lock_timeout": "1234"})) as store:
        with store.transaction() as connection:
            assert ("on", "1234ms") == connection.execute(text(ask_for)).one()
        with store.writing(durable=False, patience_ms=50) as connection:
            assert ("off", "50ms") == connection.execute(text(ask_for)).one()
        with store._driver_transaction(write=True) as driver:
            assert ("on", "1234ms") == driver.raw.execute(ask_for).fetchone()
        with store._driver_transaction(snapshot=True) as driver:
            [(level,)] = driver.raw.execute("SHOW transaction_isolation").fetchall()
            assert "repeatable read" == level
    address = pooled.set(drivername="postgresql").render_as_string(hide_password=False)
    # What another client of the same pooler finds is what the server has by default.
    with psycopg.connect(address, prepare_threshold=None) as other:
        for _ in range(4):
            assert ("on", "0") == other.execute(ask_for.encode()).fetchone()
            other.commit()


def test_read_only(pooled: URL, postgres_url: str) -> None:
    """A store that may only read is opened, reads and writes nothing; it could not be opened."""
    with EventStore.open(pooled) as store, EventStore.open(pooled, read_only=True) as reader:
        cid = store.append(conversation_id := Conversation.start(store).id, say("1"))
        assert cid.version == len(list(reader.read(conversation_id)))
        assert Views(reader).timeline(conversation_id)
        with pytest.raises(NotWritable):
            reader.append(conversation_id, say("2"))


def test_told_by_the_url(pooled: URL, postgres_url: str) -> None:
    """A pooler that cannot be told apart is named in the URL; a direct way can be named too."""
    for url, first in ((postgres_url + "&pooler=transaction", True), (postgres_url, False)):
        with EventStore.open(url) as store, store.reading() as connection:
            assert first == (connection.info["eventstore_each_transaction"] is not None)
            raw = connection.connection.dbapi_connection
            assert first == (raw.prepare_threshold is None)  # type: ignore[union-attr]


def test_an_end_that_is_told_twice() -> None:
    """The server's session is ended within a command, and both the server and the pooler say so."""
    error = psycopg.InternalError("received 2 results from command 'COMMIT'")
    assert isinstance(driver_error("postgresql://", error), CannotConnect)
