"""Pairing results with calls in transcripts whose call ids are not unique."""

from __future__ import annotations

from agent_eventstore.formats.transcript import Calls
from eventstore.events import ToolCallRequest


def _calls(*groups: tuple[int, str]) -> Calls:
    calls = Calls()
    for version, ids in groups:
        calls.note(
            version,
            [ToolCallRequest(name=f"tool_{i}", arguments_text="{}", provider_id=i) for i in ids],
        )
    return calls


def test_an_id_used_twice_in_a_turn_is_answered_in_order() -> None:
    """Of several open calls of the latest message, the earliest is answered first."""
    calls = _calls((5, "xx"))
    assert ["5.0", "5.1"] == [calls.answer("x"), calls.answer("x")]


def test_the_latest_message_comes_first() -> None:
    """An id that an earlier message has used as well belongs to the latest message."""
    calls = _calls((3, "x"), (7, "x"))
    assert ["7.0", "3.0"] == [calls.answer("x"), calls.answer("x")]


def test_of_earlier_messages_the_latest_open_call_is_answered() -> None:
    """A late result goes back to the nearest call that is still open."""
    calls = _calls((2, "x"), (4, "x"), (6, "y"))
    assert ["4.0", "2.0"] == [calls.answer("x"), calls.answer("x")]


def test_a_second_result_goes_to_the_call_that_was_answered() -> None:
    """A result whose calls are all answered repeats the latest of them."""
    calls = _calls((2, "x"), (4, "x"))
    assert ["4.0", "2.0", "4.0"] == [calls.answer("x") for _ in range(3)]


def test_a_result_of_an_unknown_call_gets_an_id_of_its_own() -> None:
    """Results of calls that were never seen are kept apart from each other."""
    calls = _calls((2, "x"))
    assert ["0.0", "0.1"] == [calls.answer("y"), calls.answer("y")]


def test_a_result_without_an_id_is_paired_by_name_or_place() -> None:
    """Without an id the tool's name tells, and without a name the order."""
    calls = _calls((2, "xyz"))
    assert ["2.1", "2.0", "2.2"] == [
        calls.answer(None, "tool_y"),
        calls.answer(None),
        calls.answer(None),
    ]
