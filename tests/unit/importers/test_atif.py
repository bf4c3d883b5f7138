"""Trajectories in ATIF: steps become what was said, called and seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Views
from agent_eventstore.transcripts import detect, load
from eventstore import EventStore
from eventstore import events as e
from tests.checkers import check_openai_messages
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads


def call(named: str, **given: Any) -> dict[str, Any]:
    """Return a call."""
    return {"tool_call_id": named, "function_name": "bash", "arguments": given}


STEPS: list[dict[str, Any]] = [
    {"step_id": 1, "source": "system", "message": "You are an agent."},
    {
        "step_id": 2,
        "source": "user",
        "timestamp": "2026-01-01T10:00:00Z",
        "message": [
            {"type": "text", "text": "List the files."},
            {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
        ],
    },
    {
        "step_id": 3,
        "source": "agent",
        "model_name": "gpt-5",
        "message": "I look.",
        "reasoning_content": "Two ways.",
        "tool_calls": [call("c1", cmd="ls"), call("c2", cmd="pwd")],
        "observation": {
            "results": [
                {"source_call_id": "c2", "content": "/work"},
                {"source_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
            ]
        },
        "metrics": {"prompt_tokens": 90, "completion_tokens": 12, "cached_tokens": 80},
    },
    {
        "step_id": 4,
        "source": "agent",
        "message": "I wait.",
        "observation": {"results": [{"content": "$ _"}]},
    },
    {
        "step_id": 5,
        "source": "agent",
        "message": "",
        "tool_calls": [call("c3", cmd="ls -a")],
        "observation": {"results": [{"content": "a.txt .b"}]},
    },
    {"step_id": 6, "source": "agent", "message": "Two files."},
]
TRAJECTORY: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "session_id": "run-1",
    "trajectory_id": "main",
    "agent": {"name": "terminus", "version": "2", "model_name": "gpt-5-mini"},
    "steps": STEPS,
}


@pytest.mark.parametrize("content", [TRAJECTORY, [TRAJECTORY]])
def test_steps_become_events(write: Write, content: Any) -> None:
    """An answer has its thoughts, calls, tokens and model; each result answers its call."""
    path = write(content)
    assert "atif" == detect(path)
    told, asked, answer, second, first, waits, seen, again, third, last = payloads(only(path))
    assert isinstance(told, e.SystemInstruction)
    assert isinstance(asked, e.UserMessage)
    assert isinstance(answer, e.AssistantMessage)
    assert isinstance(first, e.ToolResult)
    assert isinstance(second, e.ToolResult)
    assert isinstance(waits, e.AssistantMessage)
    assert isinstance(seen, e.UserMessage)
    assert isinstance(again, e.AssistantMessage)
    assert isinstance(third, e.ToolResult)
    assert isinstance(last, e.AssistantMessage)
    image = e.FilePart(path="images/a.png", media_type="image/png")
    assert (e.TextPart(text="List the files."), image) == asked.parts
    assert ["reasoning", "text"] == [part.kind for part in answer.parts]
    assert [("bash", {"cmd": "ls"}), ("bash", {"cmd": "pwd"})] == [
        (each.name, each.arguments) for each in answer.tool_calls
    ]
    assert answer.usage is not None
    assert (90, 12, 80) == (
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
        answer.usage.cached_prompt_tokens,
    )
    assert ["gpt-5", "gpt-5-mini"] == [
        each.invocation and each.invocation.model for each in (answer, last)
    ]
    assert [("4.0", (e.TextPart(text="a.txt"),)), ("4.1", "/work"), ("9.0", "a.txt .b")] == [
        (each.call_id, each.content) for each in (first, second, third)
    ]
    assert (e.TextPart(text="$ _"),) == seen.parts
    assert [True, ()] == [last.final, again.parts]


def test_its_views(write: Write, tmp_path: Path) -> None:
    """The audit has each call, and a request is one that a provider takes."""
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        report = load(store, [only(write(TRAJECTORY))])
        views = Views(store)
        (cid,) = report.ids
        assert not report.left_out.uninterpreted
        assert ["success"] * 3 == [row.status for row in views.tool_calls(conversation_id=cid)]
        assert [] == check_openai_messages(views.context(cid).messages)
        assert 0 == load(store, [only(write(TRAJECTORY))]).events_added


def test_subagents_within_are_conversations(write: Write, tmp_path: Path) -> None:
    """Each has its own steps, and names the trajectory that holds it."""
    inner = {**TRAJECTORY, "trajectory_id": "sub", "steps": STEPS[:3]}
    transcripts, failures = found(write({**TRAJECTORY, "subagent_trajectories": [inner, {}]}))
    assert ["1: a subagent's trajectory has no steps"] == failures
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        main, sub = load(store, transcripts).ids
        rows = {row.conversation_id: row for row in Views(store).conversations()}
        assert str(main) == rows[sub].parent_conversation_id


def test_what_has_no_place_is_kept(write: Write, tmp_path: Path) -> None:
    """Fields besides, odd calls, and a step of anybody else: kept, and the last two are told."""
    odd = {
        "step_id": 1,
        "source": "agent",
        "message": "hm",
        "extra": {"a": 1},
        "tool_calls": [7, {**call("c1"), "extra": {"b": 2}}],
        "observation": {"results": [8], "note": "n"},
    }
    other = {"step_id": 2, "source": "critic", "message": "well"}
    transcript = only(write({**TRAJECTORY, "steps": [odd, other]}))
    answer, unknown = payloads(transcript)
    assert isinstance(answer, e.AssistantMessage)
    assert isinstance(unknown, e.UnknownEvent)
    kept = {key: odd[key] for key in ("extra", "tool_calls", "observation")}
    assert {"atif_step": kept} == answer.raw
    assert {"atif_step": other} == unknown.raw
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        assert 2 == sum(load(store, [transcript]).left_out.uninterpreted.values())


def test_a_broken_step_leaves_the_trajectory_out(write: Write) -> None:
    """A trajectory with a hole would tell another story."""
    transcripts, failures = found(write({**TRAJECTORY, "steps": [*STEPS, 7]}))
    assert ([], ["1: step 7 is not an object"]) == (transcripts, failures)
