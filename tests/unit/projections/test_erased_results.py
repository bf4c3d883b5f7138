"""Erased tool results: the audit, the timeline, the run state and the open work agree."""

from __future__ import annotations

from typing import Any

from eventstore import events as e
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS
from projections.models.timeline import TIMELINE
from projections.models.tool_calls import TOOL_CALLS
from tests.unit.projections.history import Entry, rows

SEARCH = e.ToolCallRequest(name="search", arguments_text="{}", arguments={})
ASK = e.AssistantMessage.of(None, llm_call_id="a", tool_calls=(SEARCH, SEARCH))
FIRST = e.ToolCall(call_id="1.0", name="search")
SECOND = e.ToolCall(call_id="1.1", name="search")


def statuses(*entries: Entry) -> dict[str, Any]:
    """Return the status of each call in the audit and the timeline, after checking the others."""
    audit = {row["call_id"]: row["status"] for row in rows(TOOL_CALLS, "tool_calls", *entries)}
    items = rows(TIMELINE, "timeline_items", *entries)
    shown = {item["call_id"]: item["status"] for item in items if item["kind"] == "tool"}
    assert audit == shown
    left = [own_id for own_id, status in audit.items() if status in ("requested", "running")]
    state = rows(RUNS, "conversation_state", *entries)[0]
    assert left == sorted(call["call_id"] for call in state["open_calls"])
    work = rows(OPEN_WORK, "open_work", *entries)[0]
    assert left == sorted(call["call_id"] for call in work["tool_calls"])
    return audit


def test_an_erased_result_leaves_no_call_running() -> None:
    """Each erased result closes a call, whose outcome nobody knows any more."""
    one = statuses(ASK, FIRST, SECOND, "tool_result")
    assert {"1.0": "outcome_unknown", "1.1": "running"} == one
    assert {"outcome_unknown"} == set(
        statuses(ASK, FIRST, SECOND, "tool_result", "tool_result").values()
    )


def test_an_erased_result_without_an_open_call_closes_nothing() -> None:
    """A second result of an answered call is ignored, erased or not."""
    done = (ASK, FIRST, e.ToolResult(call_id="1.0", content="ok"))
    both = (*done, SECOND, e.ToolResult(call_id="1.1", content="ok"), "tool_result")
    assert {"1.0": "success", "1.1": "success"} == statuses(*both)


def test_a_call_executed_again_is_the_newest_open_call() -> None:
    """An erased result after it belongs to the call that has been open longer."""
    sealed = e.ToolResult(call_id="1.0", status="not_started")
    found = statuses(ASK, sealed, FIRST, "tool_result")
    assert {"1.0": "running", "1.1": "outcome_unknown"} == found


def test_a_call_that_waits_for_a_task_is_not_taken_for_one_of_a_later_turn() -> None:
    """All views but the open work gave its outcome to the call that had been open longest."""
    turns = [e.Meta(session_id="s", turn=number) for number in (1, 2)]
    replaced = e.TurnEnd(status="aborted", reason="replaced")
    waits = [(each, turns[0]) for each in (ASK, FIRST, e.ToolResult(call_id="1.1"), replaced)]
    later = [e.ToolCall(call_id=own_id, name="search") for own_id in ("5.0", "5.1")]
    asked: list[Entry] = [*waits, *((each, turns[1]) for each in (ASK, *later))]

    both = {"1.0": "running", "1.1": "success", "5.0": "outcome_unknown", "5.1": "running"}
    assert both == statuses(*asked, "tool_result")
    ended = {**both, "5.1": "outcome_unknown"}
    assert ended == statuses(*asked, "tool_result", "tool_result")
    assert {**ended, "1.0": "outcome_unknown"} == statuses(*asked, *["tool_result"] * 3)
