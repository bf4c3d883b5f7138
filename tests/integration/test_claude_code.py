"""Sessions of Claude Code in the log, on both databases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import ImportReport, detect, load, read_transcripts
from eventstore import EventStore
from eventstore import events as e
from projections import Views
from tests.integration.claude_sessions import Session, example, printed, text, thinking, tool_use

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
        """The file may be called as it likes, and begin with bookkeeping."""
        assert "claude-code" == detect(example().write(tmp_path / "any"))

    def test_lines_of_one_answer_are_one_event(self, store: EventStore, tmp_path: Path) -> None:
        """Thinking, text and parallel calls are one answer, with the tokens of its last line."""
        _, cid = _import(store, example().write(tmp_path / "a"))
        answer, first, second = _payloads(store, cid)[2:5]
        assert isinstance(answer, e.AssistantMessage)
        assert ["reasoning", "text"] == [part.kind for part in answer.parts]
        assert ["Read", "Bash"] == [call.name for call in answer.tool_calls]
        assert (1_104, 60) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)  # type: ignore[union-attr]
        assert [("4.0", "success"), ("4.1", "failed")] == [
            (result.call_id, result.status) for result in (first, second)
        ]

    def test_anthropic_gets_its_thinking_back(self, store: EventStore, tmp_path: Path) -> None:
        """With its signature, as for a conversation that was recorded here."""
        session = Session()
        session.user("Why?")
        thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        session.assistant("msg_1", thought, text("Because."), stop="end_turn")
        session.user("And now?")
        _, cid = _import(store, session.write(tmp_path / "a"))
        sent = Views(store).context(cid, format="anthropic_messages").messages
        assert thought == sent[1]["content"][0]

    def test_the_views_of_it(self, store: EventStore, tmp_path: Path) -> None:
        """Title, timeline, tools, usage and branches are there, and the chain holds."""
        _, cid = _import(store, example().write(tmp_path / "a"))
        views = Views(store)
        assert "A failing test" == next(iter(views.conversations())).title
        said = [item.text for item in views.timeline(cid) if item.kind == "user"]
        assert ["Why does the test fail?", "Mend it well.", "Thanks. What now?"] == said
        assert [("Bash", "failed"), ("Read", "success")] == [
            (call.name, call.status) for call in views.tool_calls(conversation_id=cid)
        ]
        (total,) = views.usage(conversation_id=cid)
        assert (5, 79) == (total.calls, total.completion_tokens)
        (point,) = views.branches(cid)
        assert [(2, False), (3, True)] == [(each.turn, each.active) for each in point.alternatives]
        assert store.verify().ok

    def test_messages_begin_with_the_summary(self, store: EventStore, tmp_path: Path) -> None:
        """What was compacted is covered by the summary, and no left branch comes back."""
        _, cid = _import(store, example().write(tmp_path / "a"))
        messages = Views(store).context(cid, format="anthropic_messages").messages
        sent = str(messages)
        assert "This session is being continued" in sent
        assert "Thanks. What now?" in sent
        assert "Mend it" not in sent

    def test_the_task_is_what_was_asked_first(self, store: EventStore, tmp_path: Path) -> None:
        """And not what the program put before it, which is an instruction."""
        session = Session()
        session.user("<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)
        session.user("Why does the test fail?")
        session.assistant("msg_1", text("It has no body. " * 50), stop="end_turn")
        session.user("Mend it.")
        _, cid = _import(store, session.write(tmp_path / "a"))
        sent = Views(store).context(cid, max_tokens=120, mode=None).messages
        asked = [message["content"] for message in sent if message["role"] == "user"]
        assert ["Why does the test fail?", "Mend it."] == asked
        assert "Caveat" in str(sent[0])

    def test_a_subagent_stands_beside(self, store: EventStore, tmp_path: Path) -> None:
        """Its lines are recorded under its name, out of the context, and its tokens count."""
        session = Session()
        session.user("Ask somebody.")
        session.assistant("msg_1", tool_use("toolu_1", "Task", prompt="Look."), stop="tool_use")
        aside: dict[str, Any] = {"isSidechain": True, "agentId": "a1b2", "parentUuid": None}
        session.user("Look.", **aside)
        session.assistant("msg_2", text("Seen."), stop="end_turn", out=7, **aside)
        session.result("toolu_1", "Seen.", toolUseResult={"agentId": "a1b2", "totalDurationMs": 9})
        session.assistant("msg_3", text("All is well."), stop="end_turn", out=2)
        _, cid = _import(store, session.write(tmp_path / "a"))
        beside = [event for event in store.read(cid) if event.meta.agent_id == "a1b2"]
        assert [False, False] == [event.meta.in_context for event in beside]
        assert [1, 1] == [event.meta.turn for event in beside]
        (total,) = Views(store).usage(conversation_id=cid)
        assert 10 == total.completion_tokens
        (call,) = Views(store).tool_calls(conversation_id=cid)
        assert ("success", 9) == (call.status, call.duration_ms)

    def test_a_file_of_a_subagent_is_a_conversation(
        self, store: EventStore, tmp_path: Path
    ) -> None:
        """It is told from its session's own, and its messages are sent."""
        session = Session()
        own: dict[str, Any] = {"isSidechain": True, "agentId": "a1b2"}
        session.user("Look.", **own)
        session.assistant("msg_2", text("Seen."), stop="end_turn", **own)
        _, whole = _import(store, example().write(tmp_path / "a"))
        _, cid = _import(store, session.write(tmp_path / "b"))
        assert whole != cid
        assert "Seen." in str(Views(store).context(cid).messages)

    def test_errors_of_the_model_are_errors(self, store: EventStore, tmp_path: Path) -> None:
        """Both those that were tried again and those that were shown."""
        session = Session()
        session.user("hi")
        session.line("system", subtype="api_error", error={"status": 529}, retryAttempt=2)
        session.assistant(
            "x", text("API Error: 400 bad"), isApiErrorMessage=True, apiErrorStatus=400
        )
        _, cid = _import(store, session.write(tmp_path / "a"))
        retried, shown = _payloads(store, cid)[1:]
        assert ("rate_limit", True, 2) == (retried.kind, retried.retryable, retried.attempt)
        assert ("invalid", "API Error: 400 bad") == (shown.kind, shown.message)

    def test_what_was_typed_ahead_is_the_users(self, store: EventStore, tmp_path: Path) -> None:
        """It belongs to the turn that it came in."""
        session = Session()
        session.user("Go.")
        session.assistant("msg_1", tool_use("toolu_1", "Bash", command="ls"), stop="tool_use")
        session.result("toolu_1", "a")
        session.line("attachment", attachment={"type": "queued_command", "prompt": "And b?"})
        _, cid = _import(store, session.write(tmp_path / "a"))
        last = list(store.read(cid))[-1]
        assert (e.UserMessage.text("And b?"), 1) == (last.data, last.meta.turn)

    def test_what_the_program_told_with_a_prompt(self, store: EventStore, tmp_path: Path) -> None:
        """Files that a prompt names, and what hooks add, were sent; both are folded away."""
        session = Session()
        session.user("What is in @a.py?")
        file = {"type": "text", "file": {"filePath": "/a.py", "content": "print(1)"}}
        session.line(
            "attachment", attachment={"type": "file", "filename": "/a.py", "content": file}
        )
        hook = {"type": "hook_additional_context", "content": ["Be kind.", "Be brief."]}
        session.line("attachment", attachment=hook)
        session.assistant("msg_1", text("It prints 1."), stop="end_turn")
        report, cid = _import(store, session.write(tmp_path / "a"))
        asked, named, added, answer = _payloads(store, cid)
        assert {} == report.left_out.passed_over
        assert ["/a.py:\nprint(1)", "Be kind.\nBe brief."] == [
            each.parts[0].text for each in (named, added)
        ]
        assert [None, True, True] == [
            each.ui and each.ui.collapsed for each in (asked, named, added)
        ]
        sent = Views(store).context(cid, mode=None, model="gpt-4o").messages
        assert "print(1)" in str(sent)
        assert "It prints 1." == answer.parts[0].text

    def test_messages_that_a_summary_keeps_stay(self, store: EventStore, tmp_path: Path) -> None:
        """A compaction names those that are sent beside the summary."""
        session = Session()
        session.user("first")
        session.assistant("msg_1", text("first answer"), stop="end_turn")
        asked = session.user("second")
        kept = session.assistant("msg_2", text("kept answer"), stop="end_turn")
        session.line(
            "system",
            subtype="compact_boundary",
            parentUuid=None,
            compactMetadata={"preservedMessages": {"uuids": [asked, kept]}},
        )
        session.user("A summary.", isCompactSummary=True)
        _, cid = _import(store, session.write(tmp_path / "a"))
        sent = str(Views(store).context(cid).messages)
        assert "kept answer" in sent
        assert "first answer" not in sent


