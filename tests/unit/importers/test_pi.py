"""Session files of pi: messages that are a tree, compactions, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_eventstore import Views
from agent_eventstore.transcripts import detect, load, read_transcripts
from eventstore import EventStore, NewEvent
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only


def line(number: int, kind: str, parent: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a line that follows another, or else the one before."""
    after = None if number == 0 else f"n{number - 1 if parent is None else parent}"
    at = f"2026-03-01T10:00:{number:02}Z"
    return {"type": kind, "id": f"n{number}", "parentId": after, "timestamp": at, **more}


def said(number: int, role: str, content: Any, parent: int | None = None, **more: Any) -> Any:
    """Return a line that is a message."""
    return line(number, "message", parent, message={"role": role, "content": content, **more})


PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
ANSWER: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "look first"},
    {"type": "text", "text": "I look."},
    {"type": "toolCall", "id": "a", "name": "bash", "arguments": {"command": "ls"}},
]
USAGE = {"input": 10, "output": 5, "cacheRead": 100, "cacheWrite": 20, "totalTokens": 135}
LINES = [
    {"type": "session", "version": 3, "id": "s", "timestamp": "2026-03-01T10:00:00Z", "cwd": "/w"},
    line(0, "model_change", modelId="m"),
    said(1, "user", "what is there?"),
    said(
        2, "assistant", ANSWER, provider="anthropic", model="m", usage=USAGE, stopReason="toolUse"
    ),
    said(3, "toolResult", [{"type": "text", "text": "x"}, PICTURE], toolCallId="a", isError=True),
    said(4, "assistant", [], errorMessage="429 rate limit", stopReason="error"),
    said(5, "user", [{"type": "text", "text": "who are you?"}], parent=0),
    said(6, "assistant", [{"type": "text", "text": "An agent."}]),
    said(7, "user", "go on"),
    line(8, "compaction", summary="Something was there.", firstKeptEntryId="n7"),
    line(9, "session_info", name="Looking"),
    line(10, "branch_summary", summary="left"),
]


def test_a_session_is_a_conversation(write_lines: Write, tmp_path: Path) -> None:
    """Messages become events, a prompt after an earlier line leaves a branch, the rest is told."""
    path = write_lines(*LINES)
    assert "pi" == detect(path)
    transcript = only(path)
    assert transcript.stream is not None
    events = [item.data for item in transcript.stream.read({}) if isinstance(item, NewEvent)]
    _, asked, answer, result, empty, failed, switch, *_, summary, renamed = events
    assert isinstance(asked, e.UserMessage)
    assert isinstance(answer, e.AssistantMessage)
    assert [e.ReasoningPart(text="look first"), e.TextPart(text="I look.")] == list(answer.parts)
    assert [("bash", {"command": "ls"})] == [(c.name, c.arguments) for c in answer.tool_calls]
    assert answer.usage is not None
    assert (130, 5, 100) == (
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
        answer.usage.cached_prompt_tokens,
    )
    assert isinstance(result, e.ToolResult)
    assert ("3.0", "failed") == (result.call_id, result.status)
    picture = e.ImagePart(url="data:image/png;base64,AAAA", media_type="image/png")
    assert (e.TextPart(text="x"), picture) == result.content
    assert isinstance(empty, e.AssistantMessage)
    assert isinstance(failed, e.LlmError)
    assert "rate_limit" == failed.kind
    assert isinstance(switch, e.BranchSwitch)
    assert isinstance(summary, e.Summary)
    assert isinstance(renamed, e.ConversationUpdate)
    store = EventStore.open(f"sqlite:///{tmp_path}/pi.db")
    report = load(store, read_transcripts(path))
    assert ({"branch_summary": 1}, {"model_change": 1}) == (
        dict(report.left_out.unknown),
        dict(report.left_out.passed_over),
    )
    sent = [str(each["content"]) for each in Views(store).context(report.ids[0]).messages]
    assert "Something was there." in sent[0]
    assert ["who are you?", "go on"] == sent[1:]  # the task, and the newest prompt
    store.close()


def test_what_is_broken_is_told(write_lines: Write) -> None:
    """A line without a type is reported, and so is a file without a head."""
    transcripts, failures = found(write_lines(*LINES[:3], {"id": "n9"}, name="broken"))
    assert ([], 1) == (failures, len(transcripts))
    assert transcripts[0].stream is not None
    told = [each for each in transcripts[0].stream.read({}) if not isinstance(each, NewEvent)]
    assert ["a line must be an object with a type"] == [each.reason for each in told]
    _, failures = found(write_lines(*LINES[1:3], name="headless"), "pi")
    assert ["1: none of the first 200 lines is the head of a session"] == failures


def test_thinking_keeps_its_signature(write_lines: Write, tmp_path: Path) -> None:
    """Anthropic and Google get theirs back."""
    signed = {"type": "thinking", "thinking": "look", "thinkingSignature": "c2ln"}
    sealed = {**signed, "redacted": True}
    called = {**ANSWER[2], "thoughtSignature": "dGhvdWdodA=="}
    lines = [
        LINES[0],
        said(0, "user", "what is there?"),
        said(1, "assistant", [signed, sealed, called], api="anthropic-messages", model="m"),
        said(2, "assistant", [signed], api="google-generative-ai", model="g"),
        said(3, "user", "go on"),
    ]
    store = EventStore.open(f"sqlite:///{tmp_path}/pi.db")
    report = load(store, read_transcripts(write_lines(*lines)))
    of_anthropic, of_google = [
        event.data
        for event in store.read(report.ids[0])
        if isinstance(event.data, e.AssistantMessage)
    ]
    redacted = e.ReasoningPart(text="", raw={"type": "redacted_thinking", "data": "c2ln"})
    assert (e.ReasoningPart(text="look", signature="c2ln"), redacted) == of_anthropic.parts
    assert {"thoughtSignature": "dGhvdWdodA=="} == of_anthropic.raw["pi"]["content"][2]
    thought = {"thoughtSignature": "c2ln"}
    assert (e.ReasoningPart(text="look", signature="c2ln", raw=thought),) == of_google.parts
    assert [{"thinkingSignature": "c2ln"}] == of_google.raw["pi"]["content"]
    view = Views(store).context(report.ids[0], format="anthropic_messages")
    thought, hidden, *_ = view.messages[1]["content"]
    assert {"type": "thinking", "thinking": "look", "signature": "c2ln"} == thought
    assert {"type": "redacted_thinking", "data": "c2ln"} == hidden
    store.close()
