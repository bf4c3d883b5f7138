"""The timeline: which items a user interface sees, and in what state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from eventstore import events as e
from projections.models.timeline import TIMELINE, TimelineItem
from tests.contract.test_own_events import TicketOpened
from tests.unit.projections.history import CONVERSATION, START, Entry, rows

SEARCH = e.ToolCallRequest(name="search", arguments_text='{"q": 1}', arguments={"q": 1})
ASK = e.AssistantMessage.of("I look.", llm_call_id="a", tool_calls=(SEARCH, SEARCH))


def items(*entries: Entry) -> list[dict[str, Any]]:
    """Return the timeline of the entries."""
    return rows(TIMELINE, "timeline_items", *entries)


def states(*entries: Entry) -> list[tuple[Any, ...]]:
    """Return place, kind, status and text of each item."""
    return [
        (row["version"], row["part"], row["kind"], row["status"], row.get("text"))
        for row in items(*entries)
    ]


def chunk(index: int, text: str = "", **fields: Any) -> e.AssistantChunk:
    """Return a streamed piece of the model call ``a``."""
    return e.AssistantChunk(llm_call_id="a", index=index, text=text, **fields)


class TestAnswers:
    """A model's answer is one item, from its first piece to its end."""

    def test_pieces_grow_one_streaming_item(self) -> None:
        """While it streams, the item holds all the text so far, at the place of its first piece."""
        assert [(2, 1, "assistant", "streaming", "Hello")] == states(
            e.LlmRequest(llm_call_id="a"), chunk(0, "Hel"), chunk(1, "lo")
        )

    def test_the_message_completes_the_streamed_item(self) -> None:
        """The final message does not show the answer a second time."""
        assert [(1, 1, "assistant", "complete", "Hello")] == states(
            chunk(0, "Hel"), e.AssistantMessage.of("Hello", llm_call_id="a")
        )

    def test_an_error_leaves_the_partial_text_and_says_why(self) -> None:
        """A failed answer keeps what had arrived, and the error follows it."""
        assert [
            (1, 1, "assistant", "failed", "Hel"),
            (2, 2, "error", "failed", "no answer for 60 s"),
        ] == states(
            chunk(0, "Hel"),
            e.LlmError(llm_call_id="a", kind="timeout", message="no answer for 60 s"),
        )

    def test_a_crash_shows_as_interrupted(self) -> None:
        """What recovery sealed is told apart from what the provider refused."""
        error = e.LlmError(llm_call_id="a", kind="interrupted", message="", partial_text="Hello")
        assert (1, 1, "assistant", "interrupted", "Hello") == states(chunk(0, "Hel"), error)[0]

    def test_an_unstreamed_partial_text_is_shown(self) -> None:
        """A partial text is an item even if its pieces were never recorded."""
        error = e.LlmError(kind="network", message="reset", partial_text="Hel")
        assert (1, 1, "assistant", "failed", "Hel") == states(error)[0]

    def test_a_piece_after_the_end_is_ignored(self) -> None:
        """A straggler does not open the finished answer again."""
        message = e.AssistantMessage.of("Hello", llm_call_id="a")
        assert states(message) == states(message, chunk(9, "late"))

    def test_reasoning_is_an_item_of_its_own_before_the_text(self) -> None:
        """Reasoning comes first in reading order, and collapsed."""
        found = items(chunk(0, "Yes", reasoning="Hm"))
        assert [("reasoning", True), ("assistant", False)] == [
            (row["kind"], row["collapsed"]) for row in found
        ]

    def test_the_duration_counts_from_the_request(self) -> None:
        """Without a duration of its own, an answer took from its request to its end."""
        message = e.AssistantMessage.of("Hello", llm_call_id="a")
        found = items(e.LlmRequest(llm_call_id="a"), chunk(0, "Hel"), message)
        assert [2000] == [row["duration_ms"] for row in found]

    def test_an_empty_answer_is_shown(self) -> None:
        """A message with neither text nor calls still happened."""
        assert [(1, 1, "assistant", "complete", "")] == states(e.AssistantMessage.of(None))

    def test_a_second_message_under_one_id_is_shown_too(self) -> None:
        """No answer is lost because a writer used an id twice."""
        message = e.AssistantMessage.of("Hello", llm_call_id="a")
        assert [(1, 1), (2, 1)] == [place[:2] for place in states(message, message)]


