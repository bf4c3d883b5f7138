"""``messages.jsonl`` with ``meta.json`` of document 002: senders, mentions, metadata, growth."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from agent_eventstore.transcripts import export_messages_jsonl, load
from eventstore import EventStore
from eventstore.events import AssistantMessage, Mention, ToolResult, UnknownEvent, UserMessage
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

USER = {"id": "1", "role": "user", "content": "@Mimi hi", "ts": "2024-05-10T12:00:00Z"}
CAT = {"role": "assistant", "cat_id": "mimi", "content": "喵"}
META = {"session_id": "s1", "title": "Cats", "mode": "free_chat", "created_at": "2024-05-10"}


def test_users_and_participants_are_told_apart(write_lines: Write) -> None:
    """The user's lines are user messages; a participant's are its assistant messages."""
    events = only(write_lines(USER, CAT)).events[1:]
    assert [UserMessage, AssistantMessage] == [type(event.data) for event in events]
    assert [None, "mimi"] == [event.meta.agent_id for event in events]
    assert ["mimi", 0] == [events[1].meta.actor, events[1].meta.step]


def test_a_line_without_a_role_is_told_by_its_sender(write_lines: Write) -> None:
    """Somebody who is not the user answers; a line of nobody is not interpreted."""
    lines = [
        {"sender": "user", "text": "a"},
        {"sender": "mimi", "text": "b"},
        {"text": "c"},
    ]
    got = payloads(only(write_lines(*lines), "messages-jsonl"))
    assert [UserMessage, AssistantMessage, UnknownEvent] == [type(data) for data in got]


def test_mentions_are_kept(write_lines: Write) -> None:
    """A mention names its participant, without the sign that marks it."""
    got = payloads(only(write_lines({**USER, "mentions": ["@mimi", 7]}, CAT)))[0]
    assert isinstance(got, UserMessage)
    assert (Mention(participant="mimi", text="@mimi"),) == got.mentions


def test_the_line_is_kept_whole(write_lines: Write) -> None:
    """All fields of a line stand in ``raw``; a content text stands in the payload alone."""
    got = payloads(only(write_lines(USER, CAT)))[0]
    assert isinstance(got, UserMessage)
    assert {"chat_message": {**USER, "content": None}} == got.raw


def test_the_meta_file_tells_about_the_conversation(write: Write, write_lines: Write) -> None:
    """Title, session and time come from the file beside, which is kept whole."""
    write(META, "meta.json")
    transcript = only(write_lines(USER, CAT, name="messages.jsonl"))
    start = transcript.events[0]
    assert ("Cats", "s1") == (transcript.title, start.meta.session_id)
    assert datetime(2024, 5, 10, tzinfo=UTC) == start.meta.occurred_at
    assert {"meta": META} == getattr(start.data, "raw", None)


def test_a_session_that_grows_keeps_its_beginning(write: Write, write_lines: Write) -> None:
    """Neither more lines nor what the product rewrites in the meta file changes the events."""
    write(META, "a/meta.json")
    short = only(write_lines(USER, CAT, name="a/messages.jsonl"))
    write({**META, "updated_at": "2025-01-01"}, "b/meta.json")
    long = only(write_lines(USER, CAT, USER, name="b/messages.jsonl"))
    assert payloads(short) == payloads(long)[:2]
    assert short.origin == long.origin


def test_a_broken_meta_file_leaves_the_messages_alone(write: Write, write_lines: Write) -> None:
    """Without the conversation's id they would be imported twice, once it is mended."""
    write("{", "meta.json")
    transcripts, failures = found(write_lines(USER, CAT, name="messages.jsonl"))
    assert ([], 1) == (transcripts, len(failures))


def test_a_torn_line_is_reported(write_lines: Write) -> None:
    """The line that a crash cut off costs itself only."""
    transcripts, failures = found(write_lines(USER, CAT, '{"role": "us'))
    assert ([3], ["3"]) == ([len(t.events) for t in transcripts], [f[0] for f in failures])


def test_lines_with_blocks_of_anthropics(write_lines: Write, tmp_path: Path) -> None:
    """Calls and results are read, of one block or several, also where a message stands within."""
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}
    lines = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "message": {"content": [{"type": "text", "text": "I look."}, use]}},
        {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
        {"role": "assistant", "content": {"type": "text", "text": "One file."}},
    ]
    _, answer, given, asked, last = payloads(only(write_lines(*lines), "messages-jsonl"))
    assert isinstance(answer, AssistantMessage)
    assert isinstance(given, ToolResult)
    assert isinstance(asked, UserMessage)
    assert isinstance(last, AssistantMessage)
    assert [("Bash", {"command": "ls"})] == [(c.name, c.arguments) for c in answer.tool_calls]
    assert ("3.0", "a.txt") == (given.call_id, given.content)
    assert ["Well?", "One file."] == [part.text for part in (*asked.parts, *last.parts)]  # type: ignore[union-attr]
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        report = load(store, [only(write_lines(*lines), "messages-jsonl")])
        assert not report.left_out.uninterpreted
        assert lines == list(export_messages_jsonl(store, report.ids[0]))


def test_lines_of_openais(write_lines: Write) -> None:
    """Thoughts, refusals and failures that stand beside the content are read as in an array."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    lines = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "", "error": "no such thing"},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]
    _, answer, result, last = payloads(only(write_lines(*lines), "messages-jsonl"))
    assert isinstance(answer, AssistantMessage)
    assert isinstance(result, ToolResult)
    assert isinstance(last, AssistantMessage)
    assert ["reasoning", "refusal"] == [part.kind for part in (*answer.parts, *last.parts)]
    assert ("failed", "no such thing") == (result.status, result.error)
