"""The fold keeps every prefix of a log valid, and lets the right facts win."""

from __future__ import annotations

import json
from typing import Any

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    ConversationStart,
    LlmError,
    LlmRequest,
    Meta,
    NewEvent,
    Notebook,
    Retraction,
    Summary,
    SystemInstruction,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    Ui,
    UnknownEvent,
    UserMessage,
    VersionRange,
)
from projections.context import ContextProjection, build, prompts
from projections.tokens import count_message, tokenizer_for
from tests.checkers import check_openai_messages
from tests.list_row_source import ListRowSource
from tests.unit.context.log import Log, recorded


def calls(count: int = 1, **fields: Any) -> AssistantMessage:
    """Return an assistant message with tool calls."""
    request = ToolCallRequest(name="f", arguments_text="{}", provider_id="p")
    return AssistantMessage(tool_calls=(request,) * count, **fields)


def span(first: int, last: int | None = None) -> tuple[VersionRange, ...]:
    """Return one range of versions."""
    return (VersionRange(first=first, last=last or first),)


def result(call_id: str, content: str | None = "done", **fields: Any) -> ToolResult:
    """Return a tool's result."""
    return ToolResult(call_id=call_id, content=content, **fields)


def contents(log: Log) -> list[Any]:
    """Return the contents of the unlimited view."""
    return [content for _, content in log.said()]


def test_an_unanswered_call_is_sealed_at_once() -> None:
    """A log that ends with a call is a valid request."""
    log = Log([UserMessage.text("go"), calls(2)])
    assert check_openai_messages(log.view().messages) == []
    assert contents(log)[2:] == [prompts.NO_RESULT, prompts.NO_RESULT]
    assert log.row(2, 1).sealed is True


def test_a_started_call_says_that_it_may_have_run() -> None:
    """A crash between call and result must not look like a call that never ran."""
    log = Log([calls(), ToolCall(call_id="1.0", name="f")])
    assert contents(log) == [None, prompts.STARTED]


def test_a_late_result_lands_beside_its_call() -> None:
    """Messages in between do not tear call and result apart."""
    log = Log([calls(), UserMessage.text("well?"), result("1.0")])
    assert log.said() == [("assistant", None), ("tool", "done"), ("user", "well?")]


def test_a_real_result_replaces_an_unknown_outcome() -> None:
    """What recovery sealed is put right by the fact."""
    log = Log([calls(), result("1.0", None, status="outcome_unknown"), result("1.0")])
    assert contents(log) == [None, "done"]
    assert (log.row(1, 1).sealed, log.row(1, 1).source_versions) == (False, [1, 3])


def test_an_unknown_outcome_replaces_no_result() -> None:
    """A late seal cannot undo a fact."""
    log = Log([calls(), result("1.0"), result("1.0", None, status="outcome_unknown")])
    assert contents(log) == [None, "done"]


def test_a_call_that_is_made_after_all_is_no_longer_called_safe_to_make() -> None:
    """After ``not_started`` and a second crash the model read that repeating it was safe."""
    started = ToolCall(call_id="1.0", name="f")
    log = Log([calls(), result("1.0", "never started", status="not_started"), started])
    assert contents(log) == [None, prompts.STARTED]
    log.add(result("1.0", "check first", status="outcome_unknown"))
    assert "never started" not in str(contents(log)[1])
    assert "check first" in str(contents(log)[1])


def test_the_first_result_stays() -> None:
    """A second success does not rewrite what the model has already seen."""
    log = Log([calls(), result("1.0", "one"), result("1.0", "two")])
    assert contents(log) == [None, "one"]


def test_a_result_of_no_call_is_not_sent() -> None:
    """An orphan would have the request refused."""
    log = Log([UserMessage.text("hi"), result("7.0"), result("1.0"), result("nonsense")])
    assert log.said() == [("user", "hi")]


def test_a_call_started_after_its_result_changes_nothing() -> None:
    """Events may come in any order."""
    log = Log([calls(), result("1.0"), ToolCall(call_id="1.0", name="f")])
    assert contents(log) == [None, "done"]


