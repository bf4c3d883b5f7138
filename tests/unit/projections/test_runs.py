"""Run mode's state."""

from __future__ import annotations

from typing import Any

from eventstore import events as e
from projections.models.runs import RUNS, OpenCall, RunState
from tests.unit.projections.history import CONVERSATION, Entry, apply, fold, history, rows

RUN = e.RunStart(
    run_id="r",
    workflow_id="w",
    directive="Write a report",
    nodes=(e.RunNode(node_id="plan", brief="Plan it"), e.RunNode(node_id="write")),
)
PLAN = e.RunStepStart(run_id="r", node_id="plan")
SEARCH = e.ToolCallRequest(name="search", arguments_text="{}")
ASK = e.AssistantMessage.of(None, tool_calls=(SEARCH, SEARCH))


def state(*entries: Entry) -> dict[str, Any]:
    """Return the conversation's row of state after the entries."""
    return rows(RUNS, "conversation_state", *entries)[0]


def nodes(*entries: Entry) -> dict[str, dict[str, Any]]:
    """Return the nodes after the entries, by their id."""
    return {row["node_id"]: row for row in rows(RUNS, "run_nodes", *entries)}


def test_a_run_begins_with_its_nodes_pending() -> None:
    """The nodes keep the order of the workflow."""
    found = nodes(RUN)
    assert [("plan", 0, "pending"), ("write", 1, "pending")] == [
        (name, row["ordinal"], row["status"]) for name, row in found.items()
    ]


def test_a_step_makes_its_node_active() -> None:
    """The run, the node and the conversation agree on the active node."""
    entries = (RUN, PLAN)
    run = rows(RUNS, "runs", *entries)[0]
    assert ("plan", "active", "plan") == (
        run["active_node"],
        nodes(*entries)["plan"]["status"],
        state(*entries)["active_node"],
    )


def test_a_step_without_a_brief_keeps_the_workflows() -> None:
    """A brief that was told at the start of the run still stands."""
    assert "Plan it" == nodes(RUN, PLAN)["plan"]["brief"]


def test_a_second_visit_is_counted() -> None:
    """A node that is done again is active again, with its visits counted."""
    done = e.RunStepEnd(run_id="r", node_id="plan", status="completed")
    row = nodes(RUN, PLAN, done, PLAN)["plan"]
    assert (2, "active", None) == (row["visits"], row["status"], row["ended_at"])


def test_a_node_that_the_workflow_did_not_name_comes_last() -> None:
    """A workflow may grow while it runs."""
    assert 2 == nodes(RUN, e.RunStepStart(run_id="r", node_id="more"))["more"]["ordinal"]


def test_the_end_of_a_step_brings_its_artifacts() -> None:
    """Artifacts belong to their node, and no node is active afterwards."""
    made = (e.Artifact(name="report", path="a.md"),)
    entries = (RUN, PLAN, e.RunStepEnd(run_id="r", node_id="plan", status="failed", artifacts=made))
    assert [("plan", "report", "a.md")] == [
        (row["node_id"], row["name"], row["path"]) for row in rows(RUNS, "run_artifacts", *entries)
    ]
    assert state(*entries)["active_node"] is None


def test_a_completed_run_goes_on_under_its_protocol() -> None:
    """Later requests still render the completed run's directive, without a node."""
    end = e.RunEnd(run_id="r", status="completed", post_run_protocol="Answer questions")
    run = rows(RUNS, "runs", RUN, PLAN, end)[0]
    row = state(RUN, PLAN, end)
    assert ("completed", "Answer questions") == (run["status"], run["post_run_protocol"])
    assert ("r", None) == (row["active_run_id"], row["active_node"])


def test_a_failed_run_is_active_no_more() -> None:
    """The node that it left open ends as the run did."""
    entries = (RUN, PLAN, e.RunEnd(run_id="r", status="failed"))
    assert (None, "failed") == (
        state(*entries)["active_run_id"],
        nodes(*entries)["plan"]["status"],
    )


def test_after_a_second_run_the_first_is_active_again() -> None:
    """Two runs of one conversation are told apart."""
    second = e.RunStart(run_id="s", workflow_id="w")
    row = state(RUN, PLAN, second, e.RunEnd(run_id="s", status="cancelled"))
    assert ("r", "plan") == (row["active_run_id"], row["active_node"])


def test_open_calls_are_those_without_a_result() -> None:
    """A call is requested, then running with its key, then gone."""
    run = e.ToolCall(call_id="1.1", name="search", idempotency_key="k")
    row = state(ASK, run, e.ToolResult(call_id="1.0", content="ok"))
    assert [
        {
            "call_id": "1.1",
            "name": "search",
            "status": "running",
            "run_id": None,
            "idempotency_key": "k",
        }
    ] == row["open_calls"]


def test_a_call_whose_result_came_first_is_not_open() -> None:
    """An answered call is not executed again."""
    early = e.ToolResult(call_id="2.0", content="early")
    found = [call["call_id"] for call in state(early, ASK)["open_calls"]]
    assert ["2.1"] == found


def test_a_stand_in_closes_a_call_until_it_is_executed_again() -> None:
    """An idempotent tool may run again after recovery."""
    sealed = e.ToolResult(call_id="1.0", status="not_started")
    again = e.ToolCall(call_id="1.0", name="search")
    found = state(ASK, e.ToolResult(call_id="1.1", content="ok"), sealed, again)["open_calls"]
    assert [("1.0", "running")] == [(call["call_id"], call["status"]) for call in found]


def test_the_newest_notebook_and_instruction_stand() -> None:
    """What later requests render is what was last written."""
    row = state(
        e.Notebook(text="old"), e.SystemInstruction(text="Be brief"), e.Notebook(text="new")
    )
    assert ("new", 3, "Be brief") == (
        row["notebook"],
        row["notebook_version"],
        row["system_instruction"],
    )


def test_a_mode_that_was_told_outweighs_what_events_carry() -> None:
    """A late event of the old mode does not switch back."""
    row = state(
        e.ConversationStart(mode="agent"),
        e.ModeSwitch(mode="run"),
        (e.UserMessage.text("hello"), e.Meta(mode="agent")),
    )
    assert "run" == row["mode"]


def test_chunks_change_no_row() -> None:
    """Streaming costs this projection nothing."""
    chunk = e.AssistantChunk(llm_call_id="a", index=0, text="x")
    _, changes = fold(RUNS, history(chunk))
    assert [] == list(changes)


def test_the_state_comes_together_from_its_rows() -> None:
    """The object has the runs, nodes and open calls of the tables."""
    _, changes = fold(RUNS, history(RUN, PLAN, ASK))
    tables = apply(changes, RUNS)
    own = {
        name: [{**row, "conversation_id": CONVERSATION} for row in found.values()]
        for name, found in tables.items()
    }
    found = RunState.from_rows(
        CONVERSATION, own["conversation_state"][0], own["runs"], own["run_nodes"]
    )
    assert found.active_run == found.runs[0]
    assert ["plan", "write"] == [node.node_id for node in found.nodes]
    assert OpenCall(call_id="3.0", name="search", status="requested") == found.calls[0]


def test_a_conversation_without_rows_has_an_empty_state() -> None:
    """Nothing has happened yet."""
    found = RunState.from_rows(CONVERSATION, None)
    assert (None, (), None) == (found.mode, found.calls, found.active_run)
