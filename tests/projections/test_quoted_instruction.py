"""The state of a conversation shows its instruction, of which the log has the one copy."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import EventStore
from eventstore import events as e
from projections import Views
from projections.upkeep import compare, rebuild
from tests.projections.support import everything

RULES = "Never charge a customer in euro who pays in yen. " * 40
AWKWARD = "\x00 and half a pair \ud800 " * 40


def in_sql(store: EventStore) -> str | None:
    """Return what a user of SQL reads."""
    with store.reading() as connection:
        query = "SELECT system_instruction FROM conversation_state"
        found: str | None = connection.execute(text(query)).scalar_one()
        return found


def test_it_is_quoted(store: EventStore, views: Views, cid: UUID) -> None:
    """By catching up and by a rebuild alike, for readers in Python and in SQL."""
    store.append(cid, [e.SystemInstruction(text=RULES), e.UserMessage.text("hello")])

    assert RULES == views.run_state(cid).system_instruction
    assert RULES == in_sql(store)
    assert RULES not in str(everything(store)["conversation_state_g1"])

    rebuild(store, ["runs"])

    assert RULES == views.run_state(cid).system_instruction
    assert RULES == in_sql(store)
    assert RULES not in str(everything(store)["conversation_state_g2"])
    assert compare(store).ok


@pytest.mark.parametrize("newer", ["Be brief.", AWKWARD, RULES.upper()])
def test_the_newest_is_shown(store: EventStore, views: Views, cid: UUID, newer: str) -> None:
    """Also where it is short, or SQL could not take it out of the event: then the row keeps it."""
    store.append(cid, [e.SystemInstruction(text=RULES)])
    assert RULES == views.run_state(cid).system_instruction
    store.append(cid, [e.SystemInstruction(text=newer)])
    assert newer == views.run_state(cid).system_instruction
    assert newer == views.run_state(cid, at=2).system_instruction
    assert compare(store).ok


def test_what_is_erased_is_shown_no_more(store: EventStore, views: Views, cid: UUID) -> None:
    """Nothing of it is left in a row."""
    store.append(cid, [e.SystemInstruction(text=RULES), e.UserMessage.text("hello")])
    assert RULES == views.run_state(cid).system_instruction
    store.erase(cid, reason="asked to", versions=range(1, 2))
    assert views.run_state(cid).system_instruction is None
    assert RULES not in str(everything(store))
