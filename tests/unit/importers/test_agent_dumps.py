"""Histories of other programs: every text, thought, call and result comes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import Transcript, detect, load, read_transcripts
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

PYDANTIC_AI: list[dict[str, Any]] = [
    {
        "kind": "request",
        "instructions": "Be brief.",
        "parts": [
            {"part_kind": "system-prompt", "content": "You water plants."},
            {
                "part_kind": "user-prompt",
                "content": ["How dry is it?", {"kind": "image-url", "url": "https://a.test/p.png"}],
                "timestamp": "2026-02-01T08:00:00Z",
            },
        ],
    },
    {
        "kind": "response",
        "parts": [
            {"part_kind": "thinking", "content": "I need the sensor."},
            {"part_kind": "tool-call", "tool_name": "sensor", "args": '{"pot": 4}'},
        ],
        "usage": {"input_tokens": 80, "output_tokens": 12},
        "model_name": "gpt-4o",
        "timestamp": "2026-02-01T08:00:02Z",
    },
    {
        "kind": "request",
        "parts": [
            {"part_kind": "tool-return", "tool_name": "sensor", "content": {"moisture": 11}},
        ],
    },
    {"kind": "response", "parts": [{"part_kind": "text", "content": "Very dry: 11 percent."}]},
]
PYDANTIC_AI[1]["parts"][1]["tool_call_id"] = "call_4"
PYDANTIC_AI[2]["parts"][0]["tool_call_id"] = "call_4"
ADK: dict[str, Any] = {
    "id": "s-1",
    "appName": "garden",
    "userId": "ada",
    "state": {"pot": 4},
    "events": [
        {
            "author": "user",
            "content": {"role": "user", "parts": [{"text": "How dry is it?"}]},
            "timestamp": 1_772_000_000.5,
            "id": "e1",
        },
        {
            "author": "gardener",
            "content": {
                "role": "model",
                "parts": [{"functionCall": {"id": "f1", "name": "sensor", "args": {"pot": 4}}}],
            },
            "actions": {"stateDelta": {}},
            "id": "e2",
        },
        {
            "author": "gardener",
            "content": {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "f1",
                            "name": "sensor",
                            "response": {"moisture": 11},
                        }
                    }
                ],
            },
            "id": "e3",
        },
        {"author": "gardener", "actions": {"stateDelta": {"dry": True}}, "id": "e4"},
        {
            "author": "gardener",
            "partial": True,
            "content": {"role": "model", "parts": [{"text": "Very"}]},
            "id": "e5",
        },
        {
            "author": "gardener",
            "content": {
                "role": "model",
                "parts": [
                    {"text": "I need the sensor.", "thought": True},
                    {"text": "Very dry: 11 percent."},
                ],
            },
            "id": "e6",
        },
    ],
}
AI_STUDIO: dict[str, Any] = {
    "runSettings": {"model": "models/gemini-2.5-pro"},
    "systemInstruction": {"parts": [{"text": "You water plants."}]},
    "chunkedPrompt": {
        "chunks": [
            {"text": "How dry is it?", "role": "user", "tokenCount": 5},
            {"driveImage": {"id": "1AbC"}, "role": "user"},
            {"text": "I need the sensor.", "role": "model", "isThought": True},
            {"text": "Very dry: 11 percent.", "role": "model", "finishReason": "STOP"},
        ],
        "pendingInputs": [],
    },
}
_CALL = {"id": "call_4", "name": "sensor", "arguments": {"pot": 4}, "requestor": "assistant"}
_LOOK = {"id": "u1", "name": "look", "arguments": {}, "requestor": "user"}
TAU2: dict[str, Any] = {
    "timestamp": "2026-02-25T10:00:00",
    "info": {"agent_info": {"llm": "gpt-4o"}},
    "tasks": [{"id": "7"}],
    "simulations": [
        {
            "id": "sim-1",
            "task_id": "7",
            "start_time": "2026-02-25T10:00:00",
            "reward_info": {"reward": 1.0},
            "messages": [
                {"role": "assistant", "content": "Hi! How can I help?", "turn_idx": 0},
                {"role": "user", "content": None, "tool_calls": [_LOOK]},
                {"id": "u1", "role": "tool", "content": "It droops.", "requestor": "user"},
                {"role": "user", "content": "How dry is it?", "tool_calls": None},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [_CALL],
                    "usage": {"prompt_tokens": 40, "completion_tokens": 5},
                },
                {
                    "id": "call_4",
                    "role": "tool",
                    "content": '{"moisture": 11}',
                    "requestor": "assistant",
                    "error": False,
                },
                {
                    "role": "assistant",
                    "content": "Very dry: 11 percent.",
                    "reasoning_content": "I need the sensor.",
                },
            ],
        }
    ],
}
VSCODE: dict[str, Any] = {
    "version": 3,
    "sessionId": "4f",
    "creationDate": 1_772_000_000_000,
    "customTitle": "Pots",
    "responderUsername": "GitHub Copilot",
    "requests": [
        {
            "requestId": "request_1",
            "responseId": "response_1",
            "timestamp": 1_772_000_000_000,
            "modelId": "copilot/gpt-4o",
            "message": {"text": "How dry is it?", "parts": []},
            "response": [
                {"kind": "thinking", "value": "I need the sensor."},
                {"value": "Reading "},
                {"kind": "inlineReference", "inlineReference": {"path": "/src/pots.py"}},
                {"value": "."},
                {
                    "kind": "toolInvocationSerialized",
                    "toolId": "copilot_sensor",
                    "toolCallId": "0a",
                    "isComplete": True,
                    "invocationMessage": {"value": "Reading the sensor"},
                },
                {"kind": "undoStop", "id": "x"},
                {"value": "Very dry: 11 percent."},
            ],
            "result": {
                "metadata": {
                    "promptTokens": 40,
                    "outputTokens": 5,
                    "toolCallRounds": [
                        {
                            "toolCalls": [
                                {"id": "call_4", "name": "sensor", "arguments": '{"pot": 4}'}
                            ]
                        }
                    ],
                    "toolCallResults": {"call_4": {"content": [{"value": '{"moisture": 11}'}]}},
                }
            },
        }
    ],
}
DUMPS = {
    "pydantic-ai": PYDANTIC_AI,
    "google-adk": ADK,
    "ai-studio": AI_STUDIO,
    "tau2-bench": TAU2,
    "vscode-copilot": VSCODE,
}


@pytest.mark.parametrize("name", DUMPS)
def test_every_text_is_there(write: Write, name: str) -> None:
    """Questions, thoughts and answers, each of who said it."""
    path = write(DUMPS[name])
    assert name == detect(path)
    data = payloads(only(path))
    users = [each for each in data if isinstance(each, e.UserMessage)]
    answers = [each for each in data if isinstance(each, e.AssistantMessage)]
    assert "How dry is it?" in str(users)
    assert "Very dry: 11 percent." in str(answers[-1])
    assert "I need the sensor." in str(
        [p for a in answers for p in a.parts if p.kind == "reasoning"]
    )
    written = str(data)
    assert [] == [each for each in _SPECIAL[name] if each not in written]


_SPECIAL = {
    "pydantic-ai": ("You water plants.", "https://a.test/p.png", "'pot': 4", "moisture", "gpt-4o"),
    "google-adk": ("'pot': 4", "moisture"),
    "ai-studio": ("[driveImage 1AbC]",),
    "tau2-bench": ("Hi! How can I help?", "'pot': 4", "moisture", "It droops."),
    "vscode-copilot": ("Reading `pots.py`.", "'pot': 4", "moisture", "gpt-4o", "completion_tokens"),
}


@pytest.mark.parametrize("name", ["pydantic-ai", "google-adk", "tau2-bench", "vscode-copilot"])
def test_a_call_has_its_result(write: Write, tmp_path: Path, name: str) -> None:
    """The tool audit shows it as a success, with what it returned."""
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(write(DUMPS[name])), strict=True)
        [row] = Views(store).tool_calls()
        assert ("sensor", "success") == (row.name, row.status)
        [tool] = [
            each for each in Views(store).timeline(row.conversation_id) if each.kind == "tool"
        ]
        assert ({"pot": 4}, {"moisture": 11}) == (tool.arguments, json.loads(tool.text or ""))


@pytest.mark.parametrize("name", DUMPS)
@pytest.mark.parametrize("form", ["openai_chat", "anthropic_messages", "openai_responses"])
def test_requests_are_valid_and_a_second_import_adds_nothing(
    write: Write, tmp_path: Path, name: str, form: Any
) -> None:
    """The conversation can go on with any provider."""
    path = write(DUMPS[name])
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(path), strict=True)
        assert 0 == load(store, read_transcripts(path), strict=True).events_added
        [entry] = Views(store).conversations()
        store.append(entry.conversation_id, e.UserMessage.text("Go on."))
        view = Views(store).context(entry.conversation_id, format=form, model="gpt-4o")
        assert "Go on." in str(view.messages[-1])


def test_a_history_that_has_grown(write: Write, tmp_path: Path) -> None:
    """Of a longer history only the new messages are added."""
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(write(PYDANTIC_AI[:2])), strict=True)
        report = load(store, read_transcripts(write(PYDANTIC_AI)), strict=True)
        assert (2, 1) == (report.events_added, len(Views(store).conversations()))


def test_what_is_passed_over_is_counted(write: Write) -> None:
    """Pieces that a whole event repeats, and events that only change state."""
    passed_over = only(write(ADK)).left_out.passed_over
    assert {"piece of a stream": 1, "event without content": 1} == passed_over


def test_a_retry_is_a_failed_result(write: Write) -> None:
    """The model's call was refused by the framework, with its reason."""
    part = {"part_kind": "retry-prompt", "tool_name": "sensor", "tool_call_id": "call_4"}
    retry = {"kind": "request", "parts": [{**part, "content": "pot must be a name"}]}
    [result] = [
        each
        for each in payloads(only(write([*PYDANTIC_AI[:2], retry])))
        if isinstance(each, e.ToolResult)
    ]
    assert ("failed", True) == (result.status, "pot must be a name" in str(result))


