"""A client that goes away: nothing of the exception is kept, and everybody is told who stopped it.

What the exception says is of the server: its addresses, its paths, the scopes of its framework.
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from typing import Any

import pytest

from agent_eventstore.conversation import Conversation
from tests.crash.stand_in import answer
from tests.integration.recording import Recorder, ask_for_tool, data_of, events_of
from tests.unit.test_stops import ClientDisconnect

SECRET = "/srv/app/secret"

STOPS = [
    asyncio.CancelledError(f"Cancelled via cancel scope {SECRET}"),
    GeneratorExit(SECRET),
    KeyboardInterrupt(SECRET),
    ClientDisconnect(SECRET),
    BrokenPipeError(errno.EPIPE, "Broken pipe", SECRET),
    ConnectionResetError("Cannot write to closing transport"),
]


def everything(recording: Recorder, conversation: Conversation) -> str:
    """Return all that the log, the timeline and the prompt hold, as one text."""
    timeline = conversation.views.timeline(conversation.id)
    context = conversation.views.context(conversation.id).messages
    events = [event.data for event in events_of(recording.store, conversation)]
    return repr((events, timeline, context))


def statuses(conversation: Conversation, *kinds: str) -> list[tuple[str, str | None]]:
    """Return what the timeline says of items of these kinds."""
    items = conversation.views.timeline(conversation.id)
    return [(str(item.kind), item.status) for item in items if item.kind in kinds]


@pytest.mark.parametrize("error", STOPS, ids=lambda error: type(error).__name__)
def test_client_that_goes_away_in_mid_stream(recording: Recorder, error: BaseException) -> None:
    """The answer is cancelled, the turn too; log, timeline and prompt say by whom."""
    conversation = recording.start()
    with suppress(type(error)), conversation, conversation.turn("hello") as turn:
        with turn.llm_call() as call:
            for chunk in answer(["Half"], finish=False):
                call.feed(chunk)
            raise error

    (cut,) = data_of(recording.store, conversation, "llm_error")
    assert ("cancelled", False, "Half") == (cut.kind, cut.retryable, cut.partial_text)
    (end,) = data_of(recording.store, conversation, "turn_end")
    assert ("cancelled", None) == (end.status, end.reason)
    assert [("assistant", "cancelled"), ("error", "cancelled")] == statuses(
        conversation, "assistant", "error"
    )
    (closed,) = data_of(recording.store, conversation, "session_end")
    told = [cut.message, end.error, closed.reason]
    assert all(words.startswith("stopped by the user") for words in told)
    found = everything(recording, conversation)
    for text in (SECRET, type(error).__name__, "scope", "transport", "Broken"):
        assert text not in found


@pytest.mark.parametrize("error", STOPS[:4], ids=lambda error: type(error).__name__)
def test_tool_that_is_cancelled_while_it_runs(recording: Recorder, error: BaseException) -> None:
    """It may have taken effect, and the model is told that somebody stopped it, and no more."""
    conversation = recording.start()
    with suppress(type(error)), conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)):
            raise error

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert "outcome_unknown" == result.status
    content = conversation.views.context(conversation.id).messages[-1]["content"]
    assert "cancelled while the tool was running (stopped by the user" in content
    assert "may or may not have taken effect" in content
    assert SECRET not in everything(recording, conversation)


def test_pipe_of_a_tool_that_breaks(recording: Recorder) -> None:
    """A tool's own connection is not the user's: the tool has failed, and the turn with it."""
    conversation = recording.start()
    with suppress(BrokenPipeError), conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert ("failed", "BrokenPipeError: [Errno 32] Broken pipe") == (result.status, result.content)
    assert ["error"] == [e.status for e in data_of(recording.store, conversation, "turn_end")]


def test_pipe_to_a_provider_that_breaks(recording: Recorder) -> None:
    """Before anything of the answer has come, it is the connection of the request."""
    conversation = recording.start()
    with suppress(BrokenPipeError), conversation.turn("hello") as turn, turn.llm_call():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    (error,) = data_of(recording.store, conversation, "llm_error")
    assert ("network", True) == (error.kind, error.retryable)
    assert ["error"] == [e.status for e in data_of(recording.store, conversation, "turn_end")]


@pytest.mark.parametrize("error", STOPS, ids=lambda error: type(error).__name__)
def test_answer_that_is_whole_stands(recording: Recorder, error: BaseException) -> None:
    """Whoever leaves after the model has finished has the answer in the log."""
    conversation = recording.start()
    with suppress(type(error)), conversation.turn("hello") as turn, turn.llm_call() as call:
        for chunk in answer(["Whole"]):
            call.feed(chunk)
        raise error

    assert [] == data_of(recording.store, conversation, "llm_error")
    assert ["cancelled"] == [e.status for e in data_of(recording.store, conversation, "turn_end")]
    assert "Whole" == call.text


def test_error_of_the_products_own_code_names_no_directory(recording: Recorder) -> None:
    """What went wrong is kept, where the server has its files is not."""
    conversation = recording.start()
    with suppress(FileNotFoundError), conversation, conversation.turn("hello") as turn:
        with turn.llm_call() as call:
            for chunk in answer(["Half"], finish=False):
                call.feed(chunk)
            raise FileNotFoundError(errno.ENOENT, "No such file", f"{SECRET}/keys.json")

    (error,) = data_of(recording.store, conversation, "llm_error")
    assert ("invalid", "[Errno 2] No such file: 'keys.json'") == (error.kind, error.message)
    assert "/srv" not in everything(recording, conversation)


def test_error_of_a_provider_keeps_its_words(recording: Recorder) -> None:
    """What the provider says of its own files and addresses helps whoever asks it again."""

    class APIStatusError(Exception):
        status_code = 400
        body: Any = {"code": "invalid", "message": "no /v1/files/abc"}  # noqa: RUF012

    conversation = recording.start()
    with suppress(APIStatusError), conversation.turn("hello") as turn, turn.llm_call():
        raise APIStatusError("no such file /v1/files/abc")

    (error,) = data_of(recording.store, conversation, "llm_error")
    assert "no such file /v1/files/abc" == error.message


def test_tool_keeps_its_words(recording: Recorder) -> None:
    """The model is told what the tool says of its arguments; there is no traceback."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        with suppress(FileNotFoundError), turn.tool(ask_for_tool(turn)):
            raise FileNotFoundError(errno.ENOENT, "No such file", "/home/me/notes.txt")

    (result,) = data_of(recording.store, conversation, "tool_result")
    assert "FileNotFoundError: [Errno 2] No such file: '/home/me/notes.txt'" == result.content