def test_chunks_alone_give_no_message() -> None:
    """An open stream shows only once it is known how it ended."""
    log = Log([UserMessage.text("hi"), AssistantChunk(llm_call_id="a", index=0, text="he")])
    assert log.said() == [("user", "hi")]


def test_erased_and_unknown_events_give_no_message() -> None:
    """What cannot be read is not made up."""
    log = Log([None, UnknownEvent("dream", 1, {}), calls(), None])
    assert contents(log) == [None, prompts.NO_RESULT]


def test_a_failure_is_hidden_once_its_retry_has_answered() -> None:
    """A transient error teaches the model nothing."""
    error = LlmError(llm_call_id="a", kind="timeout", message="late")
    retry = LlmRequest(llm_call_id="b", retry_of="a")
    log = Log([error, retry])
    assert len(log.view().messages) == 1
    log.add(AssistantMessage.of("hello", llm_call_id="b"))
    assert contents(log) == ["hello"]
    assert log.row(1).hidden == "superseded"


def test_only_the_last_of_repeated_failures_shows() -> None:
    """Ten retries in vain are one error."""
    log = Log()
    for attempt in range(1, 4):
        before = f"c{attempt - 1}"
        log.add(LlmRequest(llm_call_id=f"c{attempt}", retry_of=before, attempt=attempt))
        log.add(LlmError(llm_call_id=f"c{attempt}", kind="network", message=f"no {attempt}"))
    assert len(contents(log)) == 1
    assert "no 3" in contents(log)[0]


def test_partial_text_leaves_once_its_repetition_has_answered() -> None:
    """Once, half of an answer stood before the whole of it, with an error, for ever."""
    log = Log([LlmError(llm_call_id="a", kind="network", message="cut", partial_text="Once upon")])
    for before, call in ("ab", "bc"):
        log.add(LlmRequest(llm_call_id=call, retry_of=before))
        assert contents(log)[0].startswith("Once upon")
        log.add(LlmError(llm_call_id=call, kind="network", message="cut", partial_text="Once"))
    log.add(LlmRequest(llm_call_id="d", retry_of="c"))
    assert len(contents(log)) == 3
    log.add(AssistantMessage.of("Once upon a time", llm_call_id="d"))
    assert ["Once upon a time"] == contents(log)
    assert ["superseded"] * 3 == [log.row(version).hidden for version in (1, 3, 5)]


def test_partial_text_that_nobody_repeated_stays() -> None:
    """Whoever says "continue" goes on from it."""
    error = LlmError(llm_call_id="a", kind="network", message="cut", partial_text="Once upon")
    log = Log([error, UserMessage.text("continue"), AssistantMessage.of(" a time")])
    assert ["Once upon", "continue", " a time"] == [text[:9] for text in contents(log)]


def test_an_answer_supersedes_the_failure_of_the_same_call() -> None:
    """A call that was given up and answered after all did not fail."""
    error = LlmError(llm_call_id="a", kind="interrupted", message="?", partial_text="he")
    answer = AssistantMessage.of("hello", llm_call_id="a")
    assert contents(Log([error, answer])) == contents(Log([answer, error])) == ["hello"]


def test_the_latest_system_text_is_sent_and_sent_first() -> None:
    """A newer instruction replaces the older one."""
    start = ConversationStart(base_instructions="old", user_instructions="mine")
    log = Log([start, UserMessage.text("hi")])
    assert log.said() == [("system", "old\n\nmine"), ("user", "hi")]
    log.add(SystemInstruction(text="new", role="developer"))
    assert log.said() == [("developer", "new"), ("user", "hi")]


def test_withdrawing_an_instruction_brings_back_the_one_before() -> None:
    """Undo leaves what there was."""
    log = Log([SystemInstruction(text="one"), SystemInstruction(text="two")])
    log.add(Retraction(versions=span(2)))
    assert contents(log) == ["one"]


def test_the_notebook_follows_the_system_part() -> None:
    """Only its latest text is sent."""
    log = Log([UserMessage.text("hi"), Notebook(text="a"), Notebook(text="b")])
    log.add(SystemInstruction(text="rules"))
    assert contents(log) == ["rules", "NOTEBOOK\nb", "hi"]


