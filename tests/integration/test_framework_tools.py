"""Tools that a framework runs: what the model is told of them is what the log has of them.

Before, such a call stayed open for ever: "no result is recorded" in messages[], "pending" in the
timeline, and recovery called it safe to make again, although it had run.
"""

from __future__ import annotations

from typing import Any

import pytest

from eventstore import events as e
from projections.models.tool_calls import ToolCallRow
from tests.integration.frameworks import WIRES, Call, Chat, Wire
from tests.integration.recording import Recorder

ONE, TWO = Call("call_1"), Call("call_2", "weather", '{"city": "Rome"}')
CHAT = Chat()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    """Give each specification."""
    return WIRES[request.param]


def ask(turn: Any, prompt: Any, answer: dict[str, Any], **options: Any) -> Any:
    """Call the model as a recorded client does."""
    options = {"tools_from_messages": True, **options}
    with turn.llm_call(prompt=prompt, **options) as call:
        call.response(answer)
    return call


def rows(conversation: Any) -> list[ToolCallRow]:
    """Return the audit table, oldest call first."""
    found: list[ToolCallRow] = conversation.views.tool_calls(conversation_id=conversation.id)
    return sorted(found, key=lambda row: tuple(map(int, row.call_id.split("."))))


def told(conversation: Any) -> list[tuple[str | None, str | None]]:
    """Return status and text of each call's result."""
    return [(row.status, row.result_text) for row in rows(conversation)]


def results(recording: Recorder, conversation: Any) -> list[Any]:
    """Return the events of results."""
    return [r for r in recording.store.read(conversation.id) if isinstance(r.data, e.ToolResult)]


def test_results_of_the_next_request(recording: Recorder, wire: Wire) -> None:
    """What the next request holds is recorded before it is sent, each result with its call."""
    conversation = recording.start()
    prompt = [*wire.said]
    with conversation.turn("hello") as turn:
        ask(turn, prompt, wire.answer(ONE, TWO))
        prompt += [*wire.repeated(ONE, TWO), wire.result(ONE, "one"), wire.result(TWO, "two")]
        ask(turn, prompt, wire.answer(text="Done."))

    types = [r.type for r in recording.store.read(conversation.id)]
    assert ["tool_result", "tool_result", "llm_request", "assistant_message"] == types[-5:-1]
    assert [("success", "one"), ("success", "two")] == told(conversation)
    assert [0, 0] == [r.meta.step for r in results(recording, conversation)]
    items = conversation.views.timeline(conversation.id)
    assert ["success"] * 2 == [item.status for item in items if item.kind == "tool"]
    contents = [m.get("content") for m in conversation.views.context(conversation.id).messages]
    assert ["one", "two", "Done."] == contents[-3:]
    assert () == conversation.views.open_work(conversation.id).tool_calls


def test_a_growing_history_is_recorded_once(recording: Recorder, wire: Wire) -> None:
    """Every request repeats all results: none is recorded twice, whatever the ids are."""
    conversation = recording.start()
    prompt = [*wire.said]
    with conversation.turn("hello") as turn:
        for step in range(4):
            ask(turn, prompt, wire.answer(ONE, ONE))
            prompt += wire.repeated(ONE, ONE)
            prompt += [wire.result(ONE, f"{step}a"), wire.result(ONE, f"{step}b")]
        ask(turn, prompt, wire.answer(text="Done."))
        ask(turn, prompt, wire.answer(text="Done again."))

    wanted = [f"{step}{name}" for step in range(4) for name in "ab"]
    assert wanted == [text for _, text in told(conversation)]
    assert len(wanted) == len(results(recording, conversation))


def test_ids_of_the_frameworks_own(recording: Recorder, wire: Wire) -> None:
    """Calls that go back under other ids are known by name and arguments, each result once.

    Frameworks number calls anew, or send an item's ``id`` as its ``call_id``.
    """
    conversation = recording.start()
    prompt = [*wire.said]
    with conversation.turn("hello") as turn:
        for step in range(3):
            asked = Call(f"a{step}"), Call(f"b{step}", "weather", '{"n": 1}')
            ask(turn, prompt, wire.answer(*asked))
            own = Call("x1", "weather", '{"n":1}'), Call("x2")
            prompt += wire.repeated(*own)
            prompt += [wire.result(own[0], f"sun {step}"), wire.result(own[1], f"found {step}")]
        ask(turn, prompt, wire.answer(text="Done."))

    wanted = [f"{said} {step}" for step in range(3) for said in ("found", "sun")]
    assert wanted == [text for _, text in told(conversation)]


