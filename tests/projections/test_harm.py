"""One event must not harm the others: what a row cannot hold keeps its own conversation, at most.

The events are planted by SQL, as an older version without bounds may have left them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.cli.program import FOUND
from eventstore import EventStore
from eventstore import events as e
from projections import Views, upkeep, worker
from projections.engine import tables as row_statements
from projections.engine.set_aside import FoldFailure
from projections.errors import ProjectionFailed
from projections.upkeep import rebuild
from tests.cli.program import run
from tests.feed_wait import wait_for_feed
from tests.projections.support import converse, expected, read_all_views, stored
from tests.raw_events import insert_raw_event

HUGE = 2**63
LONG = secrets.token_hex(3_000)
"""A name that PostgreSQL's compression does not bring below the limit of an index."""

Plant = Callable[[EventStore, UUID], None]


def _planted(kind: str, data: dict[str, Any] | str, meta: dict[str, Any] | str = "{}") -> Plant:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (data, meta)]
    return lambda store, cid: insert_raw_event(store, cid, kind, *texts)


_TEXT = {"parts": [{"kind": "text", "text": "planted"}]}
_DIGITS = "9" * 5_000
NUMBERS: dict[str, Plant] = {
    "turn": _planted("user_message", _TEXT, {"turn": HUGE, "step": HUGE}),
    "turn of 5,000 digits": _planted("user_message", _TEXT, f'{{"turn":{_DIGITS}}}'),
    "tokens": _planted(
        "assistant_message", {**_TEXT, "usage": {"prompt_tokens": HUGE, "completion_tokens": HUGE}}
    ),
    "tokens of 5,000 digits": _planted(
        "assistant_message",
        f'{{"parts":[{{"kind":"text","text":"planted"}}],"usage":{{"prompt_tokens":{_DIGITS}}}}}',
    ),
    "duration": _planted("tool_result", {"call_id": "3.0", "duration_ms": 10**40}),
    "attempt": _planted("llm_error", {"kind": "timeout", "message": "planted", "attempt": HUGE}),
    "parent": _planted("conversation_start", {"parent_version": HUGE}),
    "range": _planted("retraction", {"versions": [{"first": 1, "last": HUGE}]}),
}
NAMES: dict[str, Plant] = {
    "tool": _planted("tool_call", {"call_id": "9.0", "name": LONG}),
    "call": _planted("tool_call", {"call_id": LONG, "name": "search"}),
    "model call": _planted(
        "llm_request", {"llm_call_id": LONG, "invocation": {"model": LONG, "provider": LONG}}
    ),
    "run": _planted(
        "run_start", {"run_id": LONG, "workflow_id": LONG, "nodes": [{"node_id": LONG}]}
    ),
    "artifact": _planted(
        "run_step_end",
        {"run_id": LONG, "node_id": LONG, "status": "completed", "artifacts": [{"name": LONG}]},
    ),
    "place": _planted(
        "user_message", _TEXT, {"session_id": LONG, "run_id": LONG, "agent_id": LONG}
    ),
}
PLANTED = NUMBERS | NAMES


def _noted(store: EventStore) -> list[FoldFailure]:
    return [failure for each in upkeep.status(store) for failure in each.set_aside]


@pytest.mark.exhaustive_when("postgresql")
@pytest.mark.parametrize("number", range(len(PLANTED)), ids=list(PLANTED))
def test_what_is_stored_already_is_folded(store: EventStore, views: Views, number: int) -> None:
    """A turn of 2**63, or a tool's name of 3 KB, stopped every read, worker and rebuild for all."""
    mine, other = converse(store, 1), converse(store, 1)
    list(PLANTED.values())[number](store, mine)
    assert {mine, other} == {row.conversation_id for row in views.conversations()}
    worker.run(wait_for_feed(store), once=True)
    assert [] == _noted(store)
    for cid in (mine, other):
        read_all_views(views, cid)
    assert () == rebuild(store).set_aside
    assert expected(store.read(other)) == stored(store, other)
    assert 8 == len(list(store.read(mine)))
    assert 15 == len(store.read_all().events)


