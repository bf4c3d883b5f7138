"""The audit table of tool calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from eventstore import events as e
from projections.engine.folding import CLOSED_LIMIT
from projections.models.tool_calls import TOOL_CALLS, ToolCallRow
from tests.unit.projections.history import CONVERSATION, START, Entry, rows

SEARCH = e.ToolCallRequest(
    name="search", arguments_text='{"q": 1}', arguments={"q": 1}, provider_id="call_1"
)
ASK = e.AssistantMessage.of(None, llm_call_id="a", tool_calls=(SEARCH,))
RUN = e.ToolCall(call_id="1.0", name="search", idempotency_key="k")


def calls(*entries: Entry) -> list[dict[str, Any]]:
    """Return the rows of the entries."""
    return rows(TOOL_CALLS, "tool_calls", *entries)


def test_a_request_makes_a_row_with_all_that_the_model_wrote() -> None:
    """The row names the message, the arguments as text and parsed, and the day."""
    row = calls((ASK, e.Meta(turn=2, actor="jo")))[0]
    expected = {
        "call_id": "1.0",
        "call_version": 1,
        "call_index": 0,
        "provider_id": "call_1",
        "llm_call_id": "a",
        "arguments": {"q": 1},
        "arguments_text": '{"q": 1}',
        "status": "requested",
        "requested_at": START + timedelta(seconds=1),
        "turn": 2,
        "actor": "jo",
        "day": "2026-03-01",
        "withdrawn": False,
    }
    assert expected == {name: row[name] for name in expected}


def test_an_execution_is_running_until_its_result() -> None:
    """A call that was never answered is not shown as done."""
    row = calls(ASK, RUN)[0]
    assert ("running", "k", 2) == (row["status"], row["idempotency_key"], row["started_version"])


def test_a_result_without_a_duration_is_timed_from_the_execution() -> None:
    """The time before the execution is not the tool's."""
    row = calls(ASK, e.UserMessage.text("go"), RUN, e.ToolResult(call_id="1.0", content="ok"))[0]
    assert ("success", 1000, 4) == (row["status"], row["duration_ms"], row["result_version"])


def test_the_duration_of_the_result_itself_counts_most() -> None:
    """The tool's own clock is nearer than the store's."""
    row = calls(ASK, RUN, e.ToolResult(call_id="1.0", content="ok", duration_ms=7))[0]
    assert 7 == row["duration_ms"]


def test_one_provider_id_twice_makes_two_rows() -> None:
    """Providers use an id twice; results go by our own id."""
    found = calls(
        ASK,
        ASK,
        e.ToolResult(call_id="2.0", content="second", provider_id="call_1"),
        e.ToolResult(call_id="1.0", content="first", provider_id="call_1"),
    )
    assert ["first", "second"] == [row["result_text"] for row in found]


def test_a_result_whose_call_was_never_seen_makes_a_row() -> None:
    """An auditor sees a result even if the request was erased."""
    row = calls("assistant_message", e.ToolResult(call_id="1.0", name="search", content="ok"))[0]
    assert ("search", "success", 2) == (row["name"], row["status"], row["requested_version"])


def test_a_request_after_its_result_completes_the_row() -> None:
    """Whatever order the events came in, the call is answered."""
    row = calls(e.ToolResult(call_id="2.0", content="early"), ASK)[0]
    assert ("success", "early", "a") == (row["status"], row["result_text"], row["llm_call_id"])


def test_a_late_result_replaces_a_stand_in_and_its_error() -> None:
    """Nothing of ``outcome_unknown`` is left once the outcome is known."""
    row = calls(
        ASK,
        RUN,
        e.ToolResult(call_id="1.0", status="outcome_unknown", error="interrupted"),
        e.ToolResult(call_id="1.0", content="late"),
    )[0]
    assert ("success", "late", None) == (row["status"], row["result_text"], row["error"])


def test_a_call_that_runs_again_has_no_outcome() -> None:
    """A stand-in says nothing of an execution that came after it."""
    unknown = e.ToolResult(
        call_id="1.0", status="outcome_unknown", content="?", error="killed", duration_ms=5
    )
    assert calls(ASK, RUN, unknown, RUN)[0] == {
        **calls(ASK, RUN, unknown, RUN)[0],
        **dict.fromkeys(("ended_at", "duration_ms", "result_text", "result_size_chars")),
        **dict.fromkeys(("result_size_bytes", "error", "result_version")),
        "status": "running",
    }
    late = calls(ASK, RUN, unknown, RUN, e.ToolResult(call_id="1.0", content="done"))[0]
    assert ("success", "done", 5, 1000) == (
        late["status"],
        late["result_text"],
        late["result_version"],
        late["duration_ms"],
    )


def test_neither_a_duplicate_nor_a_stand_in_replaces_a_result() -> None:
    """The table says what the model was told."""
    row = calls(
        ASK,
        e.ToolResult(call_id="1.0", content="first"),
        e.ToolResult(call_id="1.0", content="second"),
        e.ToolResult(call_id="1.0", status="outcome_unknown"),
    )[0]
    assert ("success", "first", 2) == (row["status"], row["result_text"], row["result_version"])


def test_a_duplicate_is_known_as_long_as_the_limit_says() -> None:
    """The memory of answered calls has the documented length."""
    first = e.ToolResult(call_id="a", content="first")
    others = [e.ToolResult(call_id=f"b{n}", content="x") for n in range(CLOSED_LIMIT - 1)]
    again = e.ToolResult(call_id="a", content="second")
    assert "first" == calls(first, *others, again)[0]["result_text"]


def test_a_result_in_a_blob_tells_its_size_in_bytes() -> None:
    """The table holds the preview, and where the whole is."""
    blob = e.BlobRef(digest="ab", size_bytes=70_000)
    row = calls(e.ToolResult(call_id="1.0", blob=blob, preview="The st", alias="@state/x"))[0]
    assert ("The st", None, 70_000, "ab", "@state/x") == (
        row["result_text"],
        row["result_size_chars"],
        row["result_size_bytes"],
        row["blob_digest"],
        row["alias"],
    )


def test_sizes_are_those_of_the_whole_text() -> None:
    """Characters and bytes differ outside ASCII, and a lone surrogate is not an obstacle."""
    row = calls(e.ToolResult(call_id="1.0", content="é\ud800"))[0]
    assert (2, 5) == (row["result_size_chars"], row["result_size_bytes"])


def test_a_retraction_marks_the_calls_of_the_message() -> None:
    """The audit keeps the call, and tells that it was withdrawn."""
    found = calls(ASK, ASK, e.Retraction(versions=(e.VersionRange(first=2, last=2),)))
    assert [False, True] == [row["withdrawn"] for row in found]


def test_a_row_comes_back_as_its_class() -> None:
    """The class and the table have the same columns."""
    row = ToolCallRow.from_row({**calls(ASK)[0], "conversation_id": CONVERSATION})
    assert ("1.0", {"q": 1}, None) == (row.call_id, row.arguments, row.ended_at)
