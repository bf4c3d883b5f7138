"""Projects: whole directories in and out, and what a message of theirs carries."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import (
    ImportReport,
    Transcript,
    export_messages_json,
    export_messages_jsonl,
    export_openai,
    export_project,
    export_session_jsonl,
    load,
    read_transcripts,
)
from agent_eventstore.transcripts.left_out import LeftOut
from eventstore import EventStore, Meta, NewEvent
from eventstore import events as e
from eventstore.errors import ConversationNotFound
from projections import Views
from tests.integration.test_import import TAU_BENCH, _recorded

pytestmark = pytest.mark.exhaustive_when("postgresql")

ORACLE = LeftOut(uninterpreted=Counter({"message of role oracle": 1}))

AT = "2024-05-10T12:00:00Z"
WIDGET = {"kind": "bar", "rows": [1, 2]}
CALL = {"id": "c", "type": "function", "function": {"name": "fs.read", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"id": "m1", "role": "system", "createdAt": AT, "content": "You help."},
    {"id": "m2", "role": "system", "createdAt": AT, "content": "SUMMARY: they met."},
    {"id": "m3", "role": "user", "createdAt": AT, "content": "read it", "mode": "agent"},
    {
        "id": "m4",
        "role": "assistant",
        "createdAt": AT,
        "content": None,
        "tool_calls": [CALL],
        "agentId": "a",
    },
    {
        "id": "m5",
        "role": "tool",
        "createdAt": AT,
        "tool_call_id": "c",
        "content": "text",
        "toolName": "fs.read",
        "duration": 12,
        "isCollapsed": True,
        "partType": "tool",
        "widget": WIDGET,
    },
    {"id": "m6", "role": "system", "createdAt": AT, "content": "MODE\n- active: run"},
    {"id": "m7", "role": "oracle", "content": "?"},
    {"id": "m8", "role": "assistant", "content": "ui", "includeInContext": False, "runId": "r"},
]
INDEX: list[dict[str, Any]] = [
    {"id": "c1", "title": "One", "activeType": "run", "createdAt": AT, "extra": [1]},
    {"id": "c2", "title": "Two", "activeType": "chat", "createdAt": AT},
]


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a project with two conversations, one of which is empty."""
    root = tmp_path / "project" / "conversations"
    for name, messages in (("c1", MESSAGES), ("c2", [])):
        (root / name).mkdir(parents=True)
        (root / name / "messages.json").write_text(json.dumps(messages), "utf-8")
    (root / "index.json").write_text(json.dumps(INDEX), "utf-8")
    return root.parent


def _load(store: EventStore, path: Path, **options: Any) -> tuple[ImportReport, list[UUID]]:
    report = load(store, read_transcripts(path, **options))
    return report, report.ids


def _reasons(report: ImportReport) -> str:
    return "\n".join(map(str, report.failures))


def _seen(store: EventStore, cid: UUID) -> list[Any]:
    """Return what a model is sent, but for the ids of tool calls."""
    sent: list[Any] = []
    for message in Views(store).context(cid, mode=None).messages:
        calls = [call["function"] for call in message.get("tool_calls", ())]
        sent.append((message["role"], message.get("content"), message.get("name"), calls))
    return sent


def _shown(store: EventStore, cid: UUID) -> list[Any]:
    """Return the messages of the timeline, without the frames around them."""
    frames = ("conversation", "session", "turn", "mode", "retraction", "run", "step")
    return [
        (i.kind, i.role, i.text, i.collapsed, i.part_type, i.widget, i.name, i.mode, i.arguments)
        for i in Views(store).timeline(cid)
        if i.kind not in frames
    ]


