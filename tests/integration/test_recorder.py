"""What the recorder promises, on both databases, for threads and for event loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.turn import Turn
from eventstore import new_id
from eventstore.errors import WrongExpectedVersion
from eventstore.events import ImagePart, TextPart, UserMessage
from projections.engine.catch_up import is_current
from projections.engine.generations import find_live
from projections.models.open_work import OPEN_WORK
from tests.checkers import check_openai_messages
from tests.crash.stand_in import COMPLETION_TOKENS, PROMPT_TOKENS, answer, pieces_of
from tests.integration.recording import Recorder, ask, ask_for_tool, data_of, events_of


def feed(call: Any, chunks: Iterable[dict[str, Any]]) -> None:
    """Feed all chunks."""
    for chunk in chunks:
        call.feed(chunk)


def fail_in_stream(turn: Turn, **options: Any) -> Any:
    """Record a call whose connection breaks in mid-stream, and return it."""

    def broken() -> Iterator[dict[str, Any]]:
        yield from answer(["Half", " an"], [("search", {"query": "x"})], finish=False)
        raise ConnectionError("reset by peer")

    call = turn.llm_call(turn.context(), **options)
    with pytest.raises(ConnectionError, match="reset"), call:
        feed(call, broken())
    return call


def test_events_of_a_turn_in_order(recording: Recorder) -> None:
    """Request, chunks, message, call, result and end stand in the order in which they happened."""
    with recording.start(title="Greeting") as conversation, conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.result("found")
        ask(turn)

    types = [event.type for event in events_of(recording.store, conversation)]
    types = [kind for kind, before in pairwise([*types, ""]) if kind != before]
    assert types == [
        *("conversation_start", "session_start", "turn_start", "user_message"),
        *("llm_request", "assistant_chunk", "assistant_message", "tool_call", "tool_result"),
        *("llm_request", "assistant_chunk", "assistant_message", "turn_end", "session_end"),
    ]


def test_turns_and_steps_are_numbered(recording: Recorder) -> None:
    """Turns count from 1 in the conversation, steps from 0 in the turn; results have the step."""
    with recording.start() as conversation:
        for said in ("one", "two"):
            with conversation.turn(said) as turn:
                with turn.tool(ask_for_tool(turn)) as tool:
                    tool.result("found")
                ask(turn)

    kinds = ("assistant_message", "tool_result", "turn_end")
    places = [
        (event.meta.turn, event.meta.step)
        for event in events_of(recording.store, conversation, *kinds)
    ]
    assert [(1, 0), (1, 0), (1, 1), (1, None), (2, 0), (2, 0), (2, 1), (2, None)] == places
    assert [2, 2] == [e.step_count for e in data_of(recording.store, conversation, "turn_end")]


def test_turn_numbers_go_on_when_opened_again(recording: Recorder) -> None:
    """The next session's first turn follows the last one of the session before."""
    with recording.start() as conversation, conversation.turn("one") as turn:
        ask(turn)

    with recording.open(conversation.id) as again, again.turn("two") as turn:
        assert 2 == turn.number


def test_tokens_add_up(recording: Recorder) -> None:
    """A turn has the tokens of its calls, the session those of its turns; a failure has none."""
    with recording.start() as conversation:
        with conversation.turn("one") as turn:
            ask(turn)
            ask(turn)
        with conversation.turn("two") as turn:
            fail_in_stream(turn)
            ask(turn)

    turns = [end.tokens for end in data_of(recording.store, conversation, "turn_end")]
    (session,) = data_of(recording.store, conversation, "session_end")
    assert [2 * PROMPT_TOKENS, PROMPT_TOKENS] == [tokens.prompt_tokens for tokens in turns]
    assert 3 * COMPLETION_TOKENS == session.tokens.completion_tokens
    assert 3 * (PROMPT_TOKENS + COMPLETION_TOKENS) == session.tokens.total_tokens
    assert 2 == session.turn_count
    assert session.tokens == conversation.usage


