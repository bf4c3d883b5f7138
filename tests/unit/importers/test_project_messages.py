"""``messages.json`` of document 000: mapping, defaults of its section 6, title, growth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventstore.events import AssistantMessage, Meta, Summary, ToolResult, UserMessage
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

AT = "2024-05-10T12:00:00.000Z"
FIRST: dict[str, Any] = {"id": "m1", "role": "user", "createdAt": AT, "content": "hello"}
CALL = {"id": "c", "type": "function", "function": {"name": "fs.read", "arguments": "{}"}}


def test_metadata_are_taken_over(write: Write) -> None:
    """Mode, run, workflow, agent, time and place in the context come from the message."""
    message = {
        **FIRST,
        "mode": "run",
        "runId": "r",
        "workflowId": "w",
        "agentId": "a",
        "includeInContext": False,
    }
    expected = Meta(
        turn=1,
        mode="run",
        run_id="r",
        workflow_id="w",
        agent_id="a",
        in_context=False,
        occurred_at=datetime(2024, 5, 10, 12, tzinfo=UTC),
    )
    assert expected == only(write([message])).events[1].meta


def test_missing_fields_default(write: Write) -> None:
    """An older message has its content, and belongs to the context."""
    event = only(write([{"role": "user", "content": "hello"}]), "messages-json").events[1]
    raw = {"project_message": {"role": "user", "content": None}}
    assert (UserMessage.text("hello", raw=raw), Meta(turn=1)) == (event.data, event.meta)


def test_fields_of_a_wrong_kind_are_only_kept(write: Write) -> None:
    """A mode or duration that means nothing here is not taken over, and not lost."""
    message = {**FIRST, "role": "assistant", "mode": "A dream", "duration": "long", "runId": 7}
    event = only(write([message])).events[1]
    assert isinstance(event.data, AssistantMessage)
    assert (None, None, None) == (event.meta.mode, event.meta.run_id, event.data.duration_ms)
    assert {**message, "content": None} == event.data.raw["project_message"]


def test_a_tools_result_has_name_and_duration(write: Write) -> None:
    """A tool message is paired with its call, and keeps tool name and milliseconds."""
    messages = [
        {**FIRST, "role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "x", "toolName": "fs.read", "duration": 9},
    ]
    result = payloads(only(write(messages)))[1]
    assert isinstance(result, ToolResult)
    expected = ("2.0", "fs.read", "x", 9, "c")
    told = (result.call_id, result.name, result.content, result.duration_ms, result.provider_id)
    assert expected == told


def test_a_summary_is_a_summary(write: Write) -> None:
    """A system message that begins as summaries do stands for what came before."""
    message = {**FIRST, "role": "system", "content": "CONVERSATION_SUMMARY\nshort"}
    got = payloads(only(write([message])))[0]
    assert isinstance(got, Summary)
    assert ("short", ()) == (got.text, got.versions)


def test_the_index_gives_title_and_mode(write: Write) -> None:
    """The entry is found by the name of the conversation's directory, one level up."""
    index = [
        {"id": "other", "title": "no"},
        {"id": "c1", "title": "yes", "activeType": "agent", "createdAt": AT},
    ]
    for content in (index, {"conversations": index}, {e["id"]: e for e in index}):
        write(content, "conversations/index.json")
        transcript = only(write([FIRST], "conversations/c1/messages.json"))
        start = transcript.events[0]
        assert ("yes", "agent") == (transcript.title, getattr(start.data, "mode", None))
        assert datetime(2024, 5, 10, 12, tzinfo=UTC) == start.meta.occurred_at


def test_a_broken_index_costs_the_title_only(write: Write) -> None:
    """It is reported, and the conversation is read without a title."""
    write("{", "index.json")
    transcripts, failures = found(write([FIRST], "messages.json"))
    assert ([None], 1) == ([t.title for t in transcripts], len(failures))


def test_a_file_that_grows_keeps_its_beginning(write: Write) -> None:
    """The first message tells which conversation it is, whatever directory the file lies in."""
    short = only(write([FIRST], "a/messages.json"))
    long = only(write([FIRST, {"role": "assistant", "content": "hi"}], "b/copy.json"))
    assert short.origin == long.origin
    assert short.events == long.events[:2]


def test_messages_that_name_their_conversation_decide(write: Write) -> None:
    """The same first message in two conversations makes two."""
    one, two = (only(write([{**FIRST, "conversationId": c}], c)) for c in ("c1", "c2"))
    assert one.origin != two.origin


def test_an_element_that_is_no_message_is_reported(write: Write) -> None:
    """The others are read, up to a break in the file."""
    path = write('[{"role": "user"},\n7,\n{"role": "user"},\n{oops', "messages.json")
    transcripts, failures = found(path, "messages-json")
    assert [3] == [len(transcript.events) for transcript in transcripts]
    assert ["2", "4"] == [failure.split(":")[0] for failure in failures]


def test_an_object_around_the_messages_is_understood(write: Write) -> None:
    """Some products write the array under ``messages``."""
    assert 2 == len(only(write({"messages": [FIRST]}), "messages-json").events)
