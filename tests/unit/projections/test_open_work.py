"""The fold that finds what a conversation has begun and not ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eventstore import events as e
from eventstore.events import RecordedEvent
from projections.models.open_items import OpenWork
from projections.models.open_work import OPEN_WORK
from tests.unit.projections.history import CONVERSATION, START, Entry, apply, fold, history

BLANK = {column.name: None for column in OPEN_WORK.tables[0].columns}
IN_TURN = e.Meta(session_id="s", turn=1, step=0)
SEARCH = e.ToolCallRequest(
    name="search", arguments_text='{"q": 1}', arguments={"q": 1}, provider_id="call_1"
)
WRITE = e.ToolCallRequest(name="write", arguments_text="{")
ASKED = e.AssistantMessage.of(None, llm_call_id="a", tool_calls=(SEARCH, WRITE))


def ends_of(events: list[RecordedEvent]) -> OpenWork:
    """Return what is open after the events."""
    _, changes = fold(OPEN_WORK, events)
    row = apply(changes, OPEN_WORK)["open_work"][()]
    return OpenWork.from_row({**BLANK, **row, "conversation_id": CONVERSATION})


def ends(*entries: Entry) -> OpenWork:
    """Return what is open after the entries."""
    return ends_of(history(*entries))


def column(name: str, *entries: Entry) -> Any:
    """Return what a column of the row holds after the entries."""
    _, changes = fold(OPEN_WORK, history(*entries))
    return apply(changes, OPEN_WORK)["open_work"][()][name]


def open_calls(*entries: Entry) -> list[tuple[str, bool]]:
    """Return the open tool calls, and whether they were started."""
    return [(each.call_id, each.started) for each in ends(*entries).tool_calls]


def chunk(index: int, text: str = "", **fields: Any) -> e.AssistantChunk:
    """Return a batch of the model call ``a``."""
    return e.AssistantChunk(llm_call_id="a", index=index, text=text, **fields)


class TestModelCalls:
    """From the request, or the first chunk, to the message or the error."""

    def test_a_request_opens_a_call(self) -> None:
        """It is known with its place, its attempt and its model before anything has arrived."""
        invocation = e.Invocation(provider="openai", model="gpt-4o")
        request = e.LlmRequest(llm_call_id="a", invocation=invocation, attempt=2)
        [call] = ends((request, IN_TURN)).model_calls
        assert ("a", 1, START + timedelta(seconds=1)) == (
            call.llm_call_id,
            call.version,
            call.began_at,
        )
        assert (2, invocation, IN_TURN) == (call.attempt, call.invocation, call.meta)
        assert ("", "", "", ()) == (call.text, call.reasoning, call.refusal, call.tool_calls)

    def test_chunks_are_put_together(self) -> None:
        """Text, reasoning and refusal each in the order in which they came."""
        [call] = ends(
            e.LlmRequest(llm_call_id="a"),
            chunk(0, "Hel", reasoning="let me "),
            chunk(1, "lo", reasoning="think", refusal="no"),
        ).model_calls
        assert ("Hello", "let me think", "no") == (call.text, call.reasoning, call.refusal)

    def test_interleaved_tool_calls_are_put_together(self) -> None:
        """Pieces go to the call of their index; what the first piece named stays."""
        delta = e.ToolCallDelta
        [call] = ends(
            chunk(0, tool_calls=(delta(index=1, provider_id="y", name="write"),)),
            chunk(1, tool_calls=(delta(index=0, provider_id="x", name="search"),)),
            chunk(2, tool_calls=(delta(index=1, arguments='{"a'), delta(index=0, arguments="{"))),
            chunk(3, tool_calls=(delta(index=1, arguments='": 1}'),)),
        ).model_calls
        assert (
            e.PartialToolCall(index=0, provider_id="x", name="search", arguments_text="{"),
            e.PartialToolCall(index=1, provider_id="y", name="write", arguments_text='{"a": 1}'),
        ) == call.tool_calls

    @pytest.mark.parametrize(
        "end",
        [
            e.AssistantMessage.of("hello", llm_call_id="a"),
            e.LlmError(llm_call_id="a", kind="network", message="cut"),
        ],
        ids=lambda end: str(end.type),
    )
    def test_message_or_error_ends_the_call_for_good(self, end: e.Payload) -> None:
        """A chunk that comes after the end opens nothing."""
        assert not ends(e.LlmRequest(llm_call_id="a"), end, chunk(0, "late")).any

    def test_an_answer_without_an_id_ends_no_call(self) -> None:
        """It is a call of its own, as in the usage."""
        [call] = ends(e.LlmRequest(llm_call_id="a"), e.AssistantMessage.of("hello")).model_calls
        assert "a" == call.llm_call_id

    def test_a_failed_call_may_begin_anew(self) -> None:
        """With the same id, it is open again, without what it had streamed before."""
        [call] = ends(
            e.LlmRequest(llm_call_id="a"),
            chunk(0, "old"),
            e.LlmError(llm_call_id="a", kind="network", message="cut"),
            e.LlmRequest(llm_call_id="a", attempt=2),
            chunk(0, "new"),
        ).model_calls
        assert ("new", 2, 4) == (call.text, call.attempt, call.version)

    def test_a_request_after_its_answer_opens_nothing(self) -> None:
        """Facts may come out of order."""
        assert not ends(
            e.AssistantMessage.of("hello", llm_call_id="a"), e.LlmRequest(llm_call_id="a")
        ).any

    def test_a_call_out_of_the_context_says_so(self) -> None:
        """What ends it must stay out of the context too."""
        [call] = ends((e.LlmRequest(llm_call_id="a"), e.Meta(in_context=False))).model_calls
        assert not call.meta.in_context


class TestToolCalls:
    """From the assistant message, through the execution, to the result."""

    def test_calls_are_open_from_the_message_on(self) -> None:
        """With all that is needed to tell of them; none has been started."""
        first, second = ends((ASKED, IN_TURN)).tool_calls
        assert ("1.0", "search", {"q": 1}, "call_1") == (
            first.call_id,
            first.name,
            first.arguments,
            first.provider_id,
        )
        assert ("1.1", None, IN_TURN) == (second.call_id, second.arguments, second.meta)
        assert (False, False) == (first.started, second.started)

    def test_an_execution_marks_its_call_as_started(self) -> None:
        """Of parallel calls only the one that runs."""
        run = e.ToolCall(call_id="1.1", name="write", idempotency_key="k", idempotent=True)
        first, second = ends(ASKED, run).tool_calls
        assert (False, True) == (first.started, second.started)
        assert ("k", True, START + timedelta(seconds=2)) == (
            second.idempotency_key,
            second.idempotent,
            second.started_at,
        )

    @pytest.mark.parametrize(
        "status", ["success", "failed", "skipped", "denied", "not_started", "outcome_unknown"]
    )
    def test_any_result_closes_its_call(self, status: Any) -> None:
        """Stand-ins too: what was sealed is closed."""
        result = e.ToolResult(call_id="1.0", status=status)
        assert [("1.1", False)] == open_calls(ASKED, result)

    def test_executing_a_sealed_call_again_opens_it_again(self) -> None:
        """A second crash must not hide behind the first."""
        sealed = e.ToolResult(call_id="1.0", status="outcome_unknown")
        again = e.ToolCall(call_id="1.0", name="search")
        other = e.ToolResult(call_id="1.1")
        assert [("1.0", True)] == open_calls(ASKED, other, sealed, again)

    def test_executing_an_answered_call_opens_nothing(self) -> None:
        """An execution that is recorded late does not undo the result."""
        answered = (e.ToolResult(call_id="1.0"), e.ToolResult(call_id="1.1"))
        assert [] == open_calls(ASKED, *answered, e.ToolCall(call_id="1.0", name="search"))

    def test_an_execution_that_nobody_asked_for_is_open(self) -> None:
        """It may have taken effect, whoever wanted it."""
        assert [("own", True)] == open_calls(e.ToolCall(call_id="own", name="search"))

    def test_a_result_before_its_call_closes_it(self) -> None:
        """Facts may come out of order."""
        early = e.ToolResult(call_id="2.0")
        assert [("2.1", False)] == open_calls(early, ASKED)

    @pytest.mark.parametrize("call_id", ["", "x", "9.9", "1.7", "call_1"])
    def test_unknown_and_repeated_results_do_no_harm(self, call_id: str) -> None:
        """They close nothing that they do not name; the provider's id names nothing."""
        result = e.ToolResult(call_id=call_id)
        assert [("1.0", False), ("1.1", False)] == open_calls(ASKED, result, result)


