"""Trajectories of OpenHands' newer SDK, whose events have a ``kind``."""

from __future__ import annotations

from typing import Any

from agent_eventstore.transcripts import detect
from agent_eventstore.transcripts.left_out import LeftOut
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import only, payloads


def event(number: int, kind: str, source: str, **fields: Any) -> dict[str, Any]:
    """Return an event."""
    at = f"2026-09-13T05:51:{number:02}.327006"
    return {"id": f"e{number}", "timestamp": at, "source": source, "kind": kind, **fields}


def text(said: str) -> dict[str, Any]:
    """Return a text as a content has it."""
    return {"type": "text", "text": said, "cache_prompt": False}


def action(number: int, response: str, tool: str, arguments: str, **fields: Any) -> dict[str, Any]:
    """Return a call of a tool."""
    call = {"id": f"call_{number}", "name": tool, "arguments": arguments, "origin": "completion"}
    told: dict[str, Any] = {
        "tool_name": tool,
        "tool_call_id": call["id"],
        "tool_call": call,
        "action": None,
    }
    told |= {"thought": [], "llm_response_id": response, "security_risk": "UNKNOWN"}
    return event(number, "ActionEvent", "agent", **told | fields)


def answered(number: int, kind: str, cause: int, **fields: Any) -> dict[str, Any]:
    """Return what a call has caused."""
    told = {"tool_call_id": f"call_{cause}", "tool_name": "terminal", "action_id": f"e{cause}"}
    return event(number, kind, "environment", **told | fields)


def observed(number: int, cause: int, **observation: Any) -> dict[str, Any]:
    """Return what a tool has returned."""
    return answered(number, "ObservationEvent", cause, observation=observation)


IMAGE = {"type": "image", "image_urls": ["https://example.com/a"]}
SAID = {"role": "user", "content": [text("List the files."), IMAGE]}
ANSWER = {"role": "assistant", "content": [text("One.")], "reasoning_content": "Only one."}
THOUGHT = {"thought": [text("I look.")], "thinking_blocks": [{"thinking": "Hm.", "signature": "s"}]}
PROMPT = {"system_prompt": text("You are OpenHands."), "dynamic_context": text("In /work.")}
EVENTS = [
    event(0, "ConversationStateUpdateEvent", "environment", key="stats", value={}),
    event(1, "SystemPromptEvent", "agent", tools=[], **PROMPT),
    event(2, "MessageEvent", "user", llm_message=SAID, extended_content=[]),
    action(3, "r1", "terminal", '{"command": "ls"}', **THOUGHT),
    action(4, "r1", "terminal", '{"command": "rm -r /"}'),
    action(5, "r1", "file_editor", "{"),
    observed(6, 3, content=[text("a.txt")], is_error=False, metadata={"exit_code": 0}),
    answered(7, "UserRejectObservation", 4, rejection_reason="Not that."),
    answered(8, "AgentErrorEvent", 5, error="bad JSON"),
    action(9, "r2", "terminal", '{"command": "false"}'),
    observed(10, 9, content=[text("x"), text("y")], is_error=False, metadata={"exit_code": 1}),
    event(11, "MessageEvent", "agent", llm_message=ANSWER, llm_response_id="r3"),
]


def test_events_become_events(write: Write) -> None:
    """Actions of one response are one answer; what has a call's id is its result."""
    path = write(EVENTS)
    assert "openhands" == detect(path)
    transcript = only(path)
    data: list[Any] = payloads(transcript)
    told, asked, answer, listed, refused, wrong, again, failed, last = data
    assert "You are OpenHands.\n\nIn /work." == told.text
    assert ("user_message", ["text", "image"]) == (asked.type, [part.kind for part in asked.parts])
    assert (e.ReasoningPart(text="Hm."), e.TextPart(text="I look.")) == answer.parts
    assert [{"command": "ls"}, {"command": "rm -r /"}, None] == [
        call.arguments for call in answer.tool_calls
    ]
    assert answer.tool_calls[2].parse_error
    version = listed.call_id.partition(".")[0]
    assert [
        (f"{version}.0", "success", "a.txt"),
        (f"{version}.1", "denied", "Not that."),
        (f"{version}.2", "failed", "bad JSON"),
    ] == [(each.call_id, each.status, each.content) for each in (listed, refused, wrong)]
    assert ({"command": "false"}, False) == (again.tool_calls[0].arguments, again.final)
    assert ("failed", ["x", "y"]) == (failed.status, [part.text for part in failed.content])
    assert (e.ReasoningPart(text="Only one."), e.TextPart(text="One.")) == last.parts
    assert last.final
    assert {"ConversationStateUpdateEvent": 1} == transcript.left_out.passed_over


def test_every_event_is_kept(write: Write) -> None:
    """But for what is passed over, and the content of a result, which its event has."""
    kept: list[Any] = []
    for data in payloads(only(write(EVENTS))):
        held = data.raw["openhands_event"]  # type: ignore[union-attr]
        kept += held if isinstance(held, list) else [held]
    expected = [
        {**each, "observation": {**each["observation"], "content": None}}
        if "observation" in each
        else each
        for each in EVENTS[1:]
    ]
    assert expected == kept


def test_what_nobody_knows_is_kept_and_counted(write: Write) -> None:
    """Kinds that are new, and those that lack what they need; older forms are read."""
    odd = [
        event(3, "Condensation", "environment", summary="Much was said.", forgotten_event_ids=[]),
        event(4, "ObservationEvent", "environment", observation=None),
        event(5, "MessageEvent", "agent", llm_message="Hi"),
    ]
    older = {"tool_call": {"function": {"name": "bash"}}, "action": {"kind": "A", "command": "ls"}}
    acted, seen = action(6, "r1", "terminal", "", **older), observed(7, 6, output="a.txt")
    *data, answer, result = payloads(only(write([EVENTS[2], *odd, acted, seen])))[1:]
    assert odd == [each.raw["openhands_event"] for each in data]  # type: ignore[union-attr]
    assert isinstance(answer, e.AssistantMessage)
    [call] = answer.tool_calls
    assert ("bash", {"command": "ls"}) == (call.name, call.arguments)
    assert isinstance(result, e.ToolResult)
    assert "a.txt" == result.content
    left = LeftOut()
    for each in data:
        left.note_event(each)
    assert {
        "message of kind Condensation": 1,
        "message of kind ObservationEvent": 1,
        "message of kind MessageEvent": 1,
    } == left.uninterpreted
