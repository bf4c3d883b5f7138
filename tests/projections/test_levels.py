"""Lower levels of detail are made when a request needs them, and kept beside the rows."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore import events as e
from eventstore.sql.backend import has_table
from eventstore.sql.types import json_out
from projections import Views
from projections.context import CONTEXT, ContextRow, ContextSettings, ContextView, levels
from projections.context.source import SqlRowSource
from projections.upkeep import rebuild
from tests.projections.support import live_of, statements

pytestmark = pytest.mark.exhaustive_when("postgresql")

WHOLE = ContextSettings(steps=False)
ORDERS = json.dumps([{"order_id": f"#W23781{n}", "status": "delivered"} for n in range(9)])


def talk(store: EventStore, cid: UUID, exchanges: int = 20) -> None:
    """Append exchanges, each with a result that can be shortened."""
    for number in range(exchanges):
        call = e.ToolCallRequest(name="find", arguments_text=f'{{"user": "u_{number}"}}')
        asked = e.AssistantMessage(tool_calls=(call,))
        last = store.append(cid, [e.UserMessage.text(f"What of u_{number}?"), asked]).version
        store.append(cid, [e.ToolResult(call_id=f"{last}.0", content=f"[{number}, {ORDERS}]")])


PLAN = "key_messages"
"""Of `hybrid` a request with a block is read otherwise: it searches, and keeps no lower levels."""


def turns(store: EventStore, views: Views, cid: UUID, numbers: range) -> list[int]:
    """Append exchanges, reading within 3,000 tokens after each; return how many were kept then."""
    found = []
    for number in numbers:
        store.append(cid, [e.UserMessage.text(f"{ORDERS} of u_{number}?")])
        views.context(cid, max_tokens=3_000, strategy=PLAN)
        found.append(kept(store))
    return found


def trimmed(store: EventStore, cid: UUID) -> ContextView:
    """Return a view of half of the conversation's tokens, read by a process that knows nothing."""
    whole = Views(store).context(cid, settings=WHOLE).tokens.tokens
    return Views(store).context(cid, max_tokens=whole // 2, settings=WHOLE)


def kept(store: EventStore) -> int:
    """Return how many rows have their lower levels kept."""
    with store.reading() as connection:
        if not has_table(connection, levels.TABLE.name):
            return 0
        query = "SELECT count(*) FROM lower_levels"
        return int(connection.exec_driver_sql(query).scalar_one())


def refuse(*_: Any) -> Any:
    """Stand in for what must not be called."""
    raise AssertionError("made again")


def test_a_whole_view_makes_none(store: EventStore, cid: UUID) -> None:
    """Nor does folding: of most rows nobody asks for less."""
    talk(store, cid)
    Views(store).context(cid)
    rebuild(store)
    assert 0 == kept(store)


def test_what_one_process_made_serves_another(
    store: EventStore, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a rebuild, with the same bytes."""
    talk(store, cid)
    view = trimmed(store, cid)
    assert 0 < kept(store)
    monkeypatch.setattr(levels, "_shorter", refuse)
    rebuild(store)
    assert view.messages == trimmed(store, cid).messages


def test_many_that_are_asked_for_bit_by_bit(store: EventStore, cid: UUID) -> None:
    """A request that asks for few at a time keeps them once they are many, as if asked at once."""
    talk(store, cid)
    Views(store).context(cid)
    table = live_of(store, CONTEXT).tables["context_messages"]
    with store.reading(snapshot=True) as connection:
        rows = [*SqlRowSource(connection, table, cid).newest(100)]
        bit_by_bit = levels.StoredLevels(cid)
        for row in rows:
            bit_by_bit.look_for(connection, [row])
    bit_by_bit.keep(store, 1_000)
    assert 16 <= kept(store)


def test_few_are_not_worth_a_transaction(store: EventStore, cid: UUID) -> None:
    """They are made again sooner."""
    talk(store, cid, exchanges=3)
    assert {"full"} != {entry.level for entry in trimmed(store, cid).ledger}
    assert 0 == kept(store)


@pytest.mark.parametrize("held", ["", "7", "[]", '["x", null, []]', '[null, null, ["?x"]]'])
def test_what_was_altered_is_made_anew(store: EventStore, cid: UUID, held: str) -> None:
    """The table is not a source of truth."""
    talk(store, cid)
    view = trimmed(store, cid)
    with store.writing() as connection:
        connection.exec_driver_sql(f"UPDATE lower_levels SET held = '{held}'")
    assert view.messages == trimmed(store, cid).messages
    with store.reading() as connection:
        found = connection.exec_driver_sql("SELECT held FROM lower_levels").scalars()
        assert all(len(json_out(each)) == 3 for each in found)


def test_an_erased_conversation_leaves_none(store: EventStore, cid: UUID) -> None:
    """They hold its texts."""
    talk(store, cid)
    trimmed(store, cid)
    store.erase(cid, reason="asked to")
    assert 0 == kept(store)


def test_few_of_each_read_are_kept_together(store: EventStore, cid: UUID) -> None:
    """A read that makes one has it wait for those of others, so that all are kept in the end."""
    found = turns(store, Views(store), cid, range(60))
    assert found == sorted(found)
    assert 32 <= found[-1]


def test_what_is_erased_while_it_waits_is_not_kept(store: EventStore, cid: UUID) -> None:
    """Those that wait beside it are not either: they are made again."""
    views = Views(store)
    [*_, before] = turns(store, views, cid, range(30))
    store.append(cid, [e.UserMessage.text(f"SECRET {ORDERS}")])
    views.context(cid, max_tokens=3_000, strategy=PLAN)
    store.erase(cid, reason="asked to", versions=[store.get(cid).version])
    after = turns(store, views, cid, range(40))
    assert before < after[-1]
    with store.reading() as connection:
        held = connection.exec_driver_sql("SELECT held FROM lower_levels").scalars()
        assert not any("SECRET" in json_out(each) for each in held)


def test_a_step_finds_them_made(
    store: EventStore, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads before it have made those of new rows; the step keeps them, and looks nothing up."""
    views, shorter = Views(store), levels._shorter
    turns(store, views, cid, range(40))
    newest, before = store.get(cid).version, kept(store)

    def only_the_newest(row: ContextRow) -> Any:
        return shorter(row) if row.version == newest else refuse()

    monkeypatch.setattr(levels, "_shorter", only_the_newest)
    with statements(store) as seen:
        while kept(store) == before:
            seen.clear()
            newest = store.append(cid, [e.UserMessage.text(f"{ORDERS} of {newest}?")]).version
            view = views.context(cid, max_tokens=3_000, strategy=PLAN)
            asked = [*seen]
    tables = ("to_regclass", "sqlite_master", "FROM lower_levels", "FROM token_counts")
    assert not [sql for sql in asked if any(table in sql for table in tables)]
    assert before + 1 < kept(store)
    monkeypatch.setattr(levels, "_shorter", shorter)
    assert view.messages == Views(store).context(cid, max_tokens=3_000, strategy=PLAN).messages