class TestWhatTheProgramPrints:
    """``claude -p --output-format stream-json`` prints the messages without a tree of lines."""

    def test_its_messages_are_those_of_a_session(self, store: EventStore, tmp_path: Path) -> None:
        """Answers, calls and results are read; a subagent stands beside; totals are passed over."""
        report, cid = _import(store, printed(tmp_path / "run.jsonl"))
        assert {"rate_limit_event": 1, "result": 1, "system init": 1} == report.left_out.passed_over
        assert not report.left_out.unknown + report.left_out.uninterpreted
        answer, inner, first, last = _payloads(store, cid)
        assert ["Task", "Bash"] == [call.name for call in answer.tool_calls]
        assert ["2.0", "I look."] == [first.call_id, inner.parts[0].text]
        assert "Done." == last.parts[0].text
        sent = str(Views(store).context(cid).messages)
        assert "Done." in sent
        assert "I look." not in sent

    def test_it_is_not_the_sessions_file(self, store: EventStore, tmp_path: Path) -> None:
        """The session's own file says more, and is imported beside it."""
        _, cid = _import(store, printed(tmp_path / "run.jsonl"))
        report, other = _import(store, example().write(tmp_path / "a"))
        assert ([], True) == (report.failures, cid != other)


class TestWhereItBelongs:
    """When a session was, where, and from which other one it was opened."""

    def test_bookkeeping_at_the_head_hides_no_time(self, store: EventStore, tmp_path: Path) -> None:
        """Lines without a time are of the time around them, so that lists are in order."""
        _, cid = _import(store, example().write(tmp_path / "a"))
        moments = [event.meta.occurred_at for event in store.read(cid)]
        assert None not in moments
        (row,) = Views(store).conversations()
        assert "2025-11-22" == str(row.last_activity_at)[:10]
        assert {"cwd": "/home/ada/shop", "gitBranch": "main"}.items() <= row.metadata[
            "claude_code"
        ].items()

    @pytest.mark.parametrize("owner", [{}, {"tenant_id": "t", "user_id": "u"}])
    def test_a_subagents_file_names_its_session(
        self, store: EventStore, tmp_path: Path, owner: dict[str, Any]
    ) -> None:
        """Its conversation is opened from the session's, of the same owner, in either order."""
        aside: dict[str, Any] = {"isSidechain": True, "agentId": "a1b2"}
        agent = Session()
        agent.user("Look for x.", **aside)
        agent.assistant("msg_s", text("Found."), stop="end_turn", **aside)
        paths = [agent.write(tmp_path / "agent-a1b2.jsonl"), example().write(tmp_path / "a")]
        about = {"agentType": "Explore", "description": "Find x", "toolUseId": "toolu_1"}
        (tmp_path / "agent-a1b2.meta.json").write_text(json.dumps(about), "utf-8")
        read = (found for path in paths for found in read_transcripts(path))
        own, session = load(store, (replace(found, **owner) for found in read)).ids  # type: ignore[type-var]
        rows = {row.conversation_id: row for row in Views(store).conversations(**owner)}
        assert (str(session), "Find x") == (rows[own].parent_conversation_id, rows[own].title)
        assert {"agentType": "Explore", "toolUseId": "toolu_1"}.items() <= rows[own].metadata[
            "claude_code"
        ].items()
        assert rows[session].parent_conversation_id is None

    def test_an_agents_agent_names_the_agent(self, store: EventStore, tmp_path: Path) -> None:
        """And what is said of it beside the file may be broken, which is reported."""
        ids = {}
        for agent, above in (("a1", None), ("a2", "a1"), ("a3", None)):
            session = Session()
            session.user("Look.", isSidechain=True, agentId=agent)
            told = {} if above is None else {"parentAgentId": above}
            said = json.dumps(told) if agent != "a3" else "{"
            (tmp_path / f"agent-{agent}.meta.json").write_text(said, "utf-8")
            report, ids[agent] = _import(store, session.write(tmp_path / f"agent-{agent}.jsonl"))
            assert (agent == "a3") is bool(report.failures)
        rows = {row.conversation_id: row for row in Views(store).conversations()}
        assert str(ids["a1"]) == rows[ids["a2"]].parent_conversation_id
        assert rows[ids["a1"]].parent_conversation_id == rows[ids["a3"]].parent_conversation_id