def test_request_is_durable_before_the_model_is_asked(recording: Recorder) -> None:
    """Inside of the block the log has the request, and the digest of what is sent."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        request = turn.context(max_tokens=1_000)
        with turn.llm_call(request, provider="openai", parameters={"temperature": 0}) as call:
            last = events_of(recording.store, conversation)[-1]
            call.response({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})

    assert "llm_request" == last.type
    asked: Any = last.data
    assert (call.id, request.digest) == (asked.llm_call_id, asked.digest)
    assert ("openai", "gpt-4o") == (asked.invocation.provider, asked.invocation.model)
    assert {"temperature": 0} == asked.parameters
    assert request.tokens.tokens == asked.counted_tokens


def test_first_delta_is_durable_at_once(recording: Recorder) -> None:
    """A crash right after the first piece of text still shows that the model had begun."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        with turn.llm_call(turn.context()) as call:
            chunks = answer(["first", " second"])
            for _ in range(2):
                call.feed(next(chunks))
            (written,) = data_of(recording.store, conversation, "assistant_chunk")
            for chunk in chunks:
                call.feed(chunk)

    assert (0, "first") == (written.index, written.text)


def test_chunks_put_together_are_the_message(recording: Recorder) -> None:
    """Batches are numbered without a gap, and hold what the message holds; at most 512 and more."""
    text = "All work and no play makes Jack a dull boy. " * 60
    with recording.start() as conversation, conversation.turn("write") as turn:
        call = ask(turn, pieces_of(text, 7), [("save", {"name": "a"}), ("save", {"name": "b"})])

    chunks = data_of(recording.store, conversation, "assistant_chunk")
    (message,) = data_of(recording.store, conversation, "assistant_message")
    assert list(range(len(chunks))) == [chunk.index for chunk in chunks]
    assert text == "".join(chunk.text for chunk in chunks) == call.text
    arguments = ["", ""]
    for delta in (delta for chunk in chunks for delta in chunk.tool_calls):
        arguments[delta.index] += delta.arguments
    assert arguments == [wanted.arguments_text for wanted in message.tool_calls]
    assert max(len(chunk.text) for chunk in chunks) < 512 + 7


def test_response_that_was_not_streamed(recording: Recorder) -> None:
    """A whole response is a message without chunks, with the provider's usage and calls."""
    function = {"name": "search", "arguments": '{"query": "x"}'}
    message = {"content": None, "tool_calls": [{"id": "call_1", "function": function}]}
    response = {
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    with recording.start() as conversation, conversation.turn("find x") as turn:
        with turn.llm_call(turn.context()) as call:
            call.response(response)
        assert 10 == turn.usage.total_tokens  # type: ignore[union-attr]

    (wanted,) = call.tool_calls
    assert ("search", {"query": "x"}) == (wanted.name, wanted.arguments)
    assert [] == data_of(recording.store, conversation, "assistant_chunk")


def test_arguments_that_are_no_json(recording: Recorder) -> None:
    """The model's text is kept, with the error beside it, and the call can still be refused."""
    broken = {"name": "search", "arguments": '{"query": '}
    message = {"content": None, "tool_calls": [{"id": "call_1", "function": broken}]}
    response = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    with recording.start() as conversation, conversation.turn("find x") as turn:
        with turn.llm_call(turn.context()) as call:
            call.response(response)
        (wanted,) = call.tool_calls
        turn.skip(wanted, f"the arguments are not JSON: {wanted.parse_error}")

    assert ('{"query": ', None) == (wanted.arguments_text, wanted.arguments)
    (result,) = data_of(recording.store, conversation, "tool_result")
    assert "Expecting value: line 1 column 11 (char 10)" == wanted.parse_error
    assert f"the arguments are not JSON: {wanted.parse_error}" == result.content
    assert [] == check_openai_messages(conversation.views.context(conversation.id).messages)


def test_error_in_mid_stream_is_recorded_and_passed_on(recording: Recorder) -> None:
    """The caller gets the exception; the log has its kind and all that had arrived."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        call = fail_in_stream(turn)

    (error,) = data_of(recording.store, conversation, "llm_error")
    assert error == call.error
    assert ("network", True, 1) == (error.kind, error.retryable, error.attempt)
    assert "Half an" == error.partial_text
    (partial,) = error.partial_tool_calls
    assert ("search", '{"query": "x"}') == (partial.name, partial.arguments_text)


def test_retry_names_the_failed_call(recording: Recorder) -> None:
    """It is the next attempt at the same step, and a request of its own."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        failed = fail_in_stream(turn)
        with turn.llm_call(turn.context(), retry_of=failed) as call:
            for chunk in answer(["Whole"]):
                call.feed(chunk)

    first, second = events_of(recording.store, conversation, "llm_request")
    asked: Any = second.data
    assert (failed.id, 2, call.id) == (asked.retry_of, asked.attempt, asked.llm_call_id)
    assert first.meta.step == second.meta.step == 0
    assert [1] == [end.step_count for end in data_of(recording.store, conversation, "turn_end")]


def test_stream_that_ends_unfinished(recording: Recorder) -> None:
    """A stream that stops before the provider said so is a network error, not a message."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        with turn.llm_call(turn.context()) as call:
            for chunk in answer(["Half"], finish=False):
                call.feed(chunk)

    assert (None, ()) == (call.answer, call.tool_calls)
    (error,) = data_of(recording.store, conversation, "llm_error")
    assert ("network", "Half") == (error.kind, error.partial_text)


def test_exception_ends_turn_and_session(recording: Recorder) -> None:
    """What the product's own code raises goes through, and the log says so."""
    conversation = recording.start()
    with pytest.raises(ZeroDivisionError), conversation, conversation.turn("hello"):
        raise ZeroDivisionError("by zero")

    (end,) = data_of(recording.store, conversation, "turn_end")
    assert ("error", "ZeroDivisionError: by zero") == (end.status, end.error)
    (closed,) = data_of(recording.store, conversation, "session_end")
    assert "ZeroDivisionError" == closed.reason


def test_interrupt_aborts_the_turn(recording: Recorder) -> None:
    """Ctrl-C in a tool leaves its outcome unknown, and the turn too."""
    conversation = recording.start()
    with pytest.raises(KeyboardInterrupt), conversation, conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)):
            raise KeyboardInterrupt

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert "outcome_unknown" == result.status
    (end,) = data_of(recording.store, conversation, "turn_end")
    assert ("cancelled", None) == (end.status, end.reason)


