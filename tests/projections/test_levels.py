"""Lower levels of detail are made when a request needs them, and stay with the cached rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore import events as e
from projections import Views
from projections.context import ContextRow, ContextSettings, ContextView, levels

pytestmark = pytest.mark.exhaustive_when("postgresql")

WHOLE = ContextSettings(steps=False)
ORDERS = json.dumps([{"order_id": f"#W23781{n}", "status": "delivered"} for n in range(9)])
PLAN = "key_messages"
Keys = list[tuple[int, int]]


def talk(store: EventStore, cid: UUID, exchanges: int = 20) -> None:
    """Append exchanges, each with a result that can be shortened."""
    for number in range(exchanges):
        call = e.ToolCallRequest(name="find", arguments_text=f'{{"user": "u_{number}"}}')
        asked = e.AssistantMessage(tool_calls=(call,))
        last = store.append(cid, [e.UserMessage.text(f"What of u_{number}?"), asked]).version
        store.append(cid, [e.ToolResult(call_id=f"{last}.0", content=f"[{number}, {ORDERS}]")])


def trimmed(store: EventStore, cid: UUID, views: Views | None = None) -> ContextView:
    """Return a view of half of the conversation's tokens; by default of a process of its own."""
    whole = Views(store).context(cid, settings=WHOLE).tokens.tokens
    return (views or Views(store)).context(cid, max_tokens=whole // 2, settings=WHOLE)


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> Keys:
    """Return the keys of the rows of which a shorter form has been made, as they are made."""
    shorter: Callable[[ContextRow], Any] = levels._shorter
    keys: Keys = []

    def noted(row: ContextRow) -> Any:
        keys.append(row.key)
        return shorter(row)

    monkeypatch.setattr(levels, "_shorter", noted)
    return keys


def test_a_whole_view_makes_none(store: EventStore, cid: UUID, shortened: Keys) -> None:
    """Nor does folding: of most rows nobody asks for less."""
    talk(store, cid)
    Views(store).context(cid)
    assert shortened == []


def test_each_is_made_once(store: EventStore, cid: UUID, shortened: Keys) -> None:
    """The same request again finds them with the rows; another process makes them again."""
    talk(store, cid)
    views = Views(store)
    first = trimmed(store, cid, views)
    made = [*shortened]
    assert made
    assert len(set(made)) == len(made)
    assert first.messages == trimmed(store, cid, views).messages
    assert shortened == made
    assert first.messages == trimmed(store, cid).messages
    assert sorted(shortened) == sorted(made * 2)


def test_a_step_finds_them_made(store: EventStore, cid: UUID, shortened: Keys) -> None:
    """Reads before it have made those of new rows: no request makes many at once."""
    views, most, steps = Views(store), 0, set()
    for number in range(80):
        version = store.append(cid, [e.UserMessage.text(f"{ORDERS} of u_{number}?")]).version
        shortened.clear()
        view = views.context(cid, max_tokens=3_000, strategy=PLAN)
        if number > 30:
            steps.add(view.step)
            most = max(most, len(shortened))
            assert set(shortened) <= {(version, 0), (version - 1, 0)}
    assert len(steps) > 2
    assert most > 0
    assert view.messages == Views(store).context(cid, max_tokens=3_000, strategy=PLAN).messages
