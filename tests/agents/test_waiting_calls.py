"""A call whose turn was replaced waits for its result: of other work, or of a person's decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent_eventstore import AgentSession, EventStore, Turn, Views
from agent_eventstore.errors import CallAnswered
from agent_eventstore.machines import RequestedCall
from projections.models.open_items import OpenToolCall
from tests.agents.scripted import Scripted, Wanted, read, reply


def pay(amount: int) -> str:
    """Pay, which only the person who decides may do."""
    raise AssertionError("nobody has decided")


def ask(turn: Turn, calls: Sequence[RequestedCall]) -> bool:
    """Let each payment wait."""
    return calls[0].name == "pay" and turn.replace(calls[0], calls[1:])


def opened(store: EventStore, session: AgentSession, model: Scripted) -> AgentSession:
    """Return the session of another process."""
    options: dict[str, Any] = {"tools": [pay, read], "interrupt": ask}
    return AgentSession.open(store, session.id, model=model, **options)


@pytest.fixture
def waiting(store: EventStore) -> AgentSession:
    """Give a session that has ended while its second call of three waits."""
    wanted = Wanted("read", path="x"), Wanted("pay", amount=5), Wanted("read", path="y")
    options: dict[str, Any] = {"tools": [pay, read], "interrupt": ask}
    with AgentSession.create(store, model=Scripted(reply("", *wanted)), **options) as session:
        assert "aborted" == session.run_turn("Pay 5.").status
    return session


def call_of(store: EventStore, session: AgentSession) -> OpenToolCall:
    """Return the call that waits."""
    [call] = Views(store).open_work(session.id).tool_calls
    assert call.awaited is True
    return call


def statuses(store: EventStore, session: AgentSession) -> list[str | None]:
    """Return what has become of the calls, in order."""
    rows = Views(store).tool_calls(conversation_id=session.id)
    return [row.status for row in sorted(rows, key=lambda row: row.call_id)]


def test_a_decision_is_made_once(store: EventStore, waiting: AgentSession) -> None:
    """A second one, of whatever session, was recorded, and the model was asked about it again."""
    call, model = call_of(store, waiting), Scripted("It is paid.")
    with opened(store, waiting, model) as session:
        first = session.close_call(call, "paid 5", message_id="yes")
        again = session.close_call(call, "paid 5", message_id="yes")
        version = session.conversation.version
        with pytest.raises(CallAnswered, match=r"already has a result \(success\)"):
            session.close_call(call, "refused", failed=True)
    with opened(store, waiting, Scripted()) as other:
        with pytest.raises(CallAnswered):
            other.close_call(call, "refused", failed=True, message_id="no")
        assert version + 2 == other.conversation.version, "the end and the start of a session"
    assert ["It is paid."] * 2 == [first.final_text, again.final_text]
    assert ["success", "success", "skipped"] == statuses(store, waiting)
    assert 1 == len(model.asked)
    assert "paid 5" in [each["content"] for each in model.asked[0].messages]


def test_a_call_that_waits_is_not_sealed(store: EventStore, waiting: AgentSession) -> None:
    """Nor is its turn resumed, as if the program had died: the model would call the tool again."""
    with opened(store, waiting, Scripted()) as session:
        assert session.go_on() is None
    assert ["success", "running", "skipped"] == statuses(store, waiting)
    with opened(store, waiting, Scripted()) as session:
        with session.conversation.continuation() as turn:
            turn.deny(call_of(store, waiting), "too much")
        assert session.go_on() is None
    assert ["success", "denied", "skipped"] == statuses(store, waiting)


def test_a_call_that_was_erased_gets_no_result(store: EventStore, waiting: AgentSession) -> None:
    """A decision that came too late wrote its content into the erased conversation."""
    call = call_of(store, waiting)
    store.erase(waiting.id, reason="asked for")
    version = store.get(waiting.id).version
    with opened(store, waiting, Scripted()) as session:
        with pytest.raises(CallAnswered, match="erased"):
            session.close_call(call, "paid 5")
    assert version + 2 == store.get(waiting.id).version
    assert [] == statuses(store, waiting)
