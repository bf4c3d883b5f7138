"""What the recorder promises of tools: written ahead, one result each, large outputs kept whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.errors import CallAnswered, UnknownAlias
from eventstore.blobs import preview_of
from eventstore.events import Ui, UserMessage
from projections import Views
from tests.checkers import check_openai_messages
from tests.crash.stand_in import answer
from tests.integration.recording import Recorder, ask, ask_for_tool, data_of, events_of, recorder


def test_tool_call_is_durable_before_the_tool_runs(recording: Recorder) -> None:
    """Inside of the block the log has the call, with the key that the tool gets."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        wanted = ask_for_tool(turn, query="x")
        with turn.tool(wanted, idempotent=True) as tool:
            last = events_of(recording.store, conversation)[-1]
            tool.result("found")

    assert "tool_call" == last.type
    call: Any = last.data
    assert (wanted.call_id, tool.idempotency_key) == (call.call_id, call.idempotency_key)
    assert ({"query": "x"}, True) == (call.arguments, call.idempotent)


def test_idempotency_keys_are_the_calls_own(recording: Recorder) -> None:
    """Each call has its own key, and the same one whenever it is executed."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        first, second = ask(turn, (), [("a", {}), ("a", {})]).tool_calls
        keys = [turn.tool(call).idempotency_key for call in (first, second, first)]
        turn.skip(first, "not needed")
        turn.skip(second, "not needed")

    assert keys[0] == keys[2] != keys[1]
    assert [] == data_of(recording.store, conversation, "tool_call")


def test_tool_that_raises(recording: Recorder) -> None:
    """Its exception is the failure that the model is told of, and goes on to the caller."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        tool = turn.tool(ask_for_tool(turn))
        with pytest.raises(ValueError, match="no such file"), tool:
            raise ValueError("no such file")

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert ("failed", "ValueError: no such file") == (result.status, result.content)


def test_tool_that_returns_nothing(recording: Recorder) -> None:
    """Leaving the block without a result is an empty success."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)):
            pass

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert ("success", "") == (result.status, result.content)


def test_result_is_recorded_once(recording: Recorder) -> None:
    """What comes after the first result changes nothing in the log."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.fail("no hits")
            tool.result("hits")

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert ("failed", "no hits") == (result.status, result.error)


def settle(turn: Any, call: Any, how: str) -> None:
    """Bring a tool call to its end."""
    match how:
        case "denied":
            turn.deny(call, "no")
        case "skipped":
            turn.skip(call, "no")
        case "replaced":
            turn.replace(call)
        case "failed":
            with turn.tool(call) as tool:
                tool.fail("no hits")
        case _:
            with turn.tool(call) as tool:
                tool.result("hits")


@pytest.mark.parametrize("first", ["success", "failed", "denied"])
@pytest.mark.parametrize("again", ["denied", "skipped", "replaced"])
def test_call_that_has_its_result_is_refused(recording: Recorder, first: str, again: str) -> None:
    """A second result would stand in the log alone: model, timeline and audit keep the first."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        wanted = ask_for_tool(turn)
        settle(turn, wanted, first)
        before = events_of(recording.store, conversation)
        with pytest.raises(CallAnswered, match=wanted.call_id) as refused:
            settle(turn, wanted, again)
        assert before == events_of(recording.store, conversation)

    assert (wanted.call_id, wanted.name, first) == (
        refused.value.call_id,
        refused.value.tool,
        refused.value.status,
    )


@pytest.mark.parametrize("first", ["success", "failed"])
def test_call_that_runs_again_is_told(
    recording: Recorder, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The second result stands in the log; model, timeline and audit keep the first."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        wanted = ask_for_tool(turn)
        settle(turn, wanted, first)
        assert "runs again" not in caplog.text
        settle(turn, wanted, "success")
        shown = turn.context(mode=None).messages

    assert "a tool call that has a result runs again" in caplog.text
    assert f"call_id='{wanted.call_id}' tool='{wanted.name}' status='{first}'" in caplog.text
    assert first != "failed" or "no hits" in shown[-1]["content"]
    results = data_of(recording.store, conversation, "tool_result")
    assert [first, "success"] == [each.status for each in results]


def test_call_that_runs_twice_at_once_is_told(
    recording: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Both run, whoever entered it; nothing said so."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        wanted = ask_for_tool(turn)
        with turn.tool(wanted) as first:
            with ThreadPoolExecutor(1) as other:
                other.submit(settle, turn, wanted, "success").result()
            first.result("later")

    assert 1 == caplog.text.count("a tool call runs twice at once")
    assert f"call_id='{wanted.call_id}' tool='{wanted.name}' status='running'" in caplog.text


def test_call_whose_outcome_is_unknown_may_run_again(recording: Recorder) -> None:
    """What stands in for a result gives way to a real one."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        wanted = ask_for_tool(turn)
        with pytest.raises(KeyboardInterrupt), turn.tool(wanted):
            raise KeyboardInterrupt
        with turn.tool(wanted) as tool:
            tool.result("hits")
        shown = turn.context(mode=None).messages

    assert "hits" == shown[-1]["content"]
    results = data_of(recording.store, conversation, "tool_result")
    assert ["outcome_unknown", "success"] == [each.status for each in results]


