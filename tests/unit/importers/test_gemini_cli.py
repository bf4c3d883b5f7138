"""Session files of Gemini CLI, as an object and as lines, and those of Qwen Code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_eventstore import Views
from agent_eventstore.transcripts import detect, load, read_transcripts
from eventstore import EventStore
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

HEAD = {"sessionId": "s1", "projectHash": "p", "startTime": "2026-05-01T10:00:00Z"}


def _at(second: int) -> str:
    return f"2026-05-01T10:00:{second:02}.000Z"


def call(name: str, **more: Any) -> dict[str, Any]:
    """Return a call of a tool, with what the tool gave."""
    response = {"id": name, "name": name, "response": {"output": f"{name} done"}}
    result = [{"functionResponse": response | more.pop("beside", {})}]
    about = {"id": name, "name": name, "args": {"path": "/a"}, "timestamp": _at(3)}
    return {**about, "status": "success", "result": result, **more}


def said(name: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a message."""
    return {"id": name, "timestamp": _at(int(name[1:])), "type": kind, "content": content, **more}


PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
ANSWER = said(
    "m2",
    "gemini",
    "I look.",
    thoughts=[{"subject": "Plan", "description": "look first", "timestamp": _at(2)}],
    tokens={"input": 100, "output": 5, "cached": 80, "thoughts": 7, "tool": 3, "total": 115},
    model="gemini-3-pro",
    toolCalls=[
        call("list", displayName="ReadFolder"),
        call("see", beside={"parts": [PICTURE]}),
        call("write", status="cancelled", result=None),
        call("fetch", status="executing", result=None),
    ],
)
SESSION = {
    **HEAD,
    "summary": "What is there",
    "messages": [
        said("m1", "user", "what is there?"),
        ANSWER,
        said("m5", "info", "Update available."),
        said("m6", "gemini", [{"text": "Two files."}], model="gemini-3-pro", tokens=None),
    ],
}


def test_a_session_is_a_conversation(write: Write) -> None:
    """A session becomes its question, answers, calls and results, with the counts it states."""
    path = write(json.dumps(SESSION, indent=1), "session.json")
    assert "gemini-cli" == detect(path)
    transcript = only(path)
    start = transcript.events[0].data
    assert isinstance(start, e.ConversationStart)
    assert "What is there" == start.title
    question, answer, listed, seen, denied, told, last = payloads(transcript)
    assert isinstance(question, e.UserMessage)
    assert isinstance(answer, e.AssistantMessage)
    assert [e.ReasoningPart(text="Plan\nlook first"), e.TextPart(text="I look.")] == list(
        answer.parts
    )
    assert ["list", "see", "write", "fetch"] == [each.name for each in answer.tool_calls]
    assert {"path": "/a"} == answer.tool_calls[0].arguments
    assert answer.usage is not None
    assert (103, 12, 80, 7, 115) == (
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
        answer.usage.cached_prompt_tokens,
        answer.usage.reasoning_tokens,
        answer.usage.total_tokens,
    )
    results = [each for each in (listed, seen, denied) if isinstance(each, e.ToolResult)]
    assert ["success", "success", "denied"] == [each.status for each in results]
    assert ["3.0", "3.1", "3.2"] == [each.call_id for each in results]
    assert "list done" == results[0].content
    assert {"gemini_cli": {"status": "success", "displayName": "ReadFolder"}} == results[0].raw
    picture = e.ImagePart(url="data:image/png;base64,AAAA", media_type="image/png")
    assert (e.TextPart(text="see done"), picture) == results[1].content
    assert isinstance(told, e.UnknownEvent)
    assert isinstance(last, e.AssistantMessage)
    assert last.final
    assert datetime(2026, 5, 1, 10, 0, 6, tzinfo=UTC) == transcript.events[-1].meta.occurred_at


def test_lines_are_put_together(write_lines: Write, tmp_path: Path) -> None:
    """A message that comes again replaces the earlier one, and a rewind leaves what it names."""
    lines = [
        {**HEAD, "kind": "main"},
        said("m1", "user", [{"text": "what is there?"}]),
        said("m2", "gemini", "I loo"),
        ANSWER,
        {"$set": {"summary": "What is there"}},
        {"$rewindTo": "m1"},
        said("m7", "user", [{"text": "who are you?"}]),
        said("m8", "gemini", "An agent."),
    ]
    path = write_lines(*lines)
    store = EventStore.open(f"sqlite:///{tmp_path}/gemini.db")
    report = load(store, read_transcripts(path))
    assert ([], 1, "gemini-cli") == (report.failures, report.conversations, detect(path))
    view = Views(store).context(report.ids[0])
    assert ["who are you?", "An agent."] == [message["content"] for message in view.messages]
    assert 1 == len([row for row in store.read(report.ids[0]) if row.type == "branch_switch"])
    assert (0, 1) == ((again := load(store, read_transcripts(path))).events_added, again.unchanged)
    store.close()