class TestFilesThatGrow:
    """A session that is still written is imported as far as it goes, and completed later."""

    @pytest.mark.parametrize("first", [4, 5, 6, 7, 8, 9, 12, 15, 19, 20])
    def test_any_beginning_and_then_the_whole(
        self, store: EventStore, tmp_path: Path, first: int
    ) -> None:
        """Wherever it was cut, the rest is added, and a third import adds nothing."""
        path = example().write(tmp_path / "a", first)
        load(store, read_transcripts(path))
        report, cid = _import(store, example().write(tmp_path / "a"))
        assert [] == report.failures
        assert ImportReport(unchanged=1, left_out=report.left_out) == _import(store, path)[0]
        (total,) = Views(store).usage(conversation_id=cid)
        assert 79 == total.completion_tokens
        assert ["Bash", "Read"] == [
            call.name for call in Views(store).tool_calls(conversation_id=cid)
        ]
        sent = str(Views(store).context(cid).messages)
        assert "Thanks. What now?" in sent
        assert "Mend it" not in sent

    def test_an_answer_that_goes_on_is_two_events(self, store: EventStore, tmp_path: Path) -> None:
        """What was imported stays, and the rest of the answer follows it."""
        session = Session()
        session.user("hi")
        session.assistant("msg_1", thinking("hm"), out=1)
        _import(store, session.write(tmp_path / "a"))
        session.assistant("msg_1", text("hello"), stop="end_turn", out=5)
        report, cid = _import(store, session.write(tmp_path / "a"))
        assert 1 == report.events_added
        begun, rest = _payloads(store, cid)[1:]
        assert (1, 4) == (begun.usage.completion_tokens, rest.usage.completion_tokens)
        assert (e.TextPart(text="hello"),) == rest.parts

    def test_a_line_that_was_cut_off_is_told(self, store: EventStore, tmp_path: Path) -> None:
        """It comes with the next import."""
        path = example().write(tmp_path / "a")
        whole = path.read_text("utf-8")
        path.write_text(whole[:-20], "utf-8")
        report, _ = _import(store, path)
        assert ["the file ends within this line"] == [
            failure.reason.split("; ")[1] for failure in report.failures
        ]
        path.write_text(whole, "utf-8")
        report, _ = _import(store, path)
        assert (1, []) == (report.events_added, report.failures)

    def test_many_batches(self, store: EventStore, tmp_path: Path) -> None:
        """A long file is appended batch by batch, and completed where it was cut off."""
        session = Session()
        for number in range(700):
            session.user(f"question {number}")
            session.assistant(f"msg_{number}", text("answer"), stop="end_turn")
        _import(store, session.write(tmp_path / "a", 1_001))
        report, cid = _import(store, session.write(tmp_path / "a"))
        assert 399 == report.events_added
        assert 1_401 == store.get(cid).version

    def test_an_erased_session_stays_erased(self, store: EventStore, tmp_path: Path) -> None:
        """Importing its file again brings nothing back, and says so."""
        path = example().write(tmp_path / "a")
        _, cid = _import(store, path)
        store.erase(cid, reason="asked for")
        report = load(store, read_transcripts(path))
        assert (0, 1) == (report.events_added, len(report.failures))
        assert "was erased here" in str(report.failures[0])


