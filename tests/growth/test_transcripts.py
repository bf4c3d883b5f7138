"""Whatever a transcript holds, reading it costs what it is long.

Steps are counted, not timed: see `tests.growth.steps`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.transcripts import Transcript, read_transcripts
from agent_eventstore.transcripts.agent_session_log import OpenAnswer
from tests.growth.steps import assert_linear
from tests.unit.importers.test_pi import line, said

_SIZE = 120  # more brackets than the depth of JSON is looked at without
Lines = Callable[[int], Iterator[Any]]


def _asked(uuid: str, parent: str | None, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "x"}
    about = {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s"}
    return {**about, "message": message, **more}


def _edited_prompts(count: int) -> Iterator[Any]:
    """Yield a session in which every prompt was edited once: its branch has a gap for each."""
    parent = None
    for number in range(count):
        yield _asked(f"a{number}", parent)
        yield _asked(parent := f"b{number}", None if number == 0 else f"b{number - 1}")


def _kept_beside_a_summary(count: int) -> Iterator[Any]:
    parents = [None, *(f"m{number}" for number in range(count))]
    for number in range(count):
        yield _asked(f"m{number}", parents[number])
    kept = {"preservedMessages": {"uuids": parents[1::2]}}
    about = {"type": "system", "subtype": "compact_boundary", "sessionId": "s"}
    yield {**about, "uuid": "c", "parentUuid": None, "compactMetadata": kept}
    yield _asked("s", "c", isCompactSummary=True)


def _rolled_back(count: int) -> Iterator[Any]:
    yield {"type": "session_meta", "payload": {"id": "s"}}
    for number in range(count):
        for text in ("kept", "gone"):
            content = [{"type": "input_text", "text": f"{text} {number}"}]
            item = {"type": "message", "role": "user", "content": content}
            yield {"type": "response_item", "payload": item}
        back = {"type": "thread_rolled_back", "num_turns": 1}
        yield {"type": "event_msg", "payload": back}


def _kept_by_pi(count: int) -> Iterator[Any]:
    yield {"type": "session", "id": "s", "timestamp": "2026-03-01T10:00:00Z", "cwd": "/w"}
    for number in range(count):
        yield said(number, "user", "x")
    yield line(count, "compaction", summary="short", firstKeptEntryId="n1")


def _claimed_backwards(count: int) -> Iterator[Any]:
    """Yield an answer with many calls, which were executed in the reverse order."""
    calls = [{"id": f"c{n}", "function": {"name": f"n{n}"}} for n in range(count)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    at = {"session_id": "s", "turn": 1, "step": 0}
    yield {"type": "assistant", **at, "meta": {"message": message}}
    for number in reversed(range(count)):
        yield {"type": "action", **at, "meta": {"tool": f"n{number}", "input": {}}}


def _retracted(count: int) -> Iterator[Any]:
    ranges = [{"first": 2, "last": 3}]
    for number in range(count):
        yield {"type": "turn_start", "session_id": "s", "content": "x", "meta": {"version": number}}
        data = {"versions": ranges, "reason": "undo"}
        yield {"type": "retraction", "session_id": "s", "meta": {"data": data}}


def _summarised(count: int) -> Iterator[Any]:
    """Yield a session with many summaries, each of everything before it."""
    for number in range(count):
        yield {
            "type": "user_message",
            "session_id": "s",
            "content": "x",
            "meta": {"version": number},
        }
        data = {"text": "short", "versions": [{"first": 1, "last": 2**31 - 1}]}
        yield {"type": "summary", "session_id": "s", "meta": {"data": data}}


def _replaced(count: int) -> Iterator[Any]:
    """Yield a session of Gemini CLI that begins again and again, beside its program's notes."""
    yield {"sessionId": "s", "projectHash": "p", "kind": "main"}
    for number in range(count):
        yield {"id": f"i{number}", "type": "info", "content": "note"}
        yield {"id": f"m{number}", "type": "user", "content": "x"}
        yield {"$set": {"messages": []}}


def _steps(count: int) -> Iterator[Any]:
    calls = [{"tool_call_id": f"c{n}", "function_name": "f", "arguments": {}} for n in range(count)]
    results = [{"source_call_id": f"c{n}", "content": "r"} for n in range(count)]
    step = {"step_id": 1, "source": "agent", "message": "x", "tool_calls": calls}
    steps = [{**step, "observation": {"results": results}}]
    yield {"schema_version": "ATIF-v1.4", "session_id": "s", "steps": steps}


def _called(count: int) -> Iterator[Any]:
    """Yield a turn of ChatGPT with many calls, and a result of each."""
    nodes: dict[str, Any] = {"u": {"message": _of("user"), "parent": None}}
    for number in range(2 * count):
        called = number < count
        message = _of("assistant", recipient="py") if called else _of("tool", name="py")
        parent = f"n{number - 1}" if number else "u"
        nodes[f"n{number}"] = {"message": message, "parent": parent}
    yield {"title": "t", "conversation_id": "c", "mapping": nodes, "current_node": None}


def _of(role: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": ["x"]}
    return {"author": {"role": role, "name": name}, "content": content, **more}


@pytest.mark.parametrize(
    ("lines", "format_name"),
    [
        (_edited_prompts, "claude-code"),
        (_kept_beside_a_summary, "claude-code"),
        (_rolled_back, "codex"),
        (_kept_by_pi, "pi"),
        (_claimed_backwards, "session-jsonl"),
        (_retracted, "session-jsonl"),
        (_summarised, "session-jsonl"),
        (_replaced, "gemini-cli"),
        (_steps, "atif"),
        (_called, "chatgpt"),
    ],
)
def test_reading_a_transcript_costs_what_it_is_long(
    lines: Lines, format_name: str, tmp_path: Path
) -> None:
    """Neither many branches, nor summaries, nor calls of one answer make it cost more."""

    def work(count: int) -> Callable[[], object]:
        path = tmp_path / str(count)
        path.write_text("".join(f"{json.dumps(each)}\n" for each in lines(count)))

        def read() -> None:
            for found in read_transcripts(path, format_name):
                assert isinstance(found, Transcript)
                events = found.stream.read({}) if found.stream is not None else found.events
                assert len(list(events)) > 1

        return read

    assert_linear(work, _SIZE)


def test_an_answer_keeps_its_records_in_one_list() -> None:
    """Each record is added to it: copying what is there would cost the square of their number."""
    answer = OpenAnswer("a", {})
    answer.keep("records", 1)
    kept = answer.raw["records"]
    answer.keep("records", 2)
    assert kept is answer.raw["records"]
    assert [1, 2] == kept