class TestToolCalls:
    """A tool call is one item, from the model's wish to the result."""

    def test_a_message_with_calls_gives_an_item_for_each(self) -> None:
        """The text comes first, then the calls, which wait."""
        assert [
            (1, 1, "assistant", "complete", "I look."),
            (1, 2, "tool", "pending", None),
            (1, 3, "tool", "pending", None),
        ] == states(ASK)

    def test_execution_and_result_move_the_right_call(self) -> None:
        """Calls of one message go their own ways."""
        found = states(
            ASK,
            e.ToolCall(call_id="1.1", name="search"),
            e.ToolCall(call_id="1.0", name="search"),
            e.ToolResult(call_id="1.1", content="found"),
        )
        assert [("running", None), ("success", "found")] == [item[3:] for item in found[1:]]

    def test_a_result_is_timed_from_the_execution(self) -> None:
        """The time that a call waited for its turn is not the tool's."""
        found = items(
            ASK,
            e.UserMessage.text("go on"),
            e.ToolCall(call_id="1.0", name="search"),
            e.ToolResult(call_id="1.0", content="found"),
        )
        assert 1000 == found[1]["duration_ms"]

    def test_a_real_result_replaces_a_stand_in(self) -> None:
        """A late result is what really came of the call."""
        found = states(
            ASK,
            e.ToolResult(call_id="1.0", status="outcome_unknown"),
            e.ToolResult(call_id="1.0", content="late"),
        )
        assert ("success", "late") == found[1][3:]

    def test_a_call_that_runs_again_has_no_outcome(self) -> None:
        """A stand-in is not shown as what a later execution gave."""
        unknown = e.ToolResult(call_id="1.0", status="outcome_unknown", content="?", duration_ms=5)
        run = e.ToolCall(call_id="1.0", name="search")
        none = ("text", "preview", "ended_at", "duration_ms")
        again = items(ASK, run, unknown, run)[1]
        assert ("running", None, None, None, None) == tuple(again[key] for key in ("status", *none))
        known = items(ASK, run, unknown, run, e.ToolResult(call_id="1.0", content="found"))[1]
        assert ("success", "found", 1000) == (known["status"], known["text"], known["duration_ms"])

    def test_the_first_real_result_stays(self) -> None:
        """Neither a duplicate nor a stand-in replaces what the model was told."""
        found = states(
            ASK,
            e.ToolResult(call_id="1.0", content="first"),
            e.ToolResult(call_id="1.0", status="failed", content="second"),
            e.ToolResult(call_id="1.0", status="not_started"),
        )
        assert ("success", "first") == found[1][3:]

    def test_a_result_without_a_call_is_shown(self) -> None:
        """A result whose call nobody saw makes an item where it stands."""
        result = e.ToolResult(call_id="nobody", name="search", content="found")
        assert [(1, 0, "tool", "success", "found")] == states(result)

    def test_a_result_before_its_call_is_not_lost(self) -> None:
        """A call that comes after its result takes the result's item."""
        found = items(e.ToolResult(call_id="2.0", content="early"), ASK)
        early = [row for row in found if row["version"] == 1]
        assert [("success", "early", "search")] == [
            (row["status"], row["text"], row["name"]) for row in early
        ]

    def test_a_streamed_call_keeps_its_place(self) -> None:
        """A call is visible while the model still writes it, and moves on from there."""
        delta = e.ToolCallDelta(index=0, name="search", arguments='{"q"')
        message = e.AssistantMessage.of(None, llm_call_id="a", tool_calls=(SEARCH,))
        assert [(1, 2, "tool", "streaming", None)] == states(chunk(0, tool_calls=(delta,)))
        assert [(1, 2, "tool", "pending", None)] == states(chunk(0, tool_calls=(delta,)), message)

    def test_a_call_broken_off_in_the_stream_failed(self) -> None:
        """A call that the model did not finish is never shown as waiting."""
        delta = e.ToolCallDelta(index=0, name="search", arguments='{"q"')
        partial = e.PartialToolCall(index=0, name="search", arguments_text='{"q"')
        error = e.LlmError(
            llm_call_id="a", kind="network", message="reset", partial_tool_calls=(partial,)
        )
        found = items(chunk(0, tool_calls=(delta,)), error)
        assert ("failed", '{"q"') == (found[0]["status"], found[0]["arguments"])

    def test_broken_arguments_are_shown_as_the_model_wrote_them(self) -> None:
        """Arguments that do not parse stay visible as text."""
        request = e.ToolCallRequest(name="f", arguments_text="{oops", parse_error="line 1")
        assert "{oops" == items(e.AssistantMessage.of(None, tool_calls=(request,)))[0]["arguments"]

    def test_a_result_in_a_blob_shows_its_preview_and_alias(self) -> None:
        """Large results are shown by their start, and say where the rest is."""
        blob = e.BlobRef(digest="00", size_bytes=9)
        result = e.ToolResult(call_id="1.0", blob=blob, preview="The st", alias="@state/x")
        found = items(ASK, result)[1]
        assert ("The st", "@state/x", True) == (found["text"], found["alias"], found["collapsed"])


