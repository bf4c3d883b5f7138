"""Trajectories of OpenHands: actions become calls, and what they have caused their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.transcripts import detect, load, read_transcripts
from agent_eventstore.transcripts.left_out import LeftOut
from eventstore import EventStore
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads


def action(number: int, kind: str, source: str = "agent", **args: Any) -> dict[str, Any]:
    """Return an action."""
    at = f"2025-03-01T12:00:{number:02}"
    return {"id": number, "timestamp": at, "source": source, "action": kind, "args": args}


def observed(number: int, kind: str, content: str, cause: int, **extras: Any) -> dict[str, Any]:
    """Return what an action has caused."""
    at = f"2025-03-01T12:00:{number:02}"
    told = {"observation": kind, "content": content, "cause": cause, "extras": extras}
    return {"id": number, "timestamp": at, "source": "environment", **told}


CALLED = {"function_name": "execute_bash", "model_response": {"id": "r1", "model": "gpt-5"}}
EVENTS: list[dict[str, Any]] = [
    action(0, "system", content="You are OpenHands."),
    action(1, "message", "user", content="List the files.", image_urls=["https://example.com/a"]),
    observed(2, "agent_state_changed", "", 1, agent_state="running"),
    {**action(3, "run", command="ls", thought="I look."), "tool_call_metadata": CALLED},
    {**action(4, "read", path="a.txt"), "tool_call_metadata": {**CALLED, "function_name": "read"}},
    observed(5, "run", "a.txt", 3, metadata={"exit_code": 0}),
    observed(6, "error", "no such file", 4),
    action(7, "think", thought="Only one."),
    observed(8, "think", "Your thought has been logged.", 7),
    action(9, "finish", final_thought="There is one file."),
]


@pytest.mark.parametrize("content", [EVENTS, [{"instance_id": "i", "history": EVENTS}]])
def test_events_become_events(write: Write, content: Any) -> None:
    """Actions of one reply are one answer; each observation answers its action."""
    path = write(content)
    assert "openhands" == detect(path)
    transcript = only(path)
    told, asked, answer, first, second, thought, last = payloads(transcript)
    assert isinstance(told, e.SystemInstruction)
    assert isinstance(asked, e.UserMessage)
    assert isinstance(answer, e.AssistantMessage)
    assert isinstance(first, e.ToolResult)
    assert isinstance(second, e.ToolResult)
    assert isinstance(thought, e.AssistantMessage)
    assert isinstance(last, e.AssistantMessage)
    assert ["text", "image"] == [part.kind for part in asked.parts]
    assert [("execute_bash", {"command": "ls"}), ("read", {"path": "a.txt"})] == [
        (call.name, call.arguments) for call in answer.tool_calls
    ]
    assert ("I look.", "gpt-5") == (answer.parts[0].text, answer.invocation.model)  # type: ignore[union-attr]
    assert [("4.0", "success", "a.txt"), ("4.1", "failed", "no such file")] == [
        (result.call_id, result.status, result.content) for result in (first, second)
    ]
    assert (e.ReasoningPart(text="Only one."),) == thought.parts
    assert ((e.TextPart(text="There is one file."),), True) == (last.parts, last.final)
    assert {"agent_state_changed": 1, "think": 1} == transcript.left_out.passed_over
    assert not transcript.left_out.unknown


def test_every_event_is_kept(write: Write) -> None:
    """But for the text of a result, which its event has."""
    kept: list[Any] = []
    for data in payloads(only(write(EVENTS))):
        held = data.raw["openhands_event"]  # type: ignore[union-attr]
        kept += held if isinstance(held, list) else [held]
    passed_over = (2, 8)
    expected = [each for each in EVENTS if each["id"] not in passed_over]
    assert kept == [{**each, "content": None} if "cause" in each else each for each in expected]


def test_what_nobody_knows_is_kept_and_counted(write: Write) -> None:
    """Observations that nothing has caused, actions of others, and what is neither."""
    odd = [observed(2, "recall", "Knowledge.", 99), action(3, "fly", "environment"), {"id": 4}]
    data = payloads(only(write([EVENTS[1], *odd]), force=True))[1:]
    assert odd == [each.raw["openhands_event"] for each in data]  # type: ignore[union-attr]
    left = LeftOut()
    for each in data:
        left.note_event(each)
    assert {
        "message of observation recall": 1,
        "message of action fly": 1,
        "message of no type": 1,
    } == left.uninterpreted


def test_what_is_no_event_is_reported(write: Write) -> None:
    """A conversation with a hole would tell another story."""
    transcripts, failures = found(write([*EVENTS, 3]), "openhands")
    assert ([], ["1: event 11 is not an object"]) == (transcripts, failures)


def test_a_trajectory_that_has_grown_is_the_same_conversation(write: Write, tmp_path: Path) -> None:
    """Its first event tells by its time; without times two are the same only if all is.

    An import that ended between two actions of one answer was refused from then on.
    """
    store = EventStore.open(f"sqlite:///{tmp_path}/a.db")
    for length in (*range(2, len(EVENTS) + 1), len(EVENTS)):
        report = load(store, read_transcripts(write(EVENTS[:length])))
        assert [] == report.failures
        assert 1 == len(store.list())
    assert 1 == report.unchanged
    timeless = [{k: v for k, v in each.items() if k != "timestamp"} for each in EVENTS[:3]]
    load(store, read_transcripts(write(timeless[:2])))
    load(store, read_transcripts(write(timeless)))
    assert 3 == len(store.list())
    store.close()
