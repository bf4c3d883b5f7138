"""Turns and calls are used within their blocks: elsewhere nothing would be recorded, in silence."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from agent_eventstore import AsyncConversation
from agent_eventstore.errors import BlockNotOpen, TurnStillOpen
from eventstore import AsyncEventStore
from tests.crash.stand_in import answer
from tests.integration.recording import Recorder, ask, ask_for_tool, data_of


def test_turn_within_a_turn(recording: Recorder) -> None:
    """It is refused, with the number of the one that is open, which goes on unharmed."""
    conversation = recording.start()
    with conversation.turn("one") as turn:
        inner = conversation.turn("two")
        with pytest.raises(TurnStillOpen, match=r"turn 1 of .* leave its block") as refused, inner:
            raise AssertionError
        ask(turn)
    assert (1, 2) == (refused.value.open_turn, refused.value.turn)
    with inner as turn:
        ask(turn)

    assert ["one", "two"] == [
        e.parts[0].text for e in data_of(recording.store, conversation, "user_message")
    ]
    assert ["ok", "ok"] == [e.status for e in data_of(recording.store, conversation, "turn_end")]


def test_turn_that_was_dropped_keeps_nobody_out(recording: Recorder) -> None:
    """A generator that was never closed leaves its turn behind; the next one is entered."""
    conversation = recording.start()
    conversation.turn("dropped").__enter__()
    gc.collect()
    with conversation.turn("next") as turn:
        ask(turn)

    assert 2 == turn.number


def test_turn_of_a_conversation_that_was_closed(recording: Recorder) -> None:
    """A web framework closes what a stream still needs: the turn stood outside of any session."""
    conversation = recording.start()
    begun = conversation.turn("one")
    conversation.close()
    with pytest.raises(BlockNotOpen, match="was closed: begin turns before that, or open it again"):
        conversation.turn("two")
    with begun as turn:  # begun before, and it ends truthfully
        ask(turn)
    again = recording.open(conversation.id)
    with again.turn("two") as turn:
        ask(turn)

    assert ["one", "two"] == [
        e.parts[0].text for e in data_of(recording.store, conversation, "user_message")
    ]


def test_turn_of_a_closed_conversation_on_an_event_loop(recording: Recorder) -> None:
    """It is refused there too."""

    async def main() -> None:
        async with await AsyncConversation.start(AsyncEventStore(recording.store)) as conversation:
            pass
        with pytest.raises(BlockNotOpen, match="was closed"):
            conversation.turn("late")

    asyncio.run(main())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_turn_outside_of_its_block(recording: Recorder, after: bool) -> None:
    """Whatever would be recorded in it is refused, and told where it belongs."""
    conversation = recording.start()
    with conversation.turn("one") as first:
        wanted = ask_for_tool(first)
        late_call, late_tool = first.llm_call(), first.tool(wanted)
    turn = first if after else conversation.turn("two")
    told = "has been left" if after else "has not been entered"
    version = conversation.version
    for use in (
        lambda: turn.context(),
        lambda: turn.llm_call(),
        lambda: turn.tool(wanted),
        lambda: turn.deny(wanted, "no"),
        lambda: turn.skip(wanted, "no"),
    ):
        with pytest.raises(BlockNotOpen, match=rf"{told}; use it within `.*with conversation.turn"):
            use()
    for block in (late_call, late_tool):
        with pytest.raises(BlockNotOpen, match=r"has been left"), block:
            raise AssertionError
    assert version == conversation.version


def test_tool_outside_of_its_block(recording: Recorder) -> None:
    """A result that comes too early or too late is not dropped in silence."""
    with recording.start() as conversation, conversation.turn("one") as turn:
        tool = turn.tool(ask_for_tool(turn))
        with pytest.raises(BlockNotOpen, match=r"tool.result: its block has not been entered"):
            tool.result("early")
        with tool:
            tool.result("found")
        with pytest.raises(BlockNotOpen, match=r"tool.result: its block has been left"):
            tool.result("late")
        with pytest.raises(BlockNotOpen, match=r"tool.fail: its block has been left"):
            tool.fail("late")
        with pytest.raises(BlockNotOpen, match=r"is over: make another"), tool:
            raise AssertionError

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert "found" == result.content


def test_model_call_outside_of_its_block(recording: Recorder) -> None:
    """A chunk that comes before the request, or after the answer, is refused."""
    chunk: Any = next(answer(["x"]))
    with recording.start() as conversation, conversation.turn("one") as turn:
        call = turn.llm_call()
        with pytest.raises(BlockNotOpen, match=r"call.feed: its block has not been entered"):
            call.feed(chunk)
        with call:
            for each in answer(["Hello"]):
                call.feed(each)
        for use in (call.feed, call.response):
            with pytest.raises(BlockNotOpen, match=r"has been left"):
                use(chunk)

    assert "Hello" == call.text
    assert 1 == len(data_of(recording.store, conversation, "assistant_message"))


def test_second_answer_of_a_call(recording: Recorder) -> None:
    """A call has one answer; what would be a second one is refused."""
    response = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    with recording.start() as conversation, conversation.turn("one") as turn:
        with turn.llm_call() as call:
            call.response(response)
            with pytest.raises(BlockNotOpen, match=r"already has an answer"):
                call.response(response)

    assert 1 == len(data_of(recording.store, conversation, "assistant_message"))
