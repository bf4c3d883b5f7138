"""Exports of claude.ai, LibreChat and Open WebUI: every text, call and branch comes in."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import detect, load, read_transcripts
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, payloads

CLAUDE_AI: dict[str, Any] = {
    "uuid": "6f1e",
    "name": "Pots on the balcony",
    "created_at": "2026-03-01T10:00:00Z",
    "account": {"uuid": "acc"},
    "chat_messages": [
        {
            "uuid": "m1",
            "sender": "human",
            "text": "Which pots hold off frost?",
            "content": [{"type": "text", "text": "Which pots hold off frost?"}],
            "attachments": [{"file_name": "list.txt", "extracted_content": "clay, zinc, wood"}],
            "files": [{"file_name": "balcony.jpg"}],
            "created_at": "2026-03-01T10:00:01Z",
        },
        {
            "uuid": "m2",
            "sender": "assistant",
            "text": "",
            "content": [
                {"type": "thinking", "thinking": "Clay cracks; look it up."},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "name": "web_search", "input": {"query": "frost pots"}},
                {
                    "type": "tool_result",
                    "name": "web_search",
                    "content": [{"type": "text", "text": "Fibre cement survives frost."}],
                },
                {"type": "token_budget"},
                {"type": "text", "text": "Take fibre cement."},
            ],
            "parent_message_uuid": "m1",
            "created_at": "2026-03-01T10:00:09Z",
        },
        {
            "uuid": "m3",
            "sender": "human",
            "text": "And wood?",
            "content": [],
            "parent_message_uuid": "m2",
        },
        {
            "uuid": "m4",
            "sender": "human",
            "text": "And zinc?",
            "content": [],
            "parent_message_uuid": "m2",
        },
        {
            "uuid": "m5",
            "sender": "assistant",
            "text": "Zinc is fine.",
            "content": [],
            "parent_message_uuid": "m4",
        },
    ],
}
LIBRECHAT: dict[str, Any] = {
    "conversationId": "c-9",
    "title": "Trains",
    "endpoint": "openAI",
    "messages": [
        {
            "messageId": "1",
            "parentMessageId": "00000000-0000-0000-0000-000000000000",
            "sender": "User",
            "isCreatedByUser": True,
            "text": "When does the night train leave?",
            "createdAt": "2026-03-01T10:00:01Z",
            "children": [
                {
                    "messageId": "2",
                    "parentMessageId": "1",
                    "isCreatedByUser": False,
                    "text": "",
                    "model": "gpt-4o",
                    "content": [
                        {"type": "think", "think": "I need the timetable."},
                        {"type": "text", "text": {"value": "One moment."}},
                        {
                            "type": "tool_call",
                            "tool_call": {
                                "id": "call_1",
                                "name": "timetable",
                                "args": '{"line": "NJ 40"}',
                                "output": "leaves at 21:52",
                            },
                        },
                        {"type": "text", "text": "It leaves at 21:52."},
                    ],
                    "children": [],
                },
                {
                    "messageId": "3",
                    "parentMessageId": "1",
                    "isCreatedByUser": False,
                    "text": "I do not know that train.",
                },
            ],
        }
    ],
}
_CALL = (
    '<details type="tool_calls" done="true" id="call_7" name="depth" '
    'arguments="&quot;{\\&quot;lake\\&quot;: \\&quot;Vico\\&quot;}&quot;" '
    'result="&quot;48 metres&quot;" files="">\n<summary>Tool Executed</summary>\n</details>\n'
)
OPEN_WEBUI: dict[str, Any] = {
    "id": "w-1",
    "user_id": "u",
    "title": "Lakes",
    "chat": {
        "models": ["qwen3"],
        "history": {
            "currentId": "b",
            "messages": {
                "a": {
                    "id": "a",
                    "parentId": None,
                    "childrenIds": ["b", "d"],
                    "role": "user",
                    "content": "How deep is Lake Vico?",
                    "timestamp": 1_772_000_000,
                },
                "b": {
                    "id": "b",
                    "parentId": "a",
                    "childrenIds": [],
                    "role": "assistant",
                    "model": "qwen3",
                    "content": '<details type="reasoning" done="true" duration="3">\n'
                    "<summary>Thought for 3 seconds</summary>\n&gt; I should look.\n</details>\n"
                    f"I ask.\n{_CALL}It is 48 metres deep.",
                    "done": True,
                },
                "d": {
                    "id": "d",
                    "parentId": "a",
                    "childrenIds": [],
                    "role": "assistant",
                    "content": "About 50 metres.",
                },
            },
        },
    },
}
EXPORTS = {"claude-ai": CLAUDE_AI, "librechat": LIBRECHAT, "open-webui": OPEN_WEBUI}
TEXTS = {
    "claude-ai": (
        *("hold off frost", "clay, zinc, wood", "balcony.jpg", "Clay cracks", "Let me look."),
        *("frost pots", "survives frost", "Take fibre cement", "And wood?", "Zinc is fine."),
    ),
    "librechat": (
        *("night train", "need the timetable", "One moment.", "NJ 40", "leaves at 21:52"),
        *("It leaves", "do not know that train"),
    ),
    "open-webui": (
        *("How deep", "I should look.", "I ask.", "Vico", "48 metres", "deep.", "About 50"),
    ),
}


def _answers(path: Path) -> list[e.AssistantMessage]:
    transcripts, failures = found(path)
    assert failures == []
    return [
        data
        for each in transcripts
        for data in payloads(each)
        if isinstance(data, e.AssistantMessage)
    ]


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("many", [False, True])
def test_every_text_is_there(write: Write, name: str, many: bool) -> None:
    """One conversation or an array; texts, thoughts, arguments, results, files, both branches."""
    path = write([EXPORTS[name]] if many else EXPORTS[name])
    assert name == detect(path)
    transcripts, failures = found(path)
    assert ([], 2) == (failures, len(transcripts))
    written = "".join(str(data) for each in transcripts for data in payloads(each))
    assert [] == [text for text in TEXTS[name] if text not in written]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("claude-ai", ("web_search", {"query": "frost pots"}, "Fibre cement survives frost.")),
        ("librechat", ("timetable", {"line": "NJ 40"}, "leaves at 21:52")),
        ("open-webui", ("depth", {"lake": "Vico"}, "48 metres")),
    ],
)
def test_a_call_has_its_result(
    write: Write, tmp_path: Path, name: str, call: tuple[str, dict[str, str], str]
) -> None:
    """Also where the program gives calls no ids, or hides them in the text."""
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(write(EXPORTS[name])), strict=True)
        rows = Views(store).tool_calls()
        assert {(call[0], "success")} == {(row.name, row.status) for row in rows}
        [*shown] = Views(store).timeline(rows[0].conversation_id)
        [tool] = [item for item in shown if item.kind == "tool"]
        assert call[1:] == (tool.arguments, tool.text)


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("form", ["openai_chat", "anthropic_messages", "openai_responses"])
def test_requests_are_valid_and_a_second_import_adds_nothing(
    write: Write, tmp_path: Path, name: str, form: Any
) -> None:
    """Each branch can go on, and is known again."""
    path = write(EXPORTS[name])
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        first = load(store, read_transcripts(path), strict=True)
        again = load(store, read_transcripts(path), strict=True)
        assert (2, 0) == (first.conversations, again.events_added)
        for entry in Views(store).conversations():
            store.append(entry.conversation_id, e.UserMessage.text("Go on."))
            view = Views(store).context(entry.conversation_id, format=form, model="gpt-4o")
            assert "Go on." in str(view.messages[-1])


def _grown(name: str) -> dict[str, Any]:
    value = copy.deepcopy(EXPORTS[name])
    if name == "claude-ai":
        more = {"uuid": "m6", "sender": "human", "text": "Thanks", "content": []}
        value["chat_messages"].append({**more, "parent_message_uuid": "m5"})
    elif name == "librechat":
        value["messages"].append(
            {"messageId": "4", "parentMessageId": "3", "isCreatedByUser": True, "text": "Thanks"}
        )
    else:
        more = {"id": "e", "parentId": "d", "role": "user", "content": "Thanks"}
        value["chat"]["history"]["messages"]["e"] = more
        value["chat"]["history"]["currentId"] = "e"
    return value


@pytest.mark.parametrize("name", EXPORTS)
def test_a_branch_that_has_grown(write: Write, tmp_path: Path, name: str) -> None:
    """Only its new message is added, also if the program shows another branch now."""
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(write(EXPORTS[name])), strict=True)
        report = load(store, read_transcripts(write(_grown(name))), strict=True)
        assert (1, 2) == (report.events_added, len(Views(store).conversations()))


@pytest.mark.parametrize("name", EXPORTS)
def test_damage_is_reported(write: Write, name: str) -> None:
    """A message without its id, or one in a circle: said, or read as far as it goes; no hang."""
    value = copy.deepcopy(EXPORTS[name])
    if name == "claude-ai":
        del value["chat_messages"][1]["uuid"]
    elif name == "librechat":
        del value["messages"][0]["messageId"]
    else:
        value["chat"]["history"]["messages"]["d"] = "lost"
    path = write([value, EXPORTS[name]])
    transcripts, failures = found(path, name)
    assert (2, 1) == (len(transcripts), len(failures))
    closed = copy.deepcopy(OPEN_WEBUI)
    del closed["chat"]["history"]["messages"]["d"]
    closed["chat"]["history"]["messages"]["a"]["parentId"] = "b"
    assert ([], 1) == (found(write(closed))[0], len(found(write(closed))[1]))
    circle = copy.deepcopy(OPEN_WEBUI)
    circle["chat"]["history"]["messages"]["a"]["parentId"] = "b"
    transcripts, failures = found(write(circle))
    assert transcripts or failures
