"""Calls, results and summaries that programs write in older or other forms reach the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import load, read_transcripts
from eventstore.events import ToolResult

USER_4 = {"id": "1", "role": "user", "content": "how warm?"}
CALL_4 = {"state": "result", "toolCallId": "c1", "toolName": "weather", "args": {"a": 1}}
DONE_4 = {**CALL_4, "result": {"t": 57}}


def imported(path: Path, content: Any, name: str = "file.json") -> tuple[EventStore, Any]:
    """Import a file whose format is detected; return the store and the one conversation's id."""
    file = path / name
    lines = "".join(json.dumps(each) + "\n" for each in content)
    file.write_text(lines if name.endswith("l") else json.dumps(content), "utf-8")
    store = EventStore.open(f"sqlite:///{path}/store.db")
    report = load(store, read_transcripts(file))
    assert 0 == report.failed
    (stream,) = store.list()
    return store, stream.conversation_id


def sent(store: EventStore, conversation_id: Any) -> str:
    """Return a request's messages as text."""
    view = Views(store).context(conversation_id)
    return json.dumps([dict(each) for each in view.messages], ensure_ascii=False)


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "2", "role": "assistant", "content": "mild", "toolInvocations": [DONE_4]},
        {
            "id": "2",
            "role": "assistant",
            "content": "mild",
            "toolInvocations": [{**DONE_4, "step": 0}, {**DONE_4, "toolCallId": "c2", "step": 1}],
        },
    ],
)
def test_invocations_of_version_4_of_the_ai_sdk(tmp_path: Path, answer: dict[str, Any]) -> None:
    """They stand beside the text, and what they returned came before it."""
    store, cid = imported(tmp_path, [USER_4, answer, {**USER_4, "id": "3", "content": "and now?"}])

    found = sent(store, cid)
    assert found.index("weather") < found.index("57") < found.index("mild") < found.index("and now")
    calls = Views(store).tool_calls(conversation_id=cid)
    assert {"success"} == {call.status for call in calls}
    assert len(answer["toolInvocations"]) == len(calls)


@pytest.mark.parametrize(
    ("result", "status", "shown"),
    [
        ({"output": {"type": "json", "value": {"t": 57}}}, "success", "57"),
        ({"output": {"type": "text", "value": "57 degrees"}}, "success", "57 degrees"),
        ({"output": {"type": "error-text", "value": "no such place"}}, "failed", "no such place"),
        ({"output": {"type": "execution-denied", "reason": "never"}}, "failed", "never"),
        ({"result": {"t": 57}}, "success", "57"),
        ({"result": "broken", "isError": True}, "failed", "broken"),
    ],
)
def test_model_messages_of_the_ai_sdk(
    tmp_path: Path, result: dict[str, Any], status: str, shown: str
) -> None:
    """Versions 4 and 5 name the fields in their own ways."""
    arguments = {"args": {"a": 1}} if "result" in result else {"input": {"a": 1}}
    named = {"toolCallId": "c1", "toolName": "weather"}
    call = {"type": "tool-call", **named, **arguments}
    store, cid = imported(
        tmp_path,
        [
            {"role": "user", "content": [{"type": "text", "text": "how warm?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I look"}, call]},
            {"role": "tool", "content": [{"type": "tool-result", **named, **result}]},
            {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        ],
    )

    (found,) = Views(store).tool_calls(conversation_id=cid)
    assert ("weather", status, {"a": 1}) == (found.name, found.status, found.arguments)
    assert shown in sent(store, cid)


@pytest.mark.parametrize(
    ("kwargs", "result"),
    [
        (
            {"tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": "{}"}}]},
            {"type": "tool", "content": "57 degrees", "tool_call_id": "c1"},
        ),
        (
            {"function_call": {"name": "weather", "arguments": "{}"}},
            {"type": "function", "content": "57 degrees", "name": "weather"},
        ),
    ],
)
def test_calls_that_langchain_keeps_beside_the_content(
    tmp_path: Path, kwargs: dict[str, Any], result: dict[str, Any]
) -> None:
    """Rows of older versions have them nowhere else; a function message is their result."""
    rows = [
        {"type": "human", "data": {"content": "q", "type": "human"}},
        {"type": "ai", "data": {"content": "", "type": "ai", "additional_kwargs": kwargs}},
        {"type": result["type"], "data": result},
        {"type": "human", "data": {"content": "r", "type": "human"}},
    ]
    store, cid = imported(tmp_path, rows)

    (call,) = Views(store).tool_calls(conversation_id=cid)
    assert ("weather", "success") == (call.name, call.status)
    assert "57 degrees" in sent(store, cid)


