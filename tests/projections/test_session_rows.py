"""The SQL views of sessions, turns and steps, as live agents fill them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import text

from agent_eventstore import AgentSession, recover
from eventstore import EventStore, Meta, NewEvent
from eventstore.events import SessionEnd, SessionStart, TurnStart, UserMessage
from projections import Views, worker
from tests.agents.scripted import Scripted, Wanted, read, reply
from tests.projections.support import everything

ANSWER = "It says how to begin, and where to go on. " * 20


def told(store: EventStore, view: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return rows of a view, once everything is folded."""
    worker.run(store, once=True)
    query = f"SELECT {', '.join(columns)} FROM {view} ORDER BY version"
    with store.reading() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_a_session_and_its_turns(store: EventStore) -> None:
    """Each turn has its answer, each step its reply; the end of the session adds up."""
    model = Scripted(reply("Let me look.", Wanted("read", path="a.md")), ANSWER, "You are welcome.")
    with AgentSession.create(store, model=model, tools=[read]) as session:
        session.run_turn("What is in a.md?")
        session.run_turn("Thank you.")

    assert [("closed", 2)] == told(store, "sessions", "status", "turns")
    assert [(1, "ok", 2, ANSWER), (2, "ok", 1, "You are welcome.")] == told(
        store, "turns", "turn", "status", "steps", "final_text"
    )
    assert [
        (1, 0, "ok", 1, "Let me look."),
        (1, 1, "ok", 0, ANSWER),
        (2, 0, "ok", 0, "You are welcome."),
    ] == told(store, "steps", "turn", "step", "status", "tools", "text")


def test_answers_are_quoted(store: EventStore) -> None:
    """An answer is in the log once; the rows of its turn and its step name the place."""
    with AgentSession.create(store, model=Scripted(ANSWER)) as session:
        session.run_turn("What is in a.md?")

    assert [(ANSWER,)] == told(store, "turns", "final_text")
    rows = everything(store)
    assert ANSWER not in str(rows["turns_g1"]) + str(rows["steps_g1"])


def test_what_is_erased_is_gone_from_them(store: EventStore) -> None:
    """Short answers stand in the rows, and go with the conversation."""
    with AgentSession.create(store, model=Scripted("Secret.")) as session:
        session.run_turn("Tell me.")
    assert [("Secret.",)] == told(store, "steps", "text")

    store.erase(session.id, reason="asked for")

    assert [] == [row for row in told(store, "steps", "text") if row[0] is not None]


def test_a_fork_has_no_session_of_its_parent_open(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """The session goes on elsewhere; also if the fork's own events are erased."""
    meta = Meta(session_id="s1")
    store.append(cid, [NewEvent(SessionStart(mode="once"), meta=meta)])
    fork = store.fork(cid).conversation_id
    store.append(cid, [NewEvent(SessionEnd(), meta=meta)])
    store.append(fork, [NewEvent(SessionStart(mode="once"), meta=Meta(session_id="s2"))])

    def sessions() -> list[tuple[Any, ...]]:
        rows = views.rows("sessions", conversation_id=fork)
        return [(row["session_id"], row["status"], row["end_version"]) for row in rows]

    assert [("s1", "closed", 2), ("s2", "open", None)] == sessions()
    store.erase(fork, reason="asked to")
    assert [("s1", "closed", 2)] == sessions()


def test_a_session_whose_process_died(store: EventStore, views: Views, cid: UUID) -> None:
    """What recovery ends reads as interrupted, and its turn as aborted."""
    begun = [SessionStart(), TurnStart(input="Go on."), UserMessage.text("Go on.")]
    store.append(cid, [NewEvent(each, meta=Meta(session_id="one", turn=1)) for each in begun])
    assert [("open", 1)] == told(store, "sessions", "status", "turns")

    recover(store, views, cid)

    assert [("interrupted", 1)] == told(store, "sessions", "status", "turns")
    assert [("aborted",)] == told(store, "turns", "status")
