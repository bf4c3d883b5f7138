"""Pairing results with calls in transcripts whose call ids are not unique."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.transcripts.transcript import Calls
from eventstore.events import ToolCallRequest, ToolResult
from tests.unit.importers.reading import only, payloads


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


def _repeated_in_opencode() -> Any:
    tools = [
        {"type": "tool", "tool": "f", "callID": "x", "state": {"status": "completed", "output": n}}
        for n in "012"
    ]
    asked = {"info": {"id": "u", "role": "user"}, "parts": [{"type": "text", "text": "hi"}]}
    answer = {"info": {"id": "a", "role": "assistant"}, "parts": tools}
    return {"info": {"id": "s"}, "messages": [asked, answer]}


def _repeated_in_gemini_cli() -> Any:
    calls = [
        {"id": "x", "name": "f", "status": "success", "result": [{"functionResponse": told}]}
        for told in ({"name": "f", "response": {"output": n}} for n in "012")
    ]
    asked = {"id": "1", "type": "user", "content": "hi"}
    answer = {"id": "2", "type": "gemini", "content": "", "toolCalls": calls}
    return {"sessionId": "s", "projectHash": "p", "messages": [asked, answer]}


def _repeated_in_atif() -> Any:
    calls = [{"tool_call_id": "x", "function_name": "f", "arguments": {}}] * 3
    results = [{"source_call_id": "x", "content": n} for n in "012"]
    asked = {"step_id": 1, "source": "user", "message": "hi"}
    answer = {"step_id": 2, "source": "agent", "message": "", "tool_calls": calls}
    return {"steps": [asked, {**answer, "observation": {"results": results}}]}


@pytest.mark.parametrize(
    "session", [_repeated_in_opencode(), _repeated_in_gemini_cli(), _repeated_in_atif()]
)
def test_an_answer_of_an_agent_may_use_an_id_twice(session: Any, tmp_path: Path) -> None:
    """Each of its results answers a call, in order, as in any other transcript."""
    path = tmp_path / "session.json"
    path.write_text(json.dumps(session), "utf-8")
    results = [each for each in payloads(only(path)) if isinstance(each, ToolResult)]
    assert [("3.0", "0"), ("3.1", "1"), ("3.2", "2")] == [(r.call_id, r.content) for r in results]


def test_only_the_newest_are_held() -> None:
    """A transcript that goes on for ever takes no more memory; the newest message is whole."""
    calls = Calls(most=3)
    for version in range(1, 100):
        named = [f"c{version}", f"d{version}"]
        calls.note(
            version, [ToolCallRequest(name="f", arguments_text="{}", provider_id=i) for i in named]
        )
        if version % 3:
            calls.answer(named[0])

    assert not calls.has("c97")
    assert calls.answer("d1") == "0.0"
    assert ["98.1", "99.0", "99.1"] == [calls.answer(each) for each in ("d98", "c99", "d99")]
    assert max(len(calls._by_id), len(calls._last), len(calls._open)) <= 7
    assert max(map(len, calls._open.values())) <= 5