def test_lines_of_qwen_with_one_uuid(tmp_path: Path) -> None:
    """A thought and its answer have one id; the same line twice is one."""

    def line(uuid: str, parent: str | None, kind: str, part: dict[str, Any]) -> dict[str, Any]:
        role = "user" if kind == "user" else "model"
        about = {"sessionId": "0190a0b0-0000-7000-8000-00000000000a", "cwd": "/x", "version": "0.2"}
        return {
            **{"uuid": uuid, "parentUuid": parent, "type": kind, **about},
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": {"role": role, "parts": [part]},
        }

    answer = line("q2", "q1", "assistant", {"text": "the answer"})
    thought = line("q2", "q1", "assistant", {"text": "hm", "thought": True})
    store, cid = imported(
        tmp_path, [line("q1", None, "user", {"text": "why?"}), thought, answer, answer], "q.jsonl"
    )

    assert 1 == sent(store, cid).count("the answer")


def test_a_compaction_of_codex_by_its_history(tmp_path: Path) -> None:
    """What the new history has beside known prompts is the summary; answers before it are gone."""

    def said_line(role: str, text: str) -> dict[str, Any]:
        kind = "input_text" if role == "user" else "output_text"
        return {
            "type": "response_item",
            "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
        }

    history = [said_line("user", text)["payload"] for text in ("old question", "did x before")]
    meta = {"id": "019f0000-1111-7000-8000-000000000001", "cwd": "/w", "cli_version": "0.150.0"}
    lines = [
        {"type": "session_meta", "payload": {**meta, "timestamp": "2026-01-01T00:00:00.000Z"}},
        said_line("user", "old question"),
        said_line("assistant", "old answer"),
        {"type": "compacted", "payload": {"message": "", "replacement_history": history}},
        said_line("user", "new question"),
    ]
    dated = [{"timestamp": f"2026-01-01T00:00:0{n}.000Z", **each} for n, each in enumerate(lines)]
    store, cid = imported(tmp_path, dated, "rollout.jsonl")

    found = sent(store, cid)
    assert "did x before" in found
    assert 1 == found.count("old question")
    assert "old answer" not in found


@pytest.mark.parametrize(
    "forgotten",
    [
        {"forgotten_event_ids": [1, 2]},
        {"forgotten_events_start_id": 1, "forgotten_events_end_id": 2},
    ],
)
def test_a_condensation_of_openhands(tmp_path: Path, forgotten: dict[str, Any]) -> None:
    """It stands for the events that it names, and is no call."""
    args = {"thought": "look", "command": "ls"}
    condensed = {**forgotten, "summary": "did ls", "summary_offset": 1}
    events: list[dict[str, Any]] = [
        {"source": "user", "action": "message", "args": {"content": "q"}, "message": "q"},
        {"source": "agent", "action": "run", "args": args},
        {"source": "agent", "observation": "run", "cause": 1, "content": "a.txt", "extras": {}},
        {"source": "agent", "action": "condensation", "args": condensed},
        {"source": "user", "action": "message", "args": {"content": "more"}, "message": "more"},
    ]
    dated = [
        {"id": n, "timestamp": f"2026-01-01T00:00:0{n}", **each} for n, each in enumerate(events)
    ]
    store, cid = imported(tmp_path, dated)

    found = sent(store, cid)
    assert found.index('"q"') < found.index("did ls") < found.index("more")
    assert "a.txt" not in found
    assert "TOOL_RESULT_MISSING" not in found
    assert 1 == len(Views(store).tool_calls(conversation_id=cid))


def test_two_messages_of_a_chatgpt_tool_are_one_result(tmp_path: Path) -> None:
    """A quote and what was shown: the second was in no view."""

    def node(n: int, role: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
        author = {"role": role, "name": more.pop("name", None), "metadata": {}}
        message = {"id": f"n{n}", "author": author, "content": content, "recipient": "all", **more}
        parent, children = f"n{n - 1}" if n else None, [f"n{n + 1}"] if n < 4 else []
        return {"id": f"n{n}", "parent": parent, "children": children, "message": message}

    def text(words: str) -> dict[str, Any]:
        return {"content_type": "text", "parts": [words]}

    code = {"content_type": "code", "language": "unknown", "text": 'search("x")'}
    nodes = [
        node(0, "user", text("look")),
        node(1, "assistant", code, recipient="browser"),
        node(2, "tool", text("a quote"), name="browser"),
        node(3, "tool", text("what was shown"), name="browser"),
        node(4, "assistant", text("found")),
    ]
    conversation = {
        **{"title": "t", "create_time": 1.7e9, "current_node": "n4", "conversation_id": "c"},
        "mapping": {each["id"]: each for each in nodes},
    }
    store, cid = imported(tmp_path, [conversation])

    found = sent(store, cid)
    assert found.index("a quote") < found.index("what was shown") < found.index("found")
    results = [e.data for e in store.read(cid) if isinstance(e.data, ToolResult)]
    assert 1 == len(results)