class TestImport:
    """Every conversation of a directory, whatever becomes of the others."""

    def test_each_conversation_has_what_the_index_tells(
        self, store: EventStore, project: Path
    ) -> None:
        """Titles, modes, times and unknown fields; also of one without messages yet."""
        report, ids = _load(store, project)
        assert ImportReport(conversations=2, events_added=10, left_out=ORACLE) == report
        starts: list[Any] = [next(iter(store.read(cid))) for cid in ids]
        assert [("One", "run"), ("Two", "chat")] == [(s.data.title, s.data.mode) for s in starts]
        assert INDEX == [s.data.raw["index_entry"] for s in starts]
        assert {AT} == {s.occurred_at.isoformat().replace("+00:00", "Z") for s in starts}

    def test_a_second_import_adds_nothing(self, store: EventStore, project: Path) -> None:
        """Nor does one of a single file of it, or of the directory one level down."""
        _load(store, project)
        assert ImportReport(unchanged=2, left_out=ORACLE) == _load(store, project)[0]
        assert (
            ImportReport(unchanged=2, left_out=ORACLE) == _load(store, project / "conversations")[0]
        )
        one = project / "conversations" / "c1" / "messages.json"
        assert ImportReport(unchanged=1, left_out=ORACLE) == _load(store, one)[0]

    def test_two_conversations_may_begin_alike(self, store: EventStore, project: Path) -> None:
        """A copied conversation was taken for the other one, and refused."""
        copy = project / "conversations" / "c2" / "messages.json"
        copy.write_text(json.dumps(MESSAGES[:3]), "utf-8")
        assert (2, []) == (
            _load(store, project)[0].conversations,
            _load(store, project)[0].failures,
        )

    def test_one_broken_conversation_stops_no_other(self, store: EventStore, project: Path) -> None:
        """Missing, broken and unlisted ones are said or imported, each by itself."""
        root = project / "conversations"
        bad = [{"id": "gone"}, {"id": "../c1"}, {"id": "a/b"}, {"title": "no id"}, 7]
        (root / "index.json").write_text(json.dumps([*bad, *INDEX, INDEX[0]]), "utf-8")
        (root / "c2" / "messages.json").write_text('[{"role": "user"}, {oops', "utf-8")
        (root / "unlisted").mkdir()
        (root / "unlisted" / "messages.json").write_text(json.dumps(MESSAGES[:3]), "utf-8")
        (root / "link").symlink_to(project.parent, target_is_directory=True)
        (project.parent / "messages.json").write_text(json.dumps(MESSAGES), "utf-8")
        report, _ = _load(store, project)
        assert 3 == report.conversations
        told = _reasons(report)
        for said in (
            "'gone' is listed, but there is no file",
            "'../c1' has an id that is not a valid directory name",
            "'a/b' has an id",
            "an entry must be an object with an id",
            "'c1' is listed twice",
            "'link' is reached through a link out of the project",
            "c2/messages.json:1: the text is not JSON",
        ):
            assert said in told
        assert 8 == len(report.failures)

    @pytest.mark.parametrize("index", ["{oops", '[{"id": "c1"},', "\udcff"])
    def test_without_an_index_nothing_is_imported(
        self, store: EventStore, project: Path, index: str
    ) -> None:
        """Its conversations would have other ids, and come twice once it is mended."""
        path = project / "conversations" / "index.json"
        path.write_bytes(index.encode("utf-8", "surrogateescape"))
        report, _ = _load(store, project)
        assert (0, 1) == (report.conversations, len(report.failures))
        assert "nothing of the project was imported" in _reasons(report)

    def test_a_directory_without_an_index_is_none(self, store: EventStore, tmp_path: Path) -> None:
        """It is told what was looked for."""
        report, _ = _load(store, tmp_path)
        assert "has neither index.json nor conversations/index.json" in _reasons(report)

    def test_progress_is_told(self, project: Path) -> None:
        """It grows from conversation to conversation, and ends at the whole."""
        told: list[float] = []
        list(read_transcripts(project, on_read=told.append))
        assert sorted(told) == told
        assert 1.0 == told[-1]


class TestMeaning:
    """What becomes of the messages in messages[] and in the timeline."""

    def test_only_leading_system_messages_are_instructions(
        self, store: EventStore, project: Path
    ) -> None:
        """A later one stays where it stood, and is not sent; a summary has one heading."""
        _, ids = _load(store, project)
        assert [
            ("system", "You help."),
            ("system", "CONVERSATION_SUMMARY\nthey met."),
            ("user", "read it"),
            ("assistant", None),
            ("tool", "text"),
        ] == [(role, text) for role, text, *_ in _seen(store, ids[0])]
        kinds = [item[0] for item in _shown(store, ids[0])]
        expected = ["system", "summary", "user", "tool", "system", "unknown", "assistant"]
        assert expected == kinds

    def test_extras_are_on_the_timeline(self, store: EventStore, project: Path) -> None:
        """Part type, whether it is folded, and the widget."""
        _, ids = _load(store, project)
        (tool,) = (item for item in Views(store).timeline(ids[0]) if item.kind == "tool")
        assert ("tool", True, WIDGET) == (tool.part_type, tool.collapsed, tool.widget)

    def test_a_widget_that_is_too_large_is_noted(self, store: EventStore, tmp_path: Path) -> None:
        """The timeline says so; the message is kept as it came."""
        message = {**MESSAGES[2], "widget": {"a": "x" * 40_000}}
        path = tmp_path / "messages.json"
        path.write_text(json.dumps([message]), "utf-8")
        _, ids = _load(store, path)
        (user,) = (item for item in Views(store).timeline(ids[0]) if item.kind == "user")
        assert "40,009 bytes is too large" in user.widget["left_out"]
        assert [message] == export_messages_json(store, ids[0])


