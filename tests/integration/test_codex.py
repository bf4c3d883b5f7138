"""Sessions of Codex in the log, on both databases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.transcripts import ImportReport, detect, load, read_transcripts
from eventstore import EventStore
from eventstore import events as e
from projections import Views
from tests.integration.codex_sessions import SESSION, Rollout, rollout

pytestmark = pytest.mark.exhaustive_when("postgresql")


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


def _import(store: EventStore, path: Path) -> tuple[ImportReport, UUID]:
    report = load(store, read_transcripts(path))
    return report, report.ids[0]


def _payloads(store: EventStore, conversation_id: UUID) -> list[Any]:
    return [event.data for event in store.read(conversation_id)][1:]


class TestWhatASessionIs:
    """Lines become the events that a recorder would have written."""

    def test_the_content_tells_the_format(self, tmp_path: Path) -> None:
        """The file may be called as it likes."""
        assert "codex" == detect(rollout().write(tmp_path / "any"))

    def test_items_of_one_answer_are_one_event(self, store: EventStore, tmp_path: Path) -> None:
        """Reasoning, text and parallel calls are one answer, with the tokens told behind it."""
        _, cid = _import(store, rollout().write(tmp_path / "a"))
        answer, first, second = _payloads(store, cid)[3:6]
        assert isinstance(answer, e.AssistantMessage)
        assert ["reasoning", "text"] == [part.kind for part in answer.parts]
        assert ["exec_command", "exec_command"] == [call.name for call in answer.tool_calls]
        assert (1_000, 60) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)  # type: ignore[union-attr]
        assert [("5.0", "success", 500), ("5.1", "failed", 500)] == [
            (result.call_id, result.status, result.duration_ms) for result in (first, second)
        ]

    def test_the_views_of_it(self, store: EventStore, tmp_path: Path) -> None:
        """Title, timeline, tools, usage and branches are there, and the chain holds."""
        _, cid = _import(store, rollout().write(tmp_path / "a"))
        views = Views(store)
        assert "A failing test" == next(iter(views.conversations())).title
        said = [item.text for item in views.timeline(cid) if item.kind == "user"]
        assert ["Why does the test fail?", "Mend it well.", "Thanks. What now?"] == said
        assert [("apply_patch", "success"), ("exec_command", "failed")] == [
            (call.name, call.status) for call in views.tool_calls(conversation_id=cid, limit=2)
        ]
        (total,) = views.usage(conversation_id=cid)
        assert (6, 6_700, 89) == (total.calls, total.prompt_tokens, total.completion_tokens)
        (point,) = views.branches(cid)
        assert [(2, False), (3, True)] == [(each.turn, each.active) for each in point.alternatives]
        assert store.verify().ok

    def test_messages_keep_what_users_said(self, store: EventStore, tmp_path: Path) -> None:
        """The summary stands for answers and tools; prompts are sent beside it, as Codex does."""
        _, cid = _import(store, rollout().write(tmp_path / "a"))
        sent = str(Views(store).context(cid).messages)
        assert "The test is mended." in sent
        assert "Mend it well." in sent
        assert "Mend it badly." not in sent
        assert "Done well." not in sent

    def test_the_task_is_what_was_asked_first(self, store: EventStore, tmp_path: Path) -> None:
        """And not what the program put before it, which is an instruction."""
        found = Rollout()
        found.message("user", "# AGENTS.md instructions\n\n<INSTRUCTIONS>\nBe brief.")
        found.message("user", "Why does the test fail?")
        found.message("assistant", "It has no body. " * 50)
        found.message("user", "Mend it.")
        _, cid = _import(store, found.write(tmp_path / "a"))
        sent = Views(store).context(cid, max_tokens=150, mode=None).messages
        asked = [message["content"] for message in sent if message["role"] == "user"]
        assert ["Why does the test fail?", "Mend it."] == asked
        assert "Be brief." in str([each for each in sent if each["role"] != "user"])

    def test_errors_of_the_model_are_errors(self, store: EventStore, tmp_path: Path) -> None:
        """Those that are tried again may be repeated."""
        found = Rollout()
        found.message("user", "hi")
        found.event("stream_error", message="stream disconnected")
        found.event("error", message="You've hit your usage limit.")
        _, cid = _import(store, found.write(tmp_path / "a"))
        assert [("network", True), ("rate_limit", False)] == [
            (data.kind, data.retryable) for data in _payloads(store, cid)[1:]
        ]

    def test_outputs_of_other_shapes(self, store: EventStore, tmp_path: Path) -> None:
        """Lists of parts, objects that tell of success, and refusals."""
        found = Rollout()
        found.message("user", "hi")
        outputs: list[Any] = [
            [{"type": "output_text", "text": "Done!"}],
            {"content": "no", "success": False},
            "exec command rejected by user",
        ]
        for number in range(len(outputs)):
            call = {"name": "f", "arguments": "{}", "call_id": f"call_{number}"}
            found.item("function_call", **call)
        for number, output in enumerate(outputs):
            found.item("function_call_output", call_id=f"call_{number}", output=output)
        _, cid = _import(store, found.write(tmp_path / "a"))
        assert ["success", "failed", "denied"] == [
            data.status for data in _payloads(store, cid) if isinstance(data, e.ToolResult)
        ]

    def test_a_file_without_envelopes(self, store: EventStore, tmp_path: Path) -> None:
        """Items alone, as the versions of spring 2025 wrote them."""
        lines = [
            {"id": "s", "timestamp": "2025-05-10T12:00:00Z", "instructions": "Be brief."},
            {"record_type": "state"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hello"}],
            },
        ]
        path = tmp_path / "a"
        path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
        assert "codex" == detect(path)
        _, cid = _import(store, path)
        assert ["user_message", "assistant_message"] == [
            data.type for data in _payloads(store, cid)
        ]


class TestFilesThatGrow:
    """A session that is still written is imported as far as it goes, and completed later."""

    @pytest.mark.parametrize("first", [2, 6, 9, 10, 11, 12, 13, 14, 16, 18, 19, 24, 27, 28, 30, 33])
    def test_any_beginning_and_then_the_whole(
        self, store: EventStore, tmp_path: Path, first: int
    ) -> None:
        """Wherever it was cut, the rest is added, and a third import adds nothing."""
        load(store, read_transcripts(rollout().write(tmp_path / "a", first)))
        path = rollout().write(tmp_path / "a")
        report, cid = _import(store, path)
        assert [] == report.failures
        assert ImportReport(unchanged=1, left_out=report.left_out) == _import(store, path)[0]
        (total,) = Views(store).usage(conversation_id=cid)
        assert (6_700, 89) == (total.prompt_tokens, total.completion_tokens)
        assert 3 == len(Views(store).tool_calls(conversation_id=cid))
        sent = str(Views(store).context(cid).messages)
        assert "Thanks. What now?" in sent
        assert "Mend it badly." not in sent


class TestAgents:
    """Sessions that another one opened, or goes on in, and what agents tell each other."""

    @pytest.mark.parametrize(
        "about",
        [
            {"parent_thread_id": SESSION},
            {"source": {"subagent": {"thread_spawn": {"parent_thread_id": SESSION, "depth": 1}}}},
            {"forked_from_id": SESSION},
        ],
    )
    def test_a_session_names_the_one_that_opened_it(
        self, store: EventStore, tmp_path: Path, about: dict[str, Any]
    ) -> None:
        """Whichever field tells it."""
        child = Rollout("child")
        child.lines[0]["payload"] |= about
        child.message("user", "Look.")
        _, own = _import(store, child.write(tmp_path / "child"))
        _, session = _import(store, rollout().write(tmp_path / "a"))
        rows = {row.conversation_id: row for row in Views(store).conversations()}
        assert str(session) == rows[own].parent_conversation_id

    @pytest.mark.parametrize("key", ["id", "session_id"])
    def test_a_session_is_known_by_either_name(
        self, store: EventStore, tmp_path: Path, key: str
    ) -> None:
        """A head without a time of its own, or with ``session_id``, names the session too."""
        rollout = Rollout()
        rollout.lines[0]["payload"] = {key: "s-1", "cwd": "/home/ada/shop"}
        rollout.message("user", "Hello?")
        _, cid = _import(store, rollout.write(tmp_path / "a"))
        rollout.message("assistant", "Hello.")
        report, again = _import(store, rollout.write(tmp_path / "b"))
        assert (cid, 1) == (again, report.events_added)

    def test_what_agents_say_is_heard(self, store: EventStore, tmp_path: Path) -> None:
        """The task of an agent begins its first turn; later words belong to their turn."""
        child = Rollout("child")
        content = [{"type": "input_text", "text": "Find x."}]
        child.item("agent_message", author="/root", recipient="/root/x", content=content)
        child.message("assistant", "Where?")
        child.line("inter_agent_communication", author="/root", recipient="/root/x", content="Here")
        child.message("user", '<send_user_message_question_reply>\n[{"answer":"b"}]')
        report, cid = _import(store, child.write(tmp_path / "a"))
        said = [event for event in store.read(cid) if isinstance(event.data, e.UserMessage)]
        assert [("/root", 1), ("/root", 1), (None, 1)] == [
            (each.data.name, each.meta.turn)  # type: ignore[union-attr]
            for each in said
        ]
        assert e.UserMessage.text("Find x.", name="/root") == said[0].data
        assert not report.left_out.unknown

    def test_a_session_in_two_files(self, store: EventStore, tmp_path: Path) -> None:
        """The second is a conversation of its own, which names the first, and is told of."""
        first = rollout().write(tmp_path / "a")
        later = Rollout()
        base = {"thread_id": SESSION, "end_ordinal_exclusive": 4, "end_byte_offset": 900}
        later.lines[0]["payload"] |= {"history_base": base}
        later.message("user", "Try again.")
        _, session = _import(store, first)
        report, own = _import(store, later.write(tmp_path / "b"))
        assert ([], 1) == (report.failures, report.left_out.unknown.total())
        (row,) = [row for row in Views(store).conversations() if row.conversation_id == own]
        assert (str(session), "Try again.") == (row.parent_conversation_id, row.last_user_text)


class TestOddLines:
    """Whatever a line is, it is told."""

    def test_lines_are_counted_by_kind(self, store: EventStore, tmp_path: Path) -> None:
        """Those that tell nothing, and those that nobody knows."""
        found = rollout()
        found.line("telepathy", stars=3)
        found.line("world_state", full=True, state={})
        found.line("token_usage_record", usage={"input_tokens": 9})
        found.item("hologram", beam=1)
        found.item("web_search_call", status="completed", action={"type": "search", "query": "q"})
        found.message("user", "Thanks.")
        found.lines[-1]["payload"]["content"].append({"type": "input_smell", "smell": "rose"})
        found.item("additional_tools", role="developer", tools=[])
        found.line("compacted", message="", replacement_history=[{"type": "compaction"}])
        report, _ = _import(store, found.write(tmp_path / "a"))
        assert {
            "telepathy": 1,
            "response_item hologram": 1,
            "compacted without a text": 1,
        } == report.left_out.unknown
        assert {"content of type input_smell": 1} == report.left_out.uninterpreted
        for kind in ("event_msg task_complete", "world_state", "token_usage_record"):
            assert 1 == report.left_out.passed_over[kind]
        assert 1 == report.left_out.passed_over["response_item additional_tools"]
        assert [] == report.failures

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ([], "a line must be an object"),
            ({"payload": {}}, "a line must be an object with a type"),
            ({"type": "response_item", "payload": 3}, "its payload is not an object"),
        ],
    )
    def test_broken_lines_are_reported(
        self, store: EventStore, tmp_path: Path, line: Any, reason: str
    ) -> None:
        """With their numbers; the rest is imported."""
        found = rollout()
        found.lines.insert(5, line)
        report, _ = _import(store, found.write(tmp_path / "a"))
        assert [(6, reason)] == [(each.line, each.reason) for each in report.failures]
