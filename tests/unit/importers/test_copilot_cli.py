"""Session files of GitHub Copilot's CLI: events of a session, line by line."""

from __future__ import annotations

from typing import Any

from agent_eventstore.transcripts import Transcript, detect
from eventstore import NewEvent
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only


def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
    """Return a line."""
    at = f"2026-03-01T10:00:{number:02}Z"
    return {"type": kind, "data": data, "id": f"e{number}", "timestamp": at, "parentId": None}


CALLS = [
    {"toolCallId": "a", "name": "bash", "arguments": {"command": "ls"}, "type": "function"},
    {"toolCallId": "b", "name": "edit", "arguments": {"path": "x"}},
]
LINES = [
    event(0, "session.start", sessionId="s1", copilotVersion="1.0", selectedModel="m1"),
    event(1, "system.message", content="Be an agent."),
    event(2, "user.message", content="what is there?", transformedContent="what is there? now"),
    event(3, "assistant.turn_start", turnId="0"),
    event(
        4,
        "assistant.message",
        messageId="x1",
        content="I look.",
        reasoningText="look first",
        outputTokens=12,
        toolRequests=CALLS,
    ),
    event(5, "tool.execution_start", toolCallId="a", toolName="bash"),
    event(6, "tool.execution_complete", toolCallId="b", success=False, error={"code": "denied"}),
    event(7, "tool.execution_complete", toolCallId="a", success=True, result={"content": "files"}),
    event(8, "assistant.message", content="for the other", parentToolCallId="a"),
    event(9, "session.model_change", newModel="m2"),
    event(10, "assistant.message", messageId="x2", content="Two files."),
    event(11, "session.error", message="slow down", statusCode=429),
    event(12, "session.compaction_complete", success=True, summaryContent="They are two."),
    event(13, "session.snapshot_rewind", upToEventId="e2", eventsRemoved=1),
]


def _payloads(transcript: Transcript) -> list[Any]:
    assert transcript.stream is not None
    return [item for item in transcript.stream.read({}) if isinstance(item, NewEvent)]


def test_a_session_is_a_conversation(write_lines: Write) -> None:
    """What was said, called, given and summed up becomes events; the rest is told."""
    path = write_lines(*LINES)
    assert "copilot-cli" == detect(path)
    transcript = only(path)
    events = _payloads(transcript)
    assert [
        *("conversation_start", "system_instruction", "user_message", "assistant_message"),
        *("tool_result", "tool_result", "assistant_message", "assistant_message"),
        *("llm_error", "summary"),
    ] == [each.data.type for each in events]
    _, told, asked, answer, denied, listed, aside, last, failed, summary = events
    assert "Be an agent." == told.data.text
    assert (e.TextPart(text="what is there?"),) == asked.data.parts
    assert {"copilot_cli": {"transformedContent": "what is there? now"}} == asked.data.raw
    assert (e.ReasoningPart(text="look first"), e.TextPart(text="I look.")) == answer.data.parts
    assert [("bash", {"command": "ls"}), ("edit", {"path": "x"})] == [
        (call.name, call.arguments) for call in answer.data.tool_calls
    ]
    assert 12 == answer.data.usage.completion_tokens
    assert [("denied", "4.1"), ("success", "4.0")] == [
        (each.data.status, each.data.call_id) for each in (denied, listed)
    ]
    assert "files" == listed.data.content
    assert (False, "a") == (aside.meta.in_context, aside.meta.agent_id)
    assert ["m1", "m1", "m2"] == [each.data.invocation.model for each in (answer, aside, last)]
    assert ("rate_limit", 429) == (failed.data.kind, failed.data.status_code)
    assert "They are two." == summary.data.text
    left = transcript.stream.left_out if transcript.stream else None
    assert left is not None
    assert {"session.snapshot_rewind": 1} == dict(left.unknown)
    passed = {"assistant.turn_start", "tool.execution_start", "session.model_change"}
    assert passed == set(left.passed_over)


def test_a_session_without_a_start(write_lines: Write) -> None:
    """A stream that was kept without its beginning is a conversation too; a broken line is told."""
    path = write_lines(*LINES[1:3], {"type": "user.message"}, "{")
    assert "copilot-cli" == detect(path)
    transcripts, failures = found(path)
    assert ([], 1) == (failures, len(transcripts))
    assert transcripts[0].stream is not None
    read = list(transcripts[0].stream.read({}))
    assert 2 == len([each for each in read if not isinstance(each, NewEvent)])


def test_what_an_event_does_not_hold_is_kept_beside_it(write_lines: Write) -> None:
    """Other fields of a request and of an error, and a text that is not one."""
    asked = {"toolCallId": "a", "name": "bash", "arguments": {}, "intentionSummary": "to look"}
    error = {"message": "it broke", "code": "failure", "stack": "line 1"}
    failed: dict[str, Any] = {
        "errorType": "query",
        "message": "429",
        "statusCode": 429,
        "stack": "line 2",
    }
    path = write_lines(
        event(0, "user.message", content=[{"text": "hi"}]),
        event(1, "assistant.message", messageId="m", content=None, toolRequests=[asked]),
        event(2, "tool.execution_complete", toolCallId="a", success=False, error=error),
        event(3, "session.error", **failed),
    )
    kept = [each.data.raw["copilot_cli"] for each in _payloads(only(path))[1:]]
    assert [
        {"content": [{"text": "hi"}]},
        {"toolRequests": [{"intentionSummary": "to look"}]},
        {"error": {"code": "failure", "stack": "line 1"}},
        {"errorType": "query", "stack": "line 2"},
    ] == kept