@pytest.mark.parametrize("name", DUMPS)
def test_damage_is_reported(write: Write, name: str) -> None:
    """Under its name, a file of something else is refused, not read halfway."""
    transcripts, failures = found(write([{"role": "user", "content": "hi"}]), name)
    assert ([], 1) == (transcripts, len(failures))


def _log_of_changes() -> list[dict[str, Any]]:
    """Return the session of VS Code as the editor writes it while somebody talks."""
    [request] = VSCODE["requests"]
    empty = {**request, "response": [{"value": "Thinking"}], "result": None}
    place = ["requests", 0]
    return [
        {"kind": 0, "v": {**VSCODE, "requests": [], "customTitle": None}},
        {"kind": 1, "k": ["inputState"], "v": {"text": "How"}},
        {"kind": 2, "k": ["requests"], "v": [empty]},
        {"kind": 2, "k": [*place, "response"], "v": request["response"][:3], "i": 0},
        {"kind": 2, "k": [*place, "response"], "v": request["response"][3:]},
        {"kind": 1, "k": [*place, "result"], "v": request["result"]},
        {"kind": 1, "k": ["customTitle"], "v": "Pots"},
        {"kind": 3, "k": ["inputState"]},
    ]


def test_a_log_of_changes_is_the_session(tmp_path: Path) -> None:
    """VS Code keeps a session as changes; applied, they are what it exports."""
    path = tmp_path / "4f.jsonl"
    path.write_text("\n".join(map(json.dumps, _log_of_changes())), "utf-8")
    whole = tmp_path / "chat.json"
    whole.write_text(json.dumps(VSCODE), "utf-8")
    assert "vscode-copilot" == detect(path)
    assert payloads(only(path))[1:] == payloads(only(whole))[1:]
    assert only(path).left_out.passed_over == {"undoStop": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 2, "k": ["requests", 10**9], "v": [1]},
        {"kind": 1, "k": ["requests", -1, "result"], "v": {}},
        {"kind": 1, "k": []},
        {"kind": 9, "k": ["requests"]},
        {"kind": 2, "k": ["version"], "v": [1]},
        {"kind": 1, "k": ["requests", 0, 5], "v": 1},
        [],
        "text",
    ],
)
def test_a_change_of_nothing_is_reported(tmp_path: Path, change: Any) -> None:
    """What was said before it is there all the same."""
    path = tmp_path / "4f.jsonl"
    lines = [*_log_of_changes(), change, {"kind": 1, "k": ["customTitle"], "v": "Lost"}]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    failure, session = read_transcripts(path, "vscode-copilot", force=True)
    assert "it changes no place of the session" in str(failure)
    assert isinstance(session, Transcript)
    assert "Very dry: 11 percent." in str(payloads(session))


