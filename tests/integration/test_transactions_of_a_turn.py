"""How many transactions each step of a turn takes on PostgreSQL, as its server would count them.

A step that takes more than is written here makes every turn of a product slower: change the number
only for a reason. Each number but the reads' is at least one, because a step is durable when it
returns. The protocol is traced, so that nothing escapes: neither a pool's statement nor a driver's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import ConnStatus, Trace
from psycopg.pq.abc import PGconn
from sqlalchemy import event

from agent_eventstore import Conversation, EventStore
from eventstore.leases import Keeper
from tests.connected import disconnect
from tests.postgres import fresh_database

STEPS = {
    "open": 3,  # epoch and lease; open work and settings; the session's start
    "start": 1,  # the turn's start and the user's message
    "context": 2,  # what is new; the first request of a session also reads the saved rows
    "call": 1,  # the request
    "stream": 1,  # the first piece, at once
    "answer": 1,  # the other pieces and the answer
    "tool": 1,  # the execution, before the tool runs
    "result": 1,
    "context again": 1,
    "call again": 1,
    "answer again": 1,
    "end": 1,  # the turn's end
    "close": 6,  # the session's end; the lease; what is behind, its state, its events; the rows
}
_PLAIN = ("open", "start", "context", "call", "answer")
OF_A_NEW_CONVERSATION = {**STEPS, "open": 2, "context": 7, "close": 7}
"""The start, and its lease; a first request that finds nothing saved, and saves it."""


class Traced:
    """The messages between a store and its server."""

    def __init__(self, store: EventStore, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._reading = path.open("rb")  # with a place of its own
        self._sessions: list[PGconn] = []
        disconnect(store)
        event.listen(store.engine, "connect", self._connected)

    def _connected(self, connection: psycopg.Connection, _record: object) -> None:
        self._sessions.append(connection.pgconn)
        self._trace(connection.pgconn)

    def _trace(self, session: PGconn) -> None:
        session.trace(self._file.fileno())
        session.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)

    def transactions(self) -> int:
        """Return the transactions since the last call; a pool's empty statement is none."""
        for session in self._sessions:
            if session.status == ConnStatus.OK:
                session.untrace()  # which writes what was buffered
                self._trace(session)
        count, within = 0, False
        for line in self._reading.read().decode("utf-8", "replace").splitlines():
            if re.match(r"F\s+\d+\s+(Query|Execute)\b", line):
                within = within or not line.endswith('";"')
            elif re.match(r"B\s+\d+\s+ReadyForQuery\s+I", line):
                count, within = count + within, False
        return count


def taken(store: EventStore, traced: Traced, conversation: Conversation) -> dict[str, int]:
    """Go through a turn and return the transactions of its steps."""
    found = {"open": traced.transactions()}

    def step(name: str) -> None:
        found[name] = traced.transactions()

    with conversation:
        turn = conversation.turn("What is it?")
        with turn:
            step("start")
            request = turn.context(max_tokens=4_000, model="gpt-4o")
            step("context")
            with turn.llm_call(request) as call:
                step("call")
                for piece in "abc":
                    call.delta(piece)
                step("stream")
                call.message(text="abc", tool_calls=[{"name": "g", "arguments": {}, "id": "1"}])
            step("answer")
            with turn.tool(call.tool_calls[0]) as tool:
                step("tool")
                tool.result("x")
            step("result")
            request = turn.context(max_tokens=4_000, model="gpt-4o")
            step("context again")
            with turn.llm_call(request) as call:
                step("call again")
                call.message(text="abc")
            step("answer again")
        step("end")
    step("close")
    return found


@pytest.fixture
def store(postgres_server_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventStore]:
    """Give a store on PostgreSQL that has done everything once.

    The thread that renews leases has transactions of its own, whenever they are due.
    """
    monkeypatch.setattr(Keeper, "renew", lambda _: None)
    with fresh_database(postgres_server_url) as url, EventStore.open(url) as opened:
        for _ in range(2):
            with Conversation.start(opened) as conversation, conversation.turn("q") as turn:
                turn.context(model="gpt-4o")
        yield opened


def test_transactions_of_each_step(store: EventStore, tmp_path: Path) -> None:
    """None takes more than is written, and none fewer without being noted here."""
    traced = Traced(store, tmp_path / "trace")
    conversation = Conversation.start(store)
    assert OF_A_NEW_CONVERSATION == taken(store, traced, conversation)
    for _ in range(2):
        opened = Conversation.open(store, conversation.id)
        assert STEPS == taken(store, traced, opened)


def test_a_plain_turn(store: EventStore, tmp_path: Path) -> None:
    """The whole of a turn without a tool, from opening to closing."""
    with Conversation.start(store) as conversation:
        pass
    traced = Traced(store, tmp_path / "trace")
    for _ in range(3):
        with Conversation.open(store, conversation.id) as opened, opened.turn("q") as turn:
            request = turn.context(max_tokens=4_000, model="gpt-4o")
            with turn.llm_call(request) as call:
                call.message(text="a")
        count = traced.transactions()
    assert count == sum(STEPS[name] for name in (*_PLAIN, "end", "close"))


def test_starting_what_this_store_knows(store: EventStore, tmp_path: Path) -> None:
    """A conversation that the store has written is opened, without trying to create it."""
    traced = Traced(store, tmp_path / "trace")
    for _ in range(3):
        conversation = Conversation.start(store, key="chat", if_exists="open")
        count = traced.transactions()
        with conversation, conversation.turn("q") as turn:
            request = turn.context(max_tokens=4_000, model="gpt-4o")
            with turn.llm_call(request) as call:
                call.message(text="a")
        traced.transactions()
    assert count == STEPS["open"]
    with EventStore.open(store.engine.url.render_as_string(hide_password=False)) as other:
        other.purge(conversation.id, reason="test")
    again = Conversation.start(store, key="chat", if_exists="open")
    with again, again.turn("q") as turn:
        assert 1 == turn.number