def test_a_retraction_hides_whole_groups() -> None:
    """Results go with their call, also those that come afterwards."""
    log = Log([UserMessage.text("hi"), calls(), Retraction(versions=span(2)), result("2.0")])
    assert log.said() == [("user", "hi")]


def test_a_withdrawn_result_leaves_an_answerable_call() -> None:
    """Rewinding to before the result lets the tool run again."""
    log = Log([calls(), result("1.0", "one"), Retraction(versions=span(2))])
    assert contents(log) == [None, prompts.WITHDRAWN_RESULT]
    log.add(result("1.0", "two"))
    assert contents(log) == [None, "two"]


def test_what_is_kept_out_of_the_context_is_not_sent() -> None:
    """``in_context`` false hides a message, and keeps a result's place."""
    out = Meta(in_context=False)
    log = Log([NewEvent(UserMessage.text("ui only"), meta=out), calls()])
    log.add(NewEvent(result("2.0", "secret"), meta=out))
    assert contents(log) == [None, prompts.EXCLUDED_RESULT]
    assert log.row(1).hidden == "excluded"


def test_instructions_that_continue_each_other_are_all_sent() -> None:
    """Of several leading system messages only the last reached the model."""
    log = Log([SystemInstruction(text=t, continues=t != "a") for t in "abc"])
    assert contents(log) == ["a", "b", "c"]
    log.add(SystemInstruction(text="new"))
    assert contents(log) == ["new"]
    log.add(Retraction(versions=span(4)))
    assert contents(log) == ["a", "b", "c"]
    log.add(Retraction(versions=span(2)))
    assert contents(log) == ["a", "c"]


def test_what_a_transcript_once_told_the_model_is_no_instruction() -> None:
    """It replaces none, and stands at its place where a request asks for what was kept out."""
    log = Log([SystemInstruction(text="rules"), UserMessage.text("go")])
    log.add(NewEvent(SystemInstruction(text="be brief"), meta=Meta(in_context=False)))
    log.add(AssistantMessage.of("gone"))
    assert contents(log) == ["rules", "go", "gone"]
    everything = build(ListRowSource(log.rows(), excluded=True))
    assert ["rules", "go", "be brief", "gone"] == [m["content"] for m in everything.messages]


def test_folded_events_of_the_user_interface_are_not_sent() -> None:
    """What a user folded away of the conversation itself is."""

    def shown(part_type: str | None, **fields: Any) -> AssistantMessage:
        ui = Ui(part_type=part_type, collapsed=True)
        return AssistantMessage.of(part_type or "plain", ui=ui, **fields)

    log = Log([UserMessage.text("go", ui=Ui(part_type="chart", collapsed=True))])
    for part_type in ("progress", "text", None, "error"):
        log.add(shown(part_type))
    log.add(calls(ui=Ui(part_type="tool", collapsed=True)))
    log.add(result("6.0", ui=Ui(part_type="tool", collapsed=True)))
    assert contents(log) == ["go", "text", "plain", "error", None, "done"]
    everything = build(ListRowSource(log.rows(), excluded=True))
    assert "progress" in [message["content"] for message in everything.messages]


def test_a_summary_stands_where_what_it_covers_stood() -> None:
    """System part, first and latest user message outlive it."""
    log = Log([SystemInstruction(text="rules"), UserMessage.text("task"), calls(), result("3.0")])
    log.add(UserMessage.text("and then?"))
    log.add(AssistantMessage.of("so"))
    log.add(Summary(text="it went well", versions=span(1, 5)))
    assert contents(log) == [
        "rules",
        "CONVERSATION_SUMMARY\nit went well",
        "task",
        "and then?",
        "so",
    ]