@pytest.mark.parametrize(("method", "status"), [("deny", "denied"), ("skip", "skipped")])
def test_call_that_is_not_executed(recording: Recorder, method: str, status: str) -> None:
    """The log and the model are told why; there is no call that was about to run."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        getattr(turn, method)(ask_for_tool(turn), "not on Sundays")

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert (status, "not on Sundays", None) == (result.status, result.content, result.duration_ms)
    assert [] == data_of(recording.store, conversation, "tool_call")


def test_large_output_is_previewed_and_resolved(recording: Recorder, tmp_path: Path) -> None:
    """The event keeps a preview and an alias; the alias and the file give the whole text."""
    text = "línea\n" * 20_000
    with recording.start(state_directory=tmp_path) as conversation:
        with conversation.turn("list") as turn, turn.tool(ask_for_tool(turn)) as tool:
            tool.result(text)
        (result,) = data_of(recording.store, conversation, "tool_result")
        assert text == conversation.resolve(result.alias)

    assert f"@state/logs/tool-results/{tool.call_id}.txt" == result.alias
    assert preview_of(text) == result.preview
    assert len(result.preview) < len(text)
    written = tmp_path / str(conversation.id) / "logs" / "tool-results" / f"{tool.call_id}.txt"
    assert text == written.read_text(encoding="utf-8")
    assert [written] == [path for path in tmp_path.rglob("*") if path.is_file()]


def test_small_output_has_an_alias_but_no_file(recording: Recorder, tmp_path: Path) -> None:
    """A text that stands in the event is read from there."""
    with recording.start(state_directory=tmp_path) as conversation:
        with conversation.turn("list") as turn, turn.tool(ask_for_tool(turn)) as tool:
            tool.result("short")
        alias = f"@state/logs/tool-results/{tool.call_id}.txt"
        assert "short" == conversation.resolve(alias)

    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "alias",
    [
        "@state/logs/tool-results/99.0.json",
        "@state/logs/tool-results/../../secret.json",
        "@state/logs/tool-results/1.0.json/../../../secret",
        "/etc/passwd",
        "@state/logs/tool-results/1.0.json\n",
        "",
    ],
)
def test_alias_of_nothing(recording: Recorder, alias: str) -> None:
    """A path that names no result of this conversation is refused, wherever it points."""
    conversation = recording.start()

    with pytest.raises(UnknownAlias):
        conversation.resolve(alias)


def test_call_that_recovery_offers_again(recording: Recorder) -> None:
    """An idempotent call is executed again under its key, and the result takes the seal's place."""
    conversation = recording.start()
    turn = conversation.turn("save").__enter__()
    left = turn.tool(ask_for_tool(turn, "save"), idempotent=True).__enter__()

    again = recording.open(conversation.id, if_busy="take_over")
    with again, again.turn("continue") as turn:
        (offered,) = again.recovery.re_executable  # type: ignore[union-attr]
        with turn.tool(offered) as tool:
            tool.result("saved")
        messages = turn.context().messages

    assert left.idempotency_key == tool.idempotency_key
    results = data_of(recording.store, conversation, "tool_result")
    assert ["outcome_unknown", "success"] == [result.status for result in results]
    assert [] == check_openai_messages(messages)
    assert "saved" in str(messages)
    (row,) = again.views.tool_calls(conversation_id=conversation.id)
    assert "success" == row.status


def test_parallel_tools_in_threads(recorded_url: str) -> None:
    """The tools of one turn may run in threads; each call and result is recorded once."""
    with (
        recorder(recorded_url, "sync", synchronous="NORMAL") as recording,
        recording.start() as conversation,
    ):
        with conversation.turn("all") as turn:
            wanted = ask(turn, (), [("work", {"n": n}) for n in range(8)]).tool_calls

            def run(call: Any) -> None:
                with turn.tool(call) as tool:
                    tool.result(f"done {call.arguments['n']}")

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(run, wanted))

        results = data_of(recording.store, conversation, "tool_result")
        assert {f"done {n}" for n in range(8)} == {result.content for result in results}
        assert conversation.version == recording.store.get(conversation.id).version
        assert recording.store.verify(conversation.id).ok


def test_what_a_user_interface_shows_is_recorded_and_not_sent(recording: Recorder) -> None:
    """Of the input, the answer and the tool's result, on the timeline and not in messages[]."""
    ui = Ui(part_type="chart", collapsed=False, widget={"kind": "bar"})
    said = UserMessage.text("hello", ui=ui)
    with recording.start() as conversation, conversation.turn(said) as turn:
        with turn.llm_call() as call:
            call.show(ui)
            for chunk in answer((), [("search", {})]):
                call.feed(chunk)
        with turn.tool(call.tool_calls[0]) as tool:
            tool.result("found", ui=ui)
        messages = turn.context().messages

    shown = Views(recording.store).timeline(conversation.id)
    found = [(i.kind, i.collapsed, i.widget) for i in shown if i.part_type == "chart"]
    assert [("user", False, {"kind": "bar"}), ("tool", False, {"kind": "bar"})] == found
    assert "bar" not in str(messages)