class TestExport:
    """What came in goes out as it was; what was recorded comes back."""

    def test_a_project_comes_back_as_it_was(
        self, store: EventStore, project: Path, tmp_path: Path
    ) -> None:
        """Index and messages equal the imported ones, and importing them again adds nothing."""
        _, ids = _load(store, project)
        assert 2 == export_project(store, tmp_path / "out", ids).conversations
        root = tmp_path / "out" / "conversations"
        assert INDEX == json.loads((root / "index.json").read_text("utf-8"))
        assert MESSAGES == json.loads((root / "c1" / "messages.json").read_text("utf-8"))
        assert ImportReport(unchanged=2, left_out=ORACLE) == _load(store, tmp_path / "out")[0]
        with pytest.raises(FileExistsError):
            export_project(store, tmp_path / "out", ids)

    @pytest.mark.parametrize("lines", [False, True])
    def test_a_recorded_conversation_comes_back(
        self, store: EventStore, tmp_path: Path, lines: bool
    ) -> None:
        """What the model is sent, and the messages of the timeline, are the same in both forms."""
        cid = UUID(int=7)
        store.append(cid, [*_recorded(), *_more()])
        path = tmp_path / "file"
        if lines:
            written = [json.dumps(line) for line in export_messages_jsonl(store, cid)]
            path.write_text("\n".join(written), "utf-8")
        else:
            path.write_text(json.dumps(export_messages_json(store, cid)), "utf-8")
        report, copies = _load(store, path)
        assert [] == report.failures
        assert _seen(store, cid) == _seen(store, copies[0])
        assert _shown(store, cid) == _shown(store, copies[0])

    def test_session_jsonl_keeps_what_is_shown(self, store: EventStore, tmp_path: Path) -> None:
        """And which system messages were instructions."""
        cid = UUID(int=7)
        store.append(cid, [*_recorded(), *_more()])
        path = tmp_path / "session.jsonl"
        path.write_text("\n".join(map(json.dumps, export_session_jsonl(store, cid))), "utf-8")
        _, copies = _load(store, path)
        assert _seen(store, cid)[:2] == _seen(store, copies[0])[:2]
        shown = [[item for item in _shown(store, each) if item[4]] for each in (cid, copies[0])]
        assert shown[0] == shown[1]
        assert ["user", "tool", "tool"] == [item[0] for item in shown[0]]

    def test_real_transcripts_come_back(self, store: EventStore, tmp_path: Path) -> None:
        """A third of them use ids of tool calls twice."""
        found = [t for t in read_transcripts(TAU_BENCH) if isinstance(t, Transcript)][:20]
        ids = load(store, found).ids
        export_project(store, tmp_path, ids)
        report, copies = _load(store, tmp_path)
        assert (20, []) == (report.conversations, report.failures)
        assert [_seen(store, cid) for cid in ids] == [_seen(store, cid) for cid in copies]
        assert [_shown(store, cid) for cid in ids] == [_shown(store, cid) for cid in copies]

    def test_what_was_undone_is_marked(self, store: EventStore, project: Path) -> None:
        """An undone message of an imported conversation would have come back to life."""
        _, ids = _load(store, project)
        store.append(ids[0], [e.Retraction(versions=(e.VersionRange(first=4, last=4),))])
        marked = [m["id"] for m in export_messages_json(store, ids[0]) if "includeInContext" in m]
        assert ["m3", "m8"] == marked

    def test_openai_messages_have_imported_failures(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """An assistant message that became an error is one again."""
        text = "par\n\nLLM_ERROR\n- kind: timeout\n- attempt: 1\n- message: slow"
        path = tmp_path / "messages.json"
        path.write_text(
            json.dumps([MESSAGES[2], {"role": "assistant", "content": text}]), encoding="utf-8"
        )
        _, ids = _load(store, path)
        assert ["user_message", "llm_error"] == [x.type for x in store.read(ids[0], after=1)]
        assert {"role": "assistant", "content": text} == export_openai(store, ids[0])[1]

    def test_messages_that_came_without_an_id(self, store: EventStore, tmp_path: Path) -> None:
        """They are given back without one; that was a KeyError."""
        path = tmp_path / "messages.jsonl"
        lines = [{"sender": "user", "text": "hi"}, {"catId": "cat", "content": "yes", "id": 7}]
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        _, [cid] = _load(store, path)
        assert lines == list(export_messages_jsonl(store, cid))

    def test_a_conversation_that_does_not_exist_is_an_error(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """In a project it is reported, and the others are written."""
        with pytest.raises(ConversationNotFound):
            export_messages_json(store, UUID(int=1))
        with pytest.raises(ConversationNotFound):
            list(export_messages_jsonl(store, UUID(int=1)))
        report = export_project(store, tmp_path, [UUID(int=1)])
        assert (0, 1) == (report.conversations, len(report.failures))


def _more() -> list[NewEvent]:
    """Return what goes on after the recorded turns, from version 18: all that has a message."""
    step, ui = Meta(turn=2, step=0), e.Ui(part_type="chart", collapsed=False, widget=WIDGET)
    ask = e.ToolCallRequest(name="f", arguments_text="{}", arguments={}, provider_id="x")
    failed = "LLM_ERROR once"
    data: list[Any] = [
        e.UserMessage.text("again", ui=ui),  # 18
        e.LlmError(llm_call_id="q", kind="network", message=failed, partial_text="Well"),
        e.LlmRequest(llm_call_id="s"),  # 20
        e.LlmError(llm_call_id="s", kind="rate_limit", message="wait"),
        e.LlmRequest(llm_call_id="t", retry_of="s"),
        e.AssistantMessage(llm_call_id="t", tool_calls=(ask, ask), ui=ui),  # 23
        e.ToolResult(call_id="23.1", name="f", content="B", ui=ui, provider_id="x"),
        e.ToolResult(call_id="23.0", name="f", status="failed", error="no", content="no"),
        e.SystemInstruction(text="now be brief"),  # 26
        e.SystemInstruction(text="and kind", continues=True),
        e.Summary(text="they tried", versions=(e.VersionRange(first=5, last=11),)),
        e.AssistantMessage.of("it worked", final=True),
    ]
    return [NewEvent(each, meta=step) for each in data]


def test_instructions_lead_in_every_format(tmp_path: Path) -> None:
    """A later system message was hoisted to the front, and a later one yet took its place."""
    said = [("system", "A"), ("developer", "B"), ("user", "hi"), ("system", "C")]
    chat = [{"role": role, "content": text} for role, text in said]
    summary = {"role": "system", "content": "CONVERSATION_SUMMARY\nshort"}
    line = {"session_id": "s", "turn": 1}
    session = [
        {**line, "type": "system", **chat[0]},
        {**line, "type": "system_instruction", **chat[1]},
        {**line, "type": "turn_start", "content": "hi"},
        {**line, "type": "system", **chat[3]},
        {**line, "type": "system", **summary},
    ]
    files = {
        "openai": json.dumps([*chat, summary]),
        "messages-json": json.dumps([*chat, summary]),
        "messages-jsonl": "\n".join(json.dumps(m) for m in [*chat, summary]),
        "session-jsonl": "\n".join(json.dumps(m) for m in session),
    }
    expected = [("A", False, True), ("B", True, True), ("C", False, False)]
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text, "utf-8")
        (found,) = read_transcripts(path, name)
        assert not isinstance(found, ImportFailed)
        got = [
            (event.data.text, event.data.continues, event.meta.in_context)
            for event in found.events
            if isinstance(event.data, e.SystemInstruction)
        ]
        assert expected == got, name
        summaries = [x.data.text for x in found.events if isinstance(x.data, e.Summary)]
        assert ["short"] == summaries, name