class TestRetraction:
    """What was withdrawn from the context is not open work."""

    def test_calls_of_a_withdrawn_message(self) -> None:
        """They are closed, and a late execution does not open them again."""
        withdrawn = e.Retraction(versions=(e.VersionRange(first=1, last=1),))
        assert [] == open_calls(ASKED, withdrawn, e.ToolCall(call_id="1.0", name="search"))

    def test_a_withdrawn_model_call(self) -> None:
        """Its later chunks open nothing."""
        withdrawn = e.Retraction(versions=(e.VersionRange(first=1, last=1),))
        assert not ends(e.LlmRequest(llm_call_id="a"), withdrawn, chunk(0, "late")).any

    def test_what_lies_outside_stays_open(self) -> None:
        """Ranges that reach into the future withdraw nothing of it."""
        withdrawn = e.Retraction(versions=(e.VersionRange(first=2, last=99),))
        found = open_calls(ASKED, e.UserMessage.text("undo"), withdrawn, ASKED)
        assert ["1.0", "1.1", "4.0", "4.1"] == [own_id for own_id, _ in found]


class TestTurnsAndSessions:
    """One of each may be open, with what it has added up."""

    def test_an_open_turn_counts_steps_and_tokens(self) -> None:
        """Steps by their numbers, so that a retry is none; tokens of answers and of errors."""
        usage = e.TokenUsage(prompt_tokens=10, completion_tokens=2)
        meta = e.Meta(session_id="s", turn=3)
        step = e.Meta(session_id="s", turn=3, step=1)
        failed = e.LlmError(llm_call_id="a", kind="network", message="cut", usage=usage)
        answer = e.AssistantMessage.of("x", llm_call_id="b", usage=usage)
        found = ends(
            (e.SessionStart(), e.Meta(session_id="s")),
            (e.TurnStart(), meta),
            (e.LlmRequest(llm_call_id="a"), step),
            (failed, step),
            (e.LlmRequest(llm_call_id="b", retry_of="a"), step),
            (answer, step),
        )
        assert found.turn is not None
        assert found.session is not None
        total = e.TokenUsage(prompt_tokens=20, completion_tokens=4)
        assert (3, 2, 2, total) == (
            found.turn.turn,
            found.turn.version,
            found.turn.steps,
            found.turn.tokens,
        )
        assert ("s", 1, total) == (
            found.session.session_id,
            found.session.turns,
            found.session.tokens,
        )

    def test_steps_without_numbers_are_counted(self) -> None:
        """A model call is a step; its repetition and its answer are none."""
        found = ends(
            e.TurnStart(),
            e.LlmRequest(llm_call_id="a"),
            e.AssistantMessage.of("x", llm_call_id="a"),
            e.AssistantMessage.of("not announced"),
            e.LlmRequest(llm_call_id="b", retry_of="a"),
        )
        assert found.turn is not None
        assert 2 == found.turn.steps

    def test_estimated_tokens_are_not_reported_ones(self) -> None:
        """A sum is reported only if each of its parts is."""
        reported, estimated = (
            e.TokenUsage(prompt_tokens=1, reported=each) for each in (True, False)
        )
        found = ends(
            e.TurnStart(),
            e.AssistantMessage.of("x", usage=reported),
            e.AssistantMessage.of("y", usage=estimated),
        )
        assert found.turn is not None
        assert e.TokenUsage(prompt_tokens=2, reported=False) == found.turn.tokens

    def test_ends_close_what_they_name(self) -> None:
        """An end without a number closes whatever is open, one of another turn nothing."""
        start = (e.TurnStart(), e.Meta(turn=2))
        end = e.TurnEnd(status="ok")
        assert ends(start, (end, e.Meta(turn=1))).turn is not None
        assert ends(start, (end, e.Meta(turn=2))).turn is None
        assert ends(start, end).turn is None

    def test_a_session_ends_likewise(self) -> None:
        """Only the end of another session leaves it open."""
        start = (e.SessionStart(), e.Meta(session_id="s"))
        assert ends(start, (e.SessionEnd(), e.Meta(session_id="t"))).session is not None
        assert not ends(start, (e.SessionEnd(), e.Meta(session_id="s"))).any

    def test_an_idle_session_is_not_open_work(self) -> None:
        """It is there to be closed, and not counted."""
        found = ends(e.SessionStart())
        assert (0, True) == (found.open_count, found.any)

    def test_the_open_step_of_a_run_is_told(self) -> None:
        """For information: it is neither open work nor left when the step or the run ends."""
        step = e.RunStepStart(run_id="r", node_id="n")
        found = ends(step)
        assert found.run_step is not None
        assert ("r", "n", False) == (found.run_step.run_id, found.run_step.node_id, found.any)
        for end in (
            e.RunStepEnd(run_id="r", node_id="n", status="completed"),
            e.RunEnd(run_id="r", status="failed"),
        ):
            assert ends(step, end).run_step is None