class TestRetraction:
    """What was withdrawn is marked, and stays marked."""

    def test_a_withdrawn_range_marks_its_items(self) -> None:
        """Items before the range are untouched."""
        found = states(
            e.UserMessage.text("keep"),
            e.UserMessage.text("undo"),
            e.AssistantMessage.of("gone"),
            e.Retraction(versions=(e.VersionRange(first=2, last=3),)),
        )
        assert ["complete", "withdrawn", "withdrawn", "complete"] == [item[3] for item in found]

    def test_a_streamed_answer_is_withdrawn_by_its_message(self) -> None:
        """The item began at a piece; a retraction names the message that ended it."""
        found = states(
            chunk(0, "Hello"),
            e.AssistantMessage.of("Hello", llm_call_id="a"),
            e.Retraction(versions=(e.VersionRange(first=2, last=2),)),
        )
        assert "withdrawn" == found[0][3]

    def test_a_late_result_does_not_bring_a_withdrawn_call_back(self) -> None:
        """A result that arrives after the undo changes nothing in the timeline."""
        found = states(
            ASK,
            e.Retraction(versions=(e.VersionRange(first=1, last=1),)),
            e.ToolResult(call_id="1.0", content="late"),
        )
        assert [("withdrawn", None)] * 2 == [item[3:] for item in found[1:3]]

    def test_a_range_beyond_the_retraction_reaches_nothing_later(self) -> None:
        """Facts that come after a retraction are not withdrawn by it."""
        found = states(
            e.Retraction(versions=(e.VersionRange(first=1, last=99),)), e.UserMessage.text("new")
        )
        assert ["complete", "complete"] == [item[3] for item in found]