def test_a_foreign_id_with_other_arguments_is_nobodys(recording: Recorder, wire: Wire) -> None:
    """An example in the prompt is not taken for a call that happens to be of the same tool."""
    conversation = recording.start()
    example = Call("e1", "weather", '{"city": "Oslo"}')
    prompt = [*wire.said, *wire.repeated(example), wire.result(example, "rain"), *wire.said]
    with conversation.turn("hello") as turn:
        ask(turn, prompt, wire.answer(TWO))
        ask(turn, prompt, wire.answer(text="Done."))

    assert ["outcome_unknown"] == [status for status, _ in told(conversation)]


def test_a_tool_that_runs_is_not_answered_by_its_own_agent(recording: Recorder, wire: Wire) -> None:
    """A tool asks a model that was asked the same before: what that was told is not its result."""
    conversation = recording.start()
    example = Call("e1", TWO.name, TWO.arguments)
    before = [*wire.said, *wire.repeated(example), wire.result(example, "rain"), *wire.said]
    with conversation.turn("hello") as turn:
        call = ask(turn, [*wire.said], wire.answer(TWO))
        with turn.tool(call.tool_calls[0]) as tool:
            ask(turn, before, wire.answer(text="Sun."))
            tool.result("sun")

    assert [("success", "sun")] == told(conversation)


def test_failed_tool(recording: Recorder) -> None:
    """Anthropic's requests say that a tool failed."""
    wire = WIRES["anthropic_messages"]
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, list(wire.said), wire.answer(ONE))
        failed = wire.result(ONE, "no such city", failed=True)
        ask(turn, [*wire.said, *wire.repeated(ONE), failed], wire.answer(text="Sorry."))
    [row] = rows(conversation)

    assert ("failed", "no such city", "no such city") == (row.status, row.result_text, row.error)


def test_conversation_that_the_provider_keeps(recording: Recorder) -> None:
    """With ``previous_response_id`` a request holds nothing but the newest results."""
    wire = WIRES["openai_responses"]
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, list(wire.said), wire.answer(ONE))
        for step in range(3):
            prompt = {"instructions": "Be brief.", "input": [wire.result(ONE, f"{step}")]}
            ask(turn, prompt, wire.answer(ONE) if step < 2 else wire.answer(text="Done."))

    assert [("success", "0"), ("success", "1"), ("success", "2")] == told(conversation)


def test_tools_of_other_kinds(recording: Recorder) -> None:
    """A custom tool's text, parts, and images are results like any other."""
    custom = {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls"}
    answer = {**WIRES["openai_responses"].answer(ONE), "output": [custom]}
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "https://x"}]
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": parts}
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, "hello", answer)
        ask(turn, [custom, output], WIRES["openai_responses"].answer(text="Done."))
    [result] = results(recording, conversation)

    assert (e.TextPart(text="a"), e.ImagePart(url="https://x")) == result.data.content


def test_large_result(recording: Recorder, tmp_path: Any) -> None:
    """A large result has its alias and its file, as one that the recorder saw."""
    conversation = recording.start(state_directory=tmp_path)
    with conversation.turn("hello") as turn:
        ask(turn, list(CHAT.said), CHAT.answer(ONE))
        result = CHAT.result(ONE, "x" * 40_000)
        ask(turn, [*CHAT.said, *CHAT.repeated(ONE), result], CHAT.answer(text="Done."))
    [row] = rows(conversation)

    assert row.alias
    assert "x" * 40_000 == conversation.resolve(row.alias)
    assert (
        40_000
        == (tmp_path / str(conversation.id) / row.alias.removeprefix("@state/")).stat().st_size
    )


def test_results_that_were_recorded_are_not_recorded_again(recording: Recorder) -> None:
    """What `Turn.tool` and `Turn.deny` said stays, whatever the product sends."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        call = ask(turn, list(CHAT.said), CHAT.answer(ONE, TWO))
        with turn.tool(call.tool_calls[0]) as tool:
            tool.result("18 degrees")
        turn.deny(call.tool_calls[1], "not allowed")
        prompt = [CHAT.result(ONE, "18 degrees, shortened"), CHAT.result(TWO, "You may not.")]
        ask(turn, [*CHAT.said, *CHAT.repeated(ONE, TWO), *prompt], CHAT.answer(text="Done."))

    assert [("success", "18 degrees"), ("denied", "not allowed")] == told(conversation)
    assert 2 == len(results(recording, conversation))


def test_results_of_an_earlier_turn(recording: Recorder) -> None:
    """A result that comes with the next turn belongs to the call of the turn before."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, list(CHAT.said), CHAT.answer(ONE))
    assert [("outcome_unknown", "The turn ended before")] == [
        (status, (text or "")[:21]) for status, text in told(conversation)
    ]
    with conversation.turn("go on") as turn:
        prompt = [*CHAT.said, *CHAT.repeated(ONE), CHAT.result(ONE, "late")]
        ask(turn, prompt, CHAT.answer(text="Done."))

    assert [("success", "late")] == told(conversation)
    assert [(1, 0), (1, 0)] == [
        (r.meta.turn, r.meta.step) for r in results(recording, conversation)
    ]


