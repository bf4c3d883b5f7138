"""`Turn.stop`: the stop button, pressed by another thread or task."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import TurnStopped
from eventstore import AsyncEventStore
from eventstore import events as e
from tests.crash.stand_in import answer
from tests.integration.recording import Recorder, ask, ask_for_tool, data_of
from tests.integration.test_disconnects import everything, statuses


def ended(recording: Recorder, conversation: Conversation, kind: str) -> list[str]:
    """Return the statuses of the events of a type."""
    return [each.status for each in data_of(recording.store, conversation, kind)]


def test_what_was_said_stays(recording: Recorder) -> None:
    """In mid-stream: the answer so far is kept, all is cancelled, and the product goes on."""
    conversation = recording.start()
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        for chunk in answer(["Half"], finish=False):
            call.feed(chunk)
        presser = threading.Thread(target=turn.stop)
        presser.start()
        presser.join()
        for chunk in answer(["more"]):
            call.feed(chunk)

    (cut,) = data_of(recording.store, conversation, "llm_error")
    assert ("cancelled", "Half", "stopped by the user") == (cut.kind, cut.partial_text, cut.message)
    (end,) = data_of(recording.store, conversation, "turn_end")
    assert ("cancelled", "stopped by the user") == (end.status, end.error)
    assert [("turn", "cancelled"), ("assistant", "cancelled"), ("error", "cancelled")] == statuses(
        conversation, "turn", "assistant", "error"
    )
    assert "stopped by the user" == turn.stopped
    assert "TurnStopped" not in everything(recording, conversation)
    with conversation.turn("go on") as turn:
        ask(turn)


def test_another_reason(recording: Recorder) -> None:
    """The log says who or what has stopped it."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        turn.stop("the budget is spent")
        ask(turn)

    (end,) = data_of(recording.store, conversation, "turn_end")
    assert ("cancelled", "stopped: the budget is spent") == (end.status, end.error)
    assert [] == data_of(recording.store, conversation, "llm_request")


def test_a_tool_that_runs_tells_its_result(recording: Recorder) -> None:
    """It has taken effect: its result is kept, and the next call is not begun."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        wanted = ask_for_tool(turn)
        with turn.tool(wanted) as tool:
            turn.stop()
            tool.result("done")
        with pytest.raises(TurnStopped, match=r"turn 1 of .* stopped by the user"):
            turn.llm_call()

    assert ["success"] == ended(recording, conversation, "tool_result")
    assert ["cancelled"] == ended(recording, conversation, "turn_end")


def test_a_turn_that_was_whole_stays_so(recording: Recorder) -> None:
    """Nobody was kept from anything: the turn has ended well."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        ask(turn)
    turn.stop()

    assert turn.stopped is None
    assert ["ok"] == ended(recording, conversation, "turn_end")


def test_another_error_goes_on(recording: Recorder) -> None:
    """The block keeps its own stop, and no other exception."""
    conversation = recording.start()
    with suppress(ZeroDivisionError), conversation.turn("hello") as turn:
        turn.stop()
        raise ZeroDivisionError

    assert ["error"] == ended(recording, conversation, "turn_end")


@pytest.mark.parametrize("presser", ["task", "thread"])
def test_a_task_that_waits_is_woken(recording: Recorder, presser: str) -> None:
    """Whoever waits for a model that is silent is stopped at once; the task goes on."""

    async def talk(conversation: AsyncConversation) -> list[str]:
        waiting, told = asyncio.Event(), list[str]()

        async def answering() -> None:
            async with conversation.turn("hello") as turn, turn.llm_call() as call:
                turns.append(turn)
                for chunk in answer(["Half"], finish=False):
                    await call.feed(chunk)
                waiting.set()
                await asyncio.Event().wait()
            told.append(str(turn.stopped))
            await asyncio.sleep(0)  # nobody cancels what comes after
            told.append("went on")

        turns: list[object] = []
        task = asyncio.create_task(answering())
        await waiting.wait()
        turn = turns[0]
        if presser == "task":
            turn.stop()  # type: ignore[attr-defined]
        else:
            await asyncio.to_thread(turn.stop)  # type: ignore[attr-defined]
        await task
        return told

    async def main() -> tuple[list[str], AsyncConversation]:
        conversation = await AsyncConversation.start(AsyncEventStore(recording.store))
        told = await talk(conversation)
        async with conversation:
            return told, conversation

    told, conversation = asyncio.run(main())

    assert ["stopped by the user", "went on"] == told
    found = [event.data for event in recording.store.read(conversation.id)]
    [cut] = [data for data in found if isinstance(data, e.LlmError)]
    [end] = [data for data in found if isinstance(data, e.TurnEnd)]
    assert ("cancelled", "Half", "stopped by the user") == (cut.kind, cut.partial_text, cut.message)
    assert ("cancelled", "stopped by the user") == (end.status, end.error)


def test_a_task_that_is_cancelled_besides(recording: Recorder) -> None:
    """A cancellation of somebody else's goes on."""

    async def main() -> bool:
        conversation = await AsyncConversation.start(AsyncEventStore(recording.store))
        entered = asyncio.Event()

        async def answering() -> None:
            async with conversation.turn("hello") as turn:
                entered.set()
                turn.stop()
                await asyncio.Event().wait()

        task = asyncio.create_task(answering())
        await entered.wait()
        task.cancel()
        await asyncio.wait({task})
        await conversation.close()
        return task.cancelled()

    assert asyncio.run(main())


def test_a_synchronous_stream(recording: Recorder) -> None:
    """The conversation of a thread is stopped with the next chunk of its stream."""
    conversation = Conversation.start(recording.store)
    seen = 0
    with conversation, conversation.turn("hello") as turn, turn.llm_call() as call:
        for chunk in answer(["a", "b", "c", "d"]):
            call.feed(chunk)
            seen += 1
            turn.stop()
    assert 1 == seen