class TestErased:
    """Of erased events only the type and the metadata are known."""

    def test_frames_still_count(self) -> None:
        """Starts and ends of turns and sessions."""
        assert ends("session_start", "turn_start").open_count == 1
        assert not ends("session_start", "turn_start", "turn_end", "session_end").any

    def test_an_erased_answer_ends_the_latest_call(self) -> None:
        """Which it must have been, as long as calls do not overlap."""
        found = ends(
            e.LlmRequest(llm_call_id="a"), e.LlmRequest(llm_call_id="b"), "assistant_message"
        )
        assert ["a"] == [call.llm_call_id for call in found.model_calls]

    def test_an_erased_result_closes_the_oldest_call(self) -> None:
        """Results usually come in the order of the calls."""
        assert [("1.1", False)] == open_calls(ASKED, "tool_result")

    def test_what_was_erased_opens_nothing(self) -> None:
        """Neither a request nor a message nor an execution whose ids are gone."""
        assert not ends("llm_request", "assistant_chunk", "assistant_message", "tool_call").any


def test_the_row_follows_every_event() -> None:
    """Recovery appends at ``last_version``, so events that open nothing move it too."""
    found = ends(ASKED, e.UserMessage.text("hello"), e.Notebook(text="note"))
    assert (3, START + timedelta(seconds=3)) == (found.last_version, found.last_event_at)


def test_open_count_is_kept_in_the_row() -> None:
    """Conversations with open work are found by it."""
    assert 0 == column("open_count", e.UserMessage.text("hello"))
    assert 4 == column("open_count", e.TurnStart(), e.LlmRequest(llm_call_id="b"), ASKED)


def test_what_was_closed_leaves_the_state() -> None:
    """Only ids of closed calls are remembered, up to a limit."""
    turn = (e.LlmRequest(llm_call_id="a"), chunk(0, "x" * 100), ASKED)
    results = [
        e.ToolResult(call_id=f"{3 * number}.{index}")
        for number in range(1, 101)
        for index in (0, 1)
    ]
    state, _ = fold(OPEN_WORK, history(*(turn * 100), *results))
    assert ({}, {}) == (state["models"], state["calls"])
    assert (1, 64) == (len(state["ended"]), len(state["answered"]))