class TestOddLines:
    """Whatever a line is, it is told."""

    def test_lines_are_counted_by_kind(self, store: EventStore, tmp_path: Path) -> None:
        """Those that tell nothing, those that nobody knows, and those that stand twice."""
        session = example()
        session.bare("teleport", where="moon")
        session.lines.append(session.lines[3])
        report, _ = _import(store, session.write(tmp_path / "a"))
        assert {"teleport": 1} == report.left_out.unknown
        assert 1 == report.left_out.passed_over["user that occurs twice"]
        assert 1 == report.left_out.passed_over["system turn_duration"]
        assert [] == report.failures

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ({"type": "user", "message": 3}, "its message is not an object"),
            ({"type": "user", "message": {"content": 3}}, "neither a text nor a list"),
            ({"uuid": "u"}, "a line must be an object with a type"),
            ([], "a line must be an object with a type"),
        ],
    )
    def test_broken_lines_are_reported(
        self, store: EventStore, tmp_path: Path, line: Any, reason: str
    ) -> None:
        """With their numbers; the rest is imported."""
        session = example()
        session.lines.insert(5, line)
        report, _ = _import(store, session.write(tmp_path / "a"))
        assert [6] == [failure.line for failure in report.failures]
        assert reason in report.failures[0].reason
        assert 16 == report.events_added

    def test_strict_stops_at_the_first(self, store: EventStore, tmp_path: Path) -> None:
        """Nothing of the session is imported."""
        session = example()
        session.lines.insert(5, {})
        with pytest.raises(ImportFailed, match="a line must be an object"):
            load(store, read_transcripts(session.write(tmp_path / "a")), strict=True)
        assert [] == list(store.list())

    def test_a_file_without_a_session_is_reported(self, store: EventStore, tmp_path: Path) -> None:
        """Titles of other sessions alone are none."""
        session = Session()
        session.lines.append({"type": "summary", "summary": "T", "leafUuid": "x"})
        report = load(store, read_transcripts(session.write(tmp_path / "a"), "claude-code"))
        said = "it contains only the program's bookkeeping"
        assert [f"none of the first 200 lines names a session: {said}"] == [
            failure.reason for failure in report.failures
        ]