def test_limit_of_steps(recording: Recorder) -> None:
    """A turn that reached its limit says so."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        ask(turn)
        turn.max_steps()

    assert ["max_steps"] == [e.status for e in data_of(recording.store, conversation, "turn_end")]


def test_input_of_several_parts(recording: Recorder) -> None:
    """A turn takes text, parts or a whole message; the turn's start does not repeat it."""
    parts = (TextPart(text="What is this?"), ImagePart(url="https://example.org/a.png"))
    with recording.start() as conversation:
        for said in (parts, UserMessage(parts=parts, name="ada")):
            with conversation.turn(said):
                pass

    messages = data_of(recording.store, conversation, "user_message")
    assert [parts, parts] == [message.parts for message in messages]
    starts = data_of(recording.store, conversation, "turn_start")
    assert [None, None] == [start.input for start in starts]


def test_mode_switch(recording: Recorder) -> None:
    """What is recorded afterwards carries the new mode; the history is as it was."""
    with recording.start(mode="chat") as conversation:
        with conversation.turn("one"):
            pass
        conversation.switch_mode("agent", "a tool is needed")
        with conversation.turn("two"):
            pass

    switch = events_of(recording.store, conversation, "mode_switch")[0].data
    assert ("chat", "agent") == (switch.previous, switch.mode)  # type: ignore[union-attr]
    said = events_of(recording.store, conversation, "user_message")
    assert ["chat", "agent"] == [event.meta.mode for event in said]
    assert "agent" == recording.open(conversation.id).mode


def test_session_is_closed_once(recording: Recorder) -> None:
    """Closing twice, by hand and at the end of the block, writes one end."""
    with recording.start(session_mode="once") as conversation:
        conversation.close("done")

    assert ["done"] == [e.reason for e in data_of(recording.store, conversation, "session_end")]
    assert ["once"] == [e.mode for e in data_of(recording.store, conversation, "session_start")]


def test_conversation_is_started_once(recording: Recorder) -> None:
    """A second start under the same id is refused."""
    cid = new_id()
    recording.start(conversation_id=cid)

    with pytest.raises(WrongExpectedVersion):
        recording.start(conversation_id=cid)


def test_long_session_stays_quick_to_open(
    recording: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody reads its views, those that opening reads are caught up now and then."""
    monkeypatch.setattr("agent_eventstore.resuming.EVERY", 20)
    conversation = recording.start()
    known = []
    for _ in range(8):
        with conversation.turn("hello"):
            pass
        known.append(is_known(recording, conversation))

    assert [False] * 6 + [True, False] == known


def is_known(recording: Recorder, conversation: Conversation) -> bool:
    """Whether the open work of a conversation is caught up to its last event."""
    with recording.store.reading() as connection:
        live = find_live(connection, OPEN_WORK)
        assert live is not None
        return bool(is_current(connection, live, conversation.id))
