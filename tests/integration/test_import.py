"""Import, export, and import again, on both databases."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import (
    ImportReport,
    Transcript,
    export_openai,
    export_session_jsonl,
    load,
    read_transcripts,
)
from eventstore import EventStore, Meta, NewEvent
from eventstore import events as e
from eventstore.errors import ConversationNotFound
from eventstore.events import own
from projections import Views
from tests.contract.test_own_events import TicketOpened

pytestmark = pytest.mark.exhaustive_when("postgresql")

TAU_BENCH = (
    Path(__file__).parents[2].parent / "shared" / "data" / "tau-bench" / "airline-even-tasks.json"
)
HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}
MISSING = UUID(int=1)


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


def _write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), "utf-8")
    return path


def _write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


@cache
def _real_transcripts() -> list[Transcript]:
    return [each for each in read_transcripts(TAU_BENCH) if not isinstance(each, ImportFailed)]


def _import(store: EventStore, path: Path) -> tuple[ImportReport, list[UUID]]:
    report = load(store, read_transcripts(path))
    return report, report.ids


class TestRealTranscripts:
    """100 conversations, 2,526 messages, a third of them with ids used twice."""

    def test_every_message_equals_its_original(self, store: EventStore) -> None:
        """Export gives back what was imported, and a second import adds nothing."""
        originals = [record["traj"] for record in json.loads(TAU_BENCH.read_text("utf-8"))]
        first = load(store, _real_transcripts())
        assert ImportReport(conversations=100, events_added=2_626) == first
        assert originals == [export_openai(store, cid) for cid in first.ids]
        again, _ = _import(store, TAU_BENCH)
        assert ImportReport(unchanged=100) == again

    def test_session_jsonl_carries_everything(self, store: EventStore, tmp_path: Path) -> None:
        """Exported to session JSONL and imported again, messages and lines are the same."""
        transcripts = _real_transcripts()[:20]
        ids = load(store, transcripts).ids
        lines = [list(export_session_jsonl(store, cid)) for cid in ids]
        path = _write_lines(tmp_path / "all.jsonl", [line for each in lines for line in each])
        report, copies = _import(store, path)
        assert (20, []) == (report.conversations, report.failures)
        assert [export_openai(store, c) for c in ids] == [export_openai(store, c) for c in copies]
        assert lines == [list(export_session_jsonl(store, cid)) for cid in copies]


class TestLoading:
    """What is there stays, what is missing is added."""

    def test_a_record_that_has_grown_adds_its_tail(self, store: EventStore, tmp_path: Path) -> None:
        """Only the new messages are appended."""
        _import(store, _write(tmp_path / "a", {"id": "c", "messages": [HELLO]}))
        report, ids = _import(
            store, _write(tmp_path / "b", {"id": "c", "messages": [HELLO, ANSWER]})
        )
        assert ImportReport(conversations=1, events_added=1) == report
        assert [HELLO, ANSWER] == export_openai(store, ids[0])

    def test_a_record_whose_beginning_changed_is_reported(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """The conversation in the store stays as it is."""
        _, ids = _import(store, _write(tmp_path / "a", {"id": "c", "messages": [HELLO]}))
        report, _ = _import(store, _write(tmp_path / "b", {"id": "c", "messages": [ANSWER]}))
        assert (0, [1]) == (report.events_added, [failure.line for failure in report.failures])
        assert [HELLO] == export_openai(store, ids[0])

    def test_a_conversation_that_went_on_is_unchanged(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """What the product recorded after the import is not a conflict."""
        path = _write(tmp_path / "a", [HELLO])
        _, ids = _import(store, path)
        store.append(ids[0], [e.AssistantMessage.of("more")], expected_version=2)
        assert ImportReport(unchanged=1) == _import(store, path)[0]

    def test_an_import_that_was_cut_off_is_completed(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """Batches that were committed are found, and the rest is appended."""
        path = _write(tmp_path / "a", [HELLO] * 1_200)
        (transcript,) = read_transcripts(path)
        assert not isinstance(transcript, ImportFailed)
        load(store, [replace(transcript, events=transcript.events[:500])])
        report = load(store, [transcript])
        assert ImportReport(conversations=1, events_added=701) == report
        assert [HELLO] * 1_200 == export_openai(store, report.ids[0])

    def test_an_erased_conversation_stays_erased(self, store: EventStore, tmp_path: Path) -> None:
        """Importing its file again brings nothing back, and says so."""
        path = _write(tmp_path / "a", {"id": "c", "messages": [HELLO]})
        _, ids = _import(store, path)
        store.erase(ids[0], reason="asked for")
        report, _ = _import(store, path)
        assert (0, 1) == (report.events_added, len(report.failures))
        assert "was erased here" in str(report.failures[0])
        assert [] == export_openai(store, ids[0])

    def test_bad_records_are_reported_and_the_rest_loaded(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """Progress is told after each record."""
        path = tmp_path / "a"
        path.write_text('[[{"role": "user"}],\n7,\n[{"role": "user"}]]', "utf-8")
        told: list[tuple[int, int]] = []
        report = load(
            store,
            read_transcripts(path, "openai"),
            on_progress=lambda r: told.append((r.conversations, len(r.failures))),
        )
        assert [(1, 0), (1, 1), (2, 1)] == told
        assert [(str(path), 2)] == [(f.file, f.line) for f in report.failures]

    def test_strict_stops_at_the_first_bad_record(self, store: EventStore, tmp_path: Path) -> None:
        """What was loaded before it stays."""
        path = tmp_path / "a"
        path.write_text('[[{"role": "user"}],\n7,\n[{"role": "user"}]]', "utf-8")
        with pytest.raises(ImportFailed, match=":2: "):
            load(store, read_transcripts(path, "openai"), strict=True)
        assert 1 == len(store.list())


class TestExport:
    """Conversations of any origin have both forms."""

    @pytest.mark.parametrize("text", ["x" * 100_000, "\ud800\x00" * 20_000])
    def test_a_large_result_comes_back_whole(
        self, store: EventStore, tmp_path: Path, text: str
    ) -> None:
        """A text that was moved to a blob is put back, in both forms."""
        call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages = [
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "x", "content": text},
            {"role": "tool", "tool_call_id": "x", "content": text, "odd": [{"type": "text"}]},
        ]
        _, ids = _import(store, _write(tmp_path / "a", messages))
        assert messages == export_openai(store, ids[0])
        path = _write_lines(tmp_path / "b", list(export_session_jsonl(store, ids[0])))
        _, copies = _import(store, path)
        assert messages == export_openai(store, copies[0])

    def test_a_projects_messages_lose_what_no_api_knows(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """As OpenAI messages they have OpenAI's fields only."""
        message = {"id": "1", "createdAt": "2024-05-10T12:00:00Z", "mode": "chat", **HELLO}
        _, ids = _import(store, _write(tmp_path / "a", [message]))
        assert [HELLO] == export_openai(store, ids[0])

    def test_a_recorded_conversation_survives_session_jsonl(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """Frames, results, errors, retractions and metadata come back at their new versions."""
        cid = UUID(int=7)
        store.append(cid, _recorded())
        path = _write_lines(tmp_path / "a", list(export_session_jsonl(store, cid)))
        report, copies = _import(store, path)
        assert [] == report.failures
        assert export_openai(store, cid) == export_openai(store, copies[0])
        assert _outline(store, cid) == _outline(store, copies[0])

    def test_own_events_survive_session_jsonl(
        self, store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Registered or not, where they are exported and where they are imported."""
        cid, ticket = UUID(int=8), TicketOpened(number=1, title="tap")
        store.append(
            cid, [e.ConversationStart(), e.UserMessage.text("drip"), ticket], meta=Meta(turn=1)
        )
        known = _write_lines(tmp_path / "known", list(export_session_jsonl(store, cid)))
        own.class_of("acme.never_registered")  # Entry points register theirs once.
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(own, "_own", {})
            path = _write_lines(tmp_path / "unknown", list(export_session_jsonl(store, cid)))
            _, (copy,) = _import(store, path)
        assert known.read_bytes() == path.read_bytes()
        assert [ticket] == [each.data for each in store.read(copy) if each.type == ticket.type]

    def test_a_conversation_that_does_not_exist_is_an_error(self, store: EventStore) -> None:
        """Neither form is an empty file."""
        with pytest.raises(ConversationNotFound):
            export_openai(store, MISSING)
        with pytest.raises(ConversationNotFound):
            export_session_jsonl(store, MISSING)


def _recorded() -> list[NewEvent]:
    """Return what a product records: two turns, a failure, a result of a call made late."""
    asked = (
        e.ToolCallRequest(name="f", arguments_text='{"a": 1}', arguments={"a": 1}, provider_id="x"),
        e.ToolCallRequest(name="g", arguments_text="{}", arguments={}, provider_id="x"),
    )
    usage = e.TokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15)
    step = Meta(turn=1, step=0, mode="agent", session_id="s")
    return [
        NewEvent(e.ConversationStart(title="T", mode="agent")),
        NewEvent(e.SessionStart(mode="once", config={"model": "m"}), meta=Meta(session_id="s")),
        NewEvent(e.SystemInstruction(text="be kind", role="developer")),
        NewEvent(e.TurnStart(), meta=Meta(turn=1)),
        NewEvent(e.UserMessage.text("do"), meta=Meta(turn=1, actor="u")),
        NewEvent(e.LlmRequest(llm_call_id="a"), meta=step),
        NewEvent(e.LlmError(llm_call_id="a", kind="timeout", message="slow"), meta=step),
        NewEvent(e.AssistantMessage(tool_calls=asked, usage=usage), meta=step),
        NewEvent(e.ToolCall(call_id="8.1", name="g", arguments={}, provider_id="x"), meta=step),
        NewEvent(
            e.ToolResult(call_id="8.1", name="g", content="G", provider_id="x", status="failed"),
            meta=step,
        ),
        NewEvent(e.ToolCall(call_id="8.0", name="f", arguments={"a": 1}), meta=step),
        NewEvent(e.ToolResult(call_id="8.0", name="f", content="F", provider_id="x"), meta=step),
        NewEvent(e.AssistantMessage.of("done", final=True), meta=Meta(turn=1, step=1)),
        NewEvent(e.TurnEnd(status="ok", step_count=2, tokens=usage), meta=Meta(turn=1)),
        NewEvent(e.Retraction(versions=(e.VersionRange(first=13, last=13),))),
        NewEvent(e.ModeSwitch(mode="chat")),
        NewEvent(e.SessionEnd(), meta=Meta(session_id="s")),
    ]


def _outline(store: EventStore, conversation_id: UUID) -> list[Any]:
    """Return what matters of a conversation whose versions may differ from another's."""
    events = [event for event in store.read(conversation_id) if event.type != "llm_request"]
    places = {event.version: place for place, event in enumerate(events)}
    outline: list[Any] = []
    for event in events:
        data: Any = event.data
        fields = (getattr(data, "status", None), getattr(data, "usage", None), event.meta.turn)
        told: list[Any] = [event.type, event.meta.step, event.meta.mode, *fields]
        if isinstance(data, e.UserMessage):
            told += [event.meta.actor]
        if isinstance(data, e.ToolCall | e.ToolResult):
            version, index = data.call_id.split(".")
            told += [places[int(version)], index]
        if isinstance(data, e.Retraction):
            told += [places[item.first] for item in data.versions]
        if isinstance(data, e.ConversationStart):
            told += [data.title]
        outline.append(told)
    return outline


class TestBounds:
    """A number, a name or a depth beyond what is kept is told with its line; the rest comes in."""

    @pytest.mark.parametrize(
        ("meta", "said"),
        [
            ({"turn": 2**63}, "turn is a larger number; at most 2,147,483,647"),
            ({"turn": 10**3_500}, "turn is a larger number; at most 2,147,483,647"),
            ({"session_id": "s" * 5_000}, "session_id is 5,000 characters long; at most 512"),
        ],
    )
    def test_a_record_beyond_a_bound(
        self, store: EventStore, tmp_path: Path, meta: dict[str, Any], said: str
    ) -> None:
        """``"turn": 2**63`` in one line stopped lists, worker and rebuild for every tenant."""
        good = {"ts": "2024-05-10T12:00:00Z", "session_id": "good", "turn": 1, "step": 0}
        bad = {**good, "session_id": "bad", **meta}
        for name, told in (("good", good), ("bad", bad)):
            lines = [{**told, "type": "turn_start", "content": "hello"}]
            report, _ = _import(store, _write_lines(tmp_path / f"{name}.jsonl", lines))
        [failure] = report.failures
        assert said in str(failure)
        assert "bad.jsonl:1: " in str(failure)
        assert [1] == [row.turn_count for row in Views(store).conversations()]

    def test_a_session_that_is_being_written(self, store: EventStore, tmp_path: Path) -> None:
        """An import between an assistant line and its last action was refused from then on."""
        place = {"session_id": "s", "turn": 1, "step": 0}
        reads = [{"tool": "read", "input": name} for name in ("a", "b")]
        lines = [
            {**place, "type": "turn_start", "content": "read both"},
            {**place, "type": "assistant", "content": "I read."},
            *({**place, "type": "action", "meta": meta} for meta in reads),
            *({**place, "type": "observation", "content": "x", "meta": meta} for meta in reads),
            {**place, "step": 1, "type": "final", "content": "Done."},
        ]
        path, added = tmp_path / "s.jsonl", []
        for length in (2, 3, 4, 6, 7, 7):
            report, ids = _import(store, _write_lines(path, lines[:length]))
            assert [] == report.failures
            added.append(report.events_added)
        assert [4, 2, 2, 2, 1, 0] == added
        calls = Views(store).tool_calls()
        assert [("read", "success")] * 2 == [(row.name, row.status) for row in calls]
        assert ["user", "assistant"] + ["assistant", "tool"] * 2 + ["assistant"] == [
            message["role"] for message in Views(store).context(ids[0]).messages
        ]
        assert lines == list(export_session_jsonl(store, ids[0]))

    def test_a_late_record_leaves_nothing_behind(self, store: EventStore, tmp_path: Path) -> None:
        """Of a conversation of many batches nothing is appended if its last event cannot be."""
        messages = [HELLO, ANSWER] * 400 + [{**HELLO, "name": "n" * 600}]
        report, _ = _import(store, _write(tmp_path / "a.json", {"messages": messages}))
        assert "name is 600 characters long" in str(report.failures[0])
        assert [] == store.list()