@pytest.mark.parametrize("number", range(len(NUMBERS)), ids=list(NUMBERS))
def test_numbers_are_clamped(store: EventStore, views: Views, number: int) -> None:
    """What comes of them fits 64 bits, also when it is summed."""
    cid = converse(store, 1)
    list(NUMBERS.values())[number](store, cid)
    [*_, event] = store.read(cid)
    assert not isinstance(event.data, e.UnknownEvent)
    assert max(_numbers(event)) < 2**41
    totals = views.usage(by="conversation")
    assert all((total.prompt_tokens or 0) < 2**63 for total in totals)


def _numbers(event: Any) -> list[int]:
    found, left = [0], [event.data.model_dump(mode="json"), event.meta.model_dump(mode="json")]
    while left:
        value = left.pop()
        if isinstance(value, int):
            found.append(value)
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
    return found


def test_long_names_are_found_by_themselves(store: EventStore, views: Views) -> None:
    """The index holds the start and a digest; whoever asks for the whole name finds the row."""
    cid = converse(store, 1)
    NAMES["tool"](store, cid)
    insert_raw_event(
        store, cid, "tool_call", json.dumps({"call_id": "9.1", "name": LONG[:-1] + "x"})
    )
    [row] = views.tool_calls(tool=LONG)
    assert ("9.0", LONG[:400]) == (row.call_id, (row.name or "")[:400])
    assert [row] == views.tool_calls(tool=row.name)


@pytest.fixture
def unwritable(store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """Give the first of three conversations, whose rows the database refuses."""
    converse_ids = [converse(store, 1, word=word) for word in ("poison", "a", "b")]
    bind = row_statements._Prepared.bind

    def refused(self: Any, row: Any) -> list[Any]:
        if "poison" in str(row.get("last_user_text")):
            row = {**row, "event_count": 2**70}
        return bind(self, row)

    def bind_new(table: Any, dialect: Any, rows: Any) -> Any:
        spoilt = {
            owner: {
                key: {**row, "event_count": 2**70}
                if "poison" in str(row.get("last_user_text"))
                else row
                for key, row in own.items()
            }
            for owner, own in rows.items()
        }
        return original(table, dialect, spoilt)

    original = row_statements.bind_new
    monkeypatch.setattr(row_statements._Prepared, "bind", refused)
    monkeypatch.setattr(row_statements, "bind_new", bind_new)
    return converse_ids[0]


def test_rows_that_cannot_be_written_are_set_aside(
    store: EventStore, views: Views, unwritable: UUID
) -> None:
    """A read across conversations leaves the one out; a read of the one says what is wrong."""
    assert 2 == len(views.conversations())
    assert {(unwritable, "directory")} == {
        (each.conversation_id, each.projection) for each in _noted(store)
    }
    assert views.timeline(unwritable)


def test_a_worker_sets_aside_rows_that_cannot_be_written(
    store: EventStore, unwritable: UUID
) -> None:
    """The others are caught up, and the next round has nothing to do."""
    assert 2 == worker.run(wait_for_feed(store), once=True)
    assert {unwritable} == {each.conversation_id for each in _noted(store)}


def test_a_rebuild_sets_aside_rows_that_cannot_be_written(
    store: EventStore, unwritable: UUID
) -> None:
    """Without the option it stops, and names the conversation."""
    with pytest.raises(ProjectionFailed, match=str(unwritable)):
        rebuild(store)
    assert {(unwritable, "directory")} == {
        (each.conversation_id, each.projection)
        for each in rebuild(store, skip_broken=True).set_aside
    }


def test_the_commands_go_on(store: EventStore, database_url: str, unwritable: UUID) -> None:
    """``list`` shows the others and says that one is left out; ``doctor`` names it."""
    listed = run("list", "--json", url=database_url)
    assert (0, 2) == (listed.status, len(listed.document))
    assert "1 conversation is set aside" in listed.err
    assert 0 == run("projections", "run", "--once", url=database_url).status
    doctor = run("doctor", url=database_url)
    assert FOUND == doctor.status
    assert str(unwritable) in doctor.out