def _sent(name: str, called: str) -> dict[str, Any]:
    """Return the message with a tool's result, which newer versions add to the call's own."""
    return said(name, "user", call(called)["result"])


def test_a_list_of_messages_replaces_the_one_before(write_lines: Write, tmp_path: Path) -> None:
    """What a new list lacks leaves the context, and an import of the grown file goes on."""
    lines: list[Any] = [
        {**HEAD, "kind": "main"},
        said("m1", "user", [{"text": "what is there?"}]),
        said("m2", "gemini", "I look.", toolCalls=[call("list")]),
        _sent("m3", "list"),
        said("m4", "info", "Compressing."),
        said("m5", "gemini", "Two files."),
    ]
    store = EventStore.open(f"sqlite:///{tmp_path}/gemini.db")
    report = load(store, read_transcripts(write_lines(*lines)))
    asked = [{"functionCall": {"id": "list", "name": "list", "args": {"path": "/a"}}}]
    kept = {"messages": [lines[1], {**lines[2], "content": asked}, said("m3", "user", "masked")]}
    lines += [
        {"$set": kept | {"lastUpdated": _at(6)}},
        said("m6", "gemini", "Three files."),
        {"$set": {"messages": [said("m7", "user", "<snapshot>"), said("m8", "gemini", asked)]}},
        _sent("m9", "list"),
    ]
    again = load(store, read_transcripts(write_lines(*lines)))
    assert ([], 1, 6) == (again.failures, again.conversations, again.events_added)
    assert {"result that occurs twice": 1} == dict(again.left_out.passed_over)
    view = Views(store).context(report.ids[0])
    assert ["<snapshot>", None, "list done"] == [
        message.get("content") for message in view.messages
    ]
    switches = [row.data for row in store.read(report.ids[0]) if row.type == "branch_switch"]
    kinds = [each.kind for each in switches if isinstance(each, e.BranchSwitch)]
    assert ["answer", "message"] == kinds
    store.close()


def test_a_subagents_session_names_its_parent(write_lines: Write) -> None:
    """A subagent's file lies in the directory of the session that opened it."""
    message = said("m1", "user", "find it")
    inner = write_lines({**HEAD, "kind": "subagent"}, message, name="chats/s0/s1.jsonl")
    outer = write_lines({**HEAD, "kind": "main"}, message, name="chats/session-s0.jsonl")
    parent = only(inner).parent
    assert parent is not None
    assert ("gemini-cli", ("id", "s0")) == (parent.format, parent.place)
    assert only(outer).parent is None


def test_what_is_broken_is_told(write: Write) -> None:
    """A message that is no object, and a session of none, are reported."""
    broken = {**SESSION, "messages": ["m", *SESSION["messages"]]}
    transcripts, failures = found(write(json.dumps(broken), "broken.json"))
    assert (["1: a message must be an object"], 1) == (failures, len(transcripts))
    assert ([], ["1: there are no messages"]) == found(write(json.dumps(HEAD), "empty.json"))


def test_sessions_of_qwen_code_are_read(write_lines: Write) -> None:
    """Qwen Code has lines as Claude Code's with contents of Gemini's, and counts of its own."""
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 3}
    lines = [
        {"type": "user", "message": {"role": "user", "parts": [{"text": "what is there?"}]}},
        {
            "type": "assistant",
            "model": "qwen3",
            "usageMetadata": counts | {"totalTokenCount": 13},
            "message": {
                "role": "model",
                "parts": [
                    {"text": "look first", "thought": True},
                    {"functionCall": {"id": "c1", "name": "list", "args": {"path": "/a"}}},
                ],
            },
        },
        {
            "type": "tool_result",
            "message": {"role": "user", "parts": [call("c1")["result"][0]]},
            "toolCallResult": {"callId": "c1", "status": "success"},
        },
    ]
    named = [
        {"uuid": f"u{n}", "parentUuid": f"u{n - 1}", "sessionId": "q", "timestamp": _at(n), **line}
        for n, line in enumerate(lines, start=1)
    ]
    path = write_lines(*named)
    assert "claude-code" == detect(path)
    transcript = only(path)
    assert transcript.stream is not None
    _, question, answer, result = (
        item.data for item in transcript.stream.read({}) if isinstance(item, e.NewEvent)
    )
    assert isinstance(question, e.UserMessage)
    assert isinstance(answer, e.AssistantMessage)
    assert answer.usage is not None
    assert (9, 4) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    assert e.Invocation(model="qwen3") == answer.invocation
    assert isinstance(result, e.ToolResult)
    assert ("3.0", "c1 done") == (result.call_id, result.content)