def test_results_of_an_earlier_session(recording: Recorder) -> None:
    """A process that opens the conversation for each request knows the calls of those before."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, list(CHAT.said), CHAT.answer(ONE))
        ask(
            turn,
            [*CHAT.said, *CHAT.repeated(ONE), CHAT.result(ONE, "first")],
            CHAT.answer(ONE),
        )
    conversation.close()
    again = recording.open(conversation.id, if_busy="take_over")
    with again.turn("go on") as turn:
        prompt = [*CHAT.said, *CHAT.repeated(ONE), CHAT.result(ONE, "first")]
        prompt += [*CHAT.repeated(ONE), CHAT.result(ONE, "second")]
        ask(turn, prompt, CHAT.answer(text="Done."))

    assert [("success", "first"), ("success", "second")] == told(again)


def test_process_that_died_while_a_framework_ran_its_tool(recording: Recorder) -> None:
    """Nobody knows whether the tool ran, and recovery says so; it does not call it safe."""
    conversation = recording.start()
    turn = conversation.turn("hello").__enter__()
    ask(turn, list(CHAT.said), CHAT.answer(ONE))
    again = recording.open(conversation.id, if_busy="take_over")

    assert ["outcome_unknown"] == [status for status, _ in told(again)]
    assert "may or may not have taken effect" in str(rows(again)[0].result_text)


def test_call_that_the_recorder_was_to_run_was_never_started(recording: Recorder) -> None:
    """Where `Turn.tool` runs the tools, what it has not run has not run."""
    conversation = recording.start()
    turn = conversation.turn("hello").__enter__()
    call = ask(turn, list(CHAT.said), CHAT.answer(ONE))
    with turn.tool(call.tool_calls[0]) as tool:
        tool.result("one")
    ask(turn, list(CHAT.said), CHAT.answer(TWO))
    again = recording.open(conversation.id, if_busy="take_over")

    assert ["success", "not_started"] == [status for status, _ in told(again)]


def test_messages_of_the_log_tell_it_nothing(recording: Recorder) -> None:
    """The stand-in for a missing result, sent back as a message, does not become the result."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, list(CHAT.said), CHAT.answer(ONE))
        request = turn.context()
        ask(turn, request.messages, CHAT.answer(text="Hm."))
        ask(turn, [*request.messages, {"role": "user", "content": "?"}], CHAT.answer(text="Hm."))
        assert [("requested", None)] == told(conversation)

    assert ["outcome_unknown"] == [status for status, _ in told(conversation)]


def test_off_by_option(recording: Recorder) -> None:
    """Without the option a request's messages are the product's own affair."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, list(CHAT.said), CHAT.answer(ONE), tools_from_messages=False)
        prompt = [*CHAT.said, *CHAT.repeated(ONE), CHAT.result(ONE, "one")]
        ask(turn, prompt, CHAT.answer(text="Done."), tools_from_messages=False)

    assert [("requested", None)] == told(conversation)


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "hello",
        {"messages": 5},
        [None, 3, "x", []],
        [{"role": "tool"}, {"role": "tool", "tool_call_id": 5, "content": {"a": 1}}],
        [{"role": "assistant", "tool_calls": "x", "content": {"type": "tool_use"}}],
        [{"role": "user", "content": [None, {"type": "tool_result"}]}],
        [{"type": "function_call_output", "call_id": None, "output": None}],
        [{"role": "tool", "tool_call_id": "nobody's", "content": "x"}],
        [{"role": "tool", "tool_call_id": "call_1", "content": None}],
    ],
)
def test_prompts_that_are_none(recording: Recorder, prompt: Any) -> None:
    """Whatever is sent as a prompt, recording does not break the product's loop."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn, list(CHAT.said), CHAT.answer(ONE))
        call = ask(turn, prompt, CHAT.answer(text="Done."))

    assert "Done." == call.text
