"""ShareGPT: turns of many names become messages, and what nobody knows is kept and counted."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore.transcripts import detect
from agent_eventstore.transcripts.left_out import LeftOut
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

TURNS: list[dict[str, Any]] = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "How warm is it?", "weight": 0},
    {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Oslo"}}'},
    {"from": "observation", "value": '{"degrees": 18}'},
    {"from": "gpt", "value": "18 degrees."},
]


@pytest.mark.parametrize(
    "content",
    [
        [{"id": "a", "conversations": TURNS, "source": "x"}],
        {"id": "a", "conversations": TURNS, "source": "x"},
    ],
)
def test_turns_become_messages(write: Write, content: Any) -> None:
    """An array of conversations, or one; calls and their results are paired."""
    path = write(content)
    assert "sharegpt" == detect(path)
    transcript = only(path)
    told, asked, call, result, answer = payloads(transcript)
    assert isinstance(told, e.SystemInstruction)
    assert e.UserMessage.text("How warm is it?", raw=asked.raw) == asked  # type: ignore[union-attr]
    assert isinstance(call, e.AssistantMessage)
    assert isinstance(result, e.ToolResult)
    assert [("weather", {"city": "Oslo"})] == [(c.name, c.arguments) for c in call.tool_calls]
    assert ("4.0", '{"degrees": 18}') == (result.call_id, result.content)
    assert e.AssistantMessage.of("18 degrees.", raw=answer.raw) == answer  # type: ignore[union-attr]
    start = transcript.events[0].data
    assert isinstance(start, e.ConversationStart)
    assert {"id": "a", "source": "x"} == start.raw


def test_every_turn_is_kept(write: Write) -> None:
    """But for the text that its event has; a call is kept to the byte."""
    kept = [data.raw["sharegpt_turn"] for data in payloads(only(write([{"conversations": TURNS}])))]  # type: ignore[union-attr]
    expected = [{**turn, "value": None} for turn in TURNS]
    expected[2] = TURNS[2]
    assert expected == kept


def test_lines_and_other_names(write_lines: Write) -> None:
    """JSON Lines, ``conversation``, roles, and instructions beside the turns."""
    line = {
        "conversation": [{"role": "user", "content": "a"}, {"from": "GPT", "value": "b"}],
        "system": "Be kind.",
    }
    path = write_lines(line, {"conversations": TURNS})
    assert "sharegpt" == detect(path)
    transcripts, failures = found(path)
    assert ([], 2) == (failures, len(transcripts))
    start = transcripts[0].events[0].data
    assert isinstance(start, e.ConversationStart)
    assert "Be kind." == start.base_instructions
    assert ["user_message", "assistant_message"] == [d.type for d in payloads(transcripts[0])]


def test_the_same_turns_twice_are_two_conversations(write: Write) -> None:
    """Data sets use an id for several."""
    each = {"id": "identity_0", "conversations": TURNS}
    first, second = found(write([each, each]))[0]
    assert first.origin != second.origin


def test_what_nobody_knows_is_kept_and_counted(write: Write) -> None:
    """A turn of another name, one without any, and a call that is none."""
    odd = [{"from": "narrator", "value": "Night."}, {"text": "?"}]
    call = {"from": "function_call", "value": "weather(Oslo)"}
    narrator, nobody, said = payloads(only(write([{"conversations": [*odd, call]}]), "sharegpt"))
    assert isinstance(narrator, e.UnknownEvent)
    assert isinstance(nobody, e.UnknownEvent)
    assert odd == [each.raw["sharegpt_turn"] for each in (narrator, nobody)]
    assert e.AssistantMessage.of("weather(Oslo)", raw={"sharegpt_turn": call}) == said
    left = LeftOut()
    for data in (narrator, nobody, said):
        left.note_event(data)
    assert {"message of from narrator": 1, "message of no type": 1} == left.uninterpreted


@pytest.mark.parametrize("bad", [3, {"conversations": []}, {"conversations": ["a"]}, {"a": 1}])
def test_what_holds_no_turns_is_reported(write: Write, bad: Any) -> None:
    """The others of the file are read."""
    transcripts, failures = found(write([bad, {"conversations": TURNS}]), "sharegpt")
    assert (1, ["1: it is not an object with a list of turns"]) == (len(transcripts), failures)
