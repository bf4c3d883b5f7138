"""Errors that nobody knows, from the database itself: what has happened is kept, and said.

A recorder dropped two tool results when a pooler had lost its prepared statements; nothing said so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import make_url, text

from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import FactsNotWritten
from eventstore import EventStore
from eventstore.errors import NotWritable, WriterFenced
from projections import Views
from tests.crash.stand_in import answer
from tests.integration.recording import Recorder, ask, ask_for_tool, recorder

REFUSE = {
    "sqlite": [
        """
        CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.type = 'tool_result'
        BEGIN SELECT RAISE(ABORT, 'not now'); END
        """
    ],
    "postgresql": [
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'not now'; END $$
        """,
        """
        CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW
        WHEN (NEW.type = 'tool_result') EXECUTE FUNCTION refuse()
        """,
    ],
}
ALLOW = {"sqlite": "DROP TRIGGER refuse", "postgresql": "DROP TRIGGER refuse ON events"}


@pytest.fixture(params=["sync", "async"])
def recording(request: pytest.FixtureRequest, database_url: str) -> Iterator[Recorder]:
    """Give a recorder of either kind, on either database."""
    with recorder(database_url, request.param) as opened:
        yield opened


@pytest.fixture
def refusing(recording: Recorder) -> Callable[[bool], None]:
    """Give a function that has the database refuse tool results, for a reason that is its own."""

    def change(refuses: bool) -> None:
        name = recording.store.engine.dialect.name
        with recording.store.writing() as connection:
            for statement in REFUSE[name] if refuses else [ALLOW[name]]:
                connection.execute(text(statement))

    return change


def use_a_tool(conversation: Conversation, refusing: Callable[[bool], None]) -> None:
    """Use a tool in a turn, whose result the database refuses."""

    def turn() -> None:
        with conversation.turn("hello") as turn:
            wanted = ask_for_tool(turn)
            refusing(True)
            with turn.tool(wanted) as tool:
                tool.result("found")

    with pytest.raises(Exception, match="not now"):
        turn()


def kinds(recording: Recorder, conversation: Conversation) -> list[str]:
    """Return the types of a conversation's events, from its first tool call on."""
    found = [event.type for event in recording.store.read(conversation.id)]
    return found[found.index("tool_call") :]


def test_kept_until_the_next_append(recording: Recorder, refusing: Callable[[bool], None]) -> None:
    """The error is raised where the fact was recorded, and at what follows until it is there."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        wanted = ask_for_tool(turn)
        refusing(True)
        with pytest.raises(Exception, match="not now"), turn.tool(wanted) as tool:
            tool.result("found")
        with pytest.raises(Exception, match="not now"):
            turn.llm_call().__enter__()
        refusing(False)
        ask(turn)
    conversation.close()

    written = kinds(recording, conversation)
    assert ["tool_call", "tool_result", "llm_request"] == written[:3]
    assert 1 == written.count("tool_result")
    assert recording.store.verify().ok


def test_said_when_the_conversation_is_closed(
    recording: Recorder, refusing: Callable[[bool], None]
) -> None:
    """The error names what is not written, in order, and closing again writes it."""
    conversation = recording.start()
    use_a_tool(conversation, refusing)
    for _ in range(2):
        with pytest.raises(FactsNotWritten, match="1 tool_result") as caught:
            conversation.close()
        named = [event.data.type for event in caught.value.events]
        assert ["tool_result", "turn_end", "session_end"] == named
        assert "not now" in str(caught.value.__cause__)
    refusing(False)
    conversation.close()

    assert ["tool_call", "tool_result", "turn_end", "session_end"] == kinds(recording, conversation)
    assert recording.store.verify().ok


def test_refused_in_the_background(recording: Recorder, refusing: Callable[[bool], None]) -> None:
    """The outbox keeps what is refused while it may be mended, and writes it unasked after that."""
    conversation = recording.start()
    use_a_tool(conversation, refusing)
    with pytest.raises(FactsNotWritten):
        conversation.close()
    time.sleep(1.5)  # the outbox has tried, in vain
    assert [u.status for u in recording.store.unwritten()] == ["pending"]
    refusing(False)
    until = time.monotonic() + 30
    while recording.store.unwritten() and time.monotonic() < until:
        time.sleep(0.05)

    assert ["tool_call", "tool_result", "turn_end", "session_end"] == kinds(recording, conversation)


def test_a_newer_writer_leaves_no_place(
    recording: Recorder, refusing: Callable[[bool], None]
) -> None:
    """What was kept is dropped with the error that says so; it is the other writer's log now."""
    conversation = recording.start()
    use_a_tool(conversation, refusing)
    refusing(False)
    recording.open(conversation.id, if_busy="take_over").close()

    with pytest.raises(WriterFenced):
        conversation.close()
    conversation.close()
    assert "not_started" not in kinds(recording, conversation)


def test_a_privilege_that_is_taken_away(postgres_url: str) -> None:
    """A login that may no longer append keeps what happens; it is written once it may again."""
    with EventStore.open(postgres_url) as owner:
        Views(owner)
    admin = (
        make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    )
    with closing(psycopg.connect(admin, autocommit=True)) as connection:
        connection.execute("DROP ROLE IF EXISTS recording")
        connection.execute("CREATE ROLE recording LOGIN PASSWORD 'recording'")
        grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO recording"
        connection.execute(grant)
        connection.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO recording")
        url = make_url(postgres_url).set(username="recording", password="recording")
        try:
            with EventStore.open(url, migrate=False) as store:
                conversation = Conversation.start(store)
                turn = conversation.turn("hello").__enter__()
                call = turn.llm_call().__enter__()
                chunks = answer(["first ", "second"])
                for _ in range(2):
                    call.feed(next(chunks))
                connection.execute("REVOKE INSERT ON events FROM recording")
                call.feed(next(chunks))
                with pytest.raises(NotWritable):
                    call.__exit__(None, None, None)
                connection.execute("GRANT INSERT ON events TO recording")
                turn.__exit__(None, None, None)
                conversation.close()
                found = [event.type for event in store.read(conversation.id)]
            assert ["assistant_chunk"] * 2 == [each for each in found if each == "assistant_chunk"]
            assert ["llm_error", "turn_end", "session_end"] == found[-3:]
        finally:
            connection.execute("DROP OWNED BY recording")
            connection.execute("DROP ROLE recording")