class TestFrame:
    """Turns, runs and steps, and events that cannot be read."""

    def test_a_turn_runs_until_its_end(self) -> None:
        """A turn is one item with the status of its end."""
        meta = e.Meta(turn=1)
        assert [(1, 0, "turn", "running", None)] == states((e.TurnStart(), meta))
        ended = states((e.TurnStart(), meta), (e.TurnEnd(status="max_steps"), meta))
        assert [(1, 0, "turn", "max_steps", None)] == ended

    def test_a_step_ends_with_its_own_run(self) -> None:
        """Equal nodes of two runs are told apart."""
        found = states(
            e.RunStepStart(run_id="r1", node_id="n"),
            e.RunStepStart(run_id="r2", node_id="n"),
            e.RunStepEnd(run_id="r1", node_id="n", status="completed"),
        )
        assert ["completed", "running"] == [item[3] for item in found]

    def test_an_end_without_a_start_is_shown(self) -> None:
        """An import may know only how a turn ended."""
        assert [(1, 0, "turn", "ok", None)] == states(e.TurnEnd(status="ok"))

    def test_an_erased_event_leaves_a_mark_without_content(self) -> None:
        """One sees that something was there, and nothing of what it was."""
        found = items(("user_message", e.Meta(actor="jo@example.org")))[0]
        assert ("erased", None, None) == (found["kind"], found.get("text"), found["actor"])

    def test_erased_pieces_leave_nothing(self) -> None:
        """An erased answer is one mark, not one for each piece."""
        found = states("llm_request", "assistant_chunk", "assistant_chunk", "assistant_message")
        assert [(4, 0, "erased", "complete", None)] == found

    def test_an_event_of_the_future_is_shown_as_unknown(self) -> None:
        """An older program shows that there is something it cannot read."""
        found = items(e.UnknownEvent("hologram", 1, {}))
        assert [("unknown", "hologram")] == [(row["kind"], row["title"]) for row in found]

    def test_an_own_event_is_shown_by_its_type_alone(self) -> None:
        """The same in a process that knows its class and in one that does not."""
        told = items(TicketOpened(number=1), e.UnknownEvent("acme.ticket_opened", 1, {}, "no"))
        assert 2 * [("own", "acme.ticket_opened", None)] == [
            (row["kind"], row["title"], row.get("text")) for row in told
        ]


class TestColumns:
    """What an item tells beside its text."""

    def test_the_preview_is_one_short_line(self) -> None:
        """Lists show a preview, whatever the text holds."""
        found = items(e.UserMessage.text(" a\nb\t" + "x" * 300))[0]["preview"]
        assert "a b " + "x" * 196 == found

    def test_the_end_version_tells_of_every_change(self) -> None:
        """Who asks for items changed since a version misses none."""
        found = items(ASK, e.ToolCall(call_id="1.0", name="search"), chunk(0))
        assert [1, 2, 1] == [row["end_version"] for row in found]

    def test_an_item_comes_back_from_its_row(self) -> None:
        """The class and the table have the same columns."""
        row = items(e.UserMessage.text("hello"))[0]
        item = TimelineItem.from_row({**row, "conversation_id": CONVERSATION, "more": 1})
        assert ("user", "hello", START + timedelta(seconds=1)) == (
            item.role,
            item.text,
            item.started_at,
        )


class TestUi:
    """What a product wishes for its user interface is shown, and overrules the defaults."""

    UI = e.Ui(part_type="chart", collapsed=False, widget={"kind": "bar"})

    def told(self, *entries: Entry) -> list[tuple[Any, ...]]:
        """Return kind and wishes of each item."""
        return [
            (row["kind"], row.get("part_type"), row["collapsed"], row.get("widget"))
            for row in items(*entries)
        ]

    def test_of_each_kind_of_message(self) -> None:
        """One mechanism serves them all."""
        found = self.told(
            e.UserMessage.text("hi", ui=self.UI),
            e.AssistantMessage.of("hi", ui=self.UI),
            e.SystemInstruction(text="hi", ui=self.UI),
            e.Summary(text="hi", versions=(), ui=self.UI),
            e.LlmError(kind="network", message="hi", ui=self.UI),
            e.ToolResult(call_id="9.0", content="hi", ui=self.UI),
        )
        shown = ("chart", False, {"kind": "bar"})
        kinds = ("user", "assistant", "system", "summary", "error", "tool")
        assert [(kind, *shown) for kind in kinds] == found

    def test_what_is_left_open_stays_as_it_is(self) -> None:
        """A part type alone folds nothing and unfolds nothing."""
        found = self.told(
            e.SystemInstruction(text="hi", ui=e.Ui(part_type="p")), e.UserMessage.text("hi")
        )
        assert [("system", "p", True, None), ("user", None, False, None)] == found

    def test_a_message_that_only_calls_tools_shows_on_them(self) -> None:
        """Until their results have wishes of their own."""
        ask = e.AssistantMessage(tool_calls=(SEARCH, SEARCH), ui=self.UI)
        done = e.ToolResult(call_id="1.0", content="x", ui=e.Ui(collapsed=True))
        widget = {"kind": "bar"}
        assert [("tool", "chart", True, widget), ("tool", "chart", False, widget)] == self.told(
            ask, done
        )