def test_a_run_of_several_simulations(write: Write) -> None:
    """Each is a conversation; what a user's own tool says last is counted."""
    [run] = TAU2["simulations"]
    looked = {"id": "u1", "role": "tool", "content": "Green.", "requestor": "user"}
    other = {**run, "id": "sim-2", "messages": [*run["messages"], looked]}
    both = read_transcripts(write({**TAU2, "simulations": [run, other]}))
    left_out = [each.left_out.passed_over for each in both if isinstance(each, Transcript)]
    assert [0, 1] == [sum(each.values()) for each in left_out]


def test_a_session_that_goes_on(tmp_path: Path) -> None:
    """Imported after each line that the editor writes, it is complete, and nothing is refused."""
    path, lines = tmp_path / "4f.jsonl", [json.dumps(each) for each in _log_of_changes()]
    again = {**VSCODE["requests"][0], "requestId": "request_2", "responseId": "response_2"}
    lines.append(json.dumps({"kind": 2, "k": ["requests"], "v": [again]}))
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for length in range(1, len(lines) + 1):
            path.write_text("\n".join(lines[:length]) + "\n", "utf-8")
            load(store, read_transcripts(path, "vscode-copilot", force=True), strict=True)
        [entry] = Views(store).conversations()
        texts = [item.text for item in Views(store).timeline(entry.conversation_id)]
    assert 2 == texts.count("How dry is it?") == texts.count("Very dry: 11 percent.")