def test_a_summary_of_a_summary_replaces_it() -> None:
    """A later summary may cover the event of an earlier one, or its place."""
    said = [AssistantMessage.of(text) for text in "abcd"]
    by_event = Log([*said, Summary(text="1", versions=span(1, 2))])
    by_event.add(Summary(text="2", versions=span(3, 5)))
    by_place = Log([*said, Summary(text="1", versions=span(1, 2))])
    by_place.add(Summary(text="2", versions=span(1, 4)))
    assert contents(by_event) == contents(by_place) == ["CONVERSATION_SUMMARY\n2"]


def test_a_narrower_summary_releases_what_the_older_one_stood_for() -> None:
    """Nothing is lost between two summaries that overlap."""
    log = Log([AssistantMessage.of(text) for text in "abc"])
    log.add(Summary(text="all", versions=span(1, 3)))
    log.add(Summary(text="a", versions=span(1)))
    assert contents(log) == ["CONVERSATION_SUMMARY\na", "b", "c"]


def test_withdrawing_a_summary_shows_its_sources_again() -> None:
    """What was withdrawn before stays withdrawn."""
    log = Log([AssistantMessage.of(text) for text in "abc"])
    log.add(Retraction(versions=span(2)))
    log.add(Summary(text="s", versions=span(1, 3)))
    log.add(Retraction(versions=span(5)))
    assert contents(log) == ["a", "c"]


def test_withdrawing_a_source_leaves_its_summary() -> None:
    """Otherwise the rest of what the summary stands for would be lost."""
    log = Log([AssistantMessage.of(text) for text in "abc"])
    log.add(Summary(text="s", versions=span(1, 3)))
    log.add(Retraction(versions=span(1)))
    assert contents(log) == ["CONVERSATION_SUMMARY\ns"]


def test_ranges_reach_no_further_than_the_log() -> None:
    """A version that does not exist yet cannot be withdrawn, nor too large a number stored."""
    log = Log([Retraction(versions=span(2, 10**30)), UserMessage.text("hi")])
    assert contents(log) == ["hi"]


def test_rows_carry_their_place_and_the_tokens_of_their_message() -> None:
    """Mode, run, turn and step are columns; tokens equal a fresh count."""
    meta = Meta(mode="run", run_id="r", turn=3, step=2)
    log = Log([NewEvent(calls(2), meta=meta), result("1.1", "naïve 文本")])
    row = log.row(1, 2)
    assert (row.mode, row.run_id, row.turn, row.step) == ("run", "r", 3, 2)
    for row in log.rows():
        assert row.count == count_message(row.message, tokenizer_for("o200k_base"))


def test_the_given_state_is_not_altered() -> None:
    """The engine may fold from the same state twice."""
    projection = ContextProjection()
    before, _ = projection.fold(projection.initial(), recorded(1, calls(2)))
    failure = LlmError(llm_call_id="x", kind="timeout", message="late")
    before, _ = projection.fold(before, recorded(2, failure))
    copy = repr(before)
    for data in (
        ToolCall(call_id="1.1", name="search"),
        result("1.0"),
        calls(llm_call_id="x"),
        LlmRequest(llm_call_id="y", retry_of="x"),
        Summary(text="s", versions=span(1)),
        Retraction(versions=span(1)),
        Notebook(text="n"),
    ):
        projection.fold(before, recorded(3, data))
    assert repr(before) == copy


def test_the_state_is_bounded_by_what_is_open() -> None:
    """A long conversation without open work does not let the state grow beyond a ceiling."""
    log = Log([Notebook(text="n"), UserMessage.text("go")])
    sizes = []
    for _ in range(160):
        version = log.add(calls(2, llm_call_id="x"))
        log.add(result(f"{version}.0"))
        log.add(result(f"{version}.1"))
        sizes.append(len(log.state))
    assert max(sizes) < 1_000
    assert len({size // 20 for size in sizes[100:]}) < 3


def test_calls_beyond_the_ceiling_are_forgotten_oldest_first() -> None:
    """A product that never records results does not make every fold slower."""
    log = Log(calls() for _ in range(300))
    log.add(result("1.0"))
    log.add(result("300.0"))
    assert len(json.loads(log.state)["calls"]) == 256
    assert (log.row(1, 1).sealed, log.row(300, 1).sealed) == (True, False)
