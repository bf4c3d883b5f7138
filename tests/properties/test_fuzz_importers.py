"""Whatever a file holds: each importer ends in transcripts and reports of what cannot be read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import FORMATS, Transcript, detect, load, read_transcripts
from eventstore import EventStore, NewEvent
from eventstore.blobs import THRESHOLD_BYTES
from eventstore.errors import InvalidEvent
from eventstore.events.codec import decode, encode
from eventstore.sql.append_requests import prepare
from tests.integration.claude_sessions import example as claude_example
from tests.integration.codex_sessions import rollout
from tests.integration.test_chatgpt import spoken
from tests.properties.hostile import HOSTILE, changed_bytes, changed_json, jsons
from tests.scaled_settings import scaled_settings
from tests.unit.importers.reading import TAU_BENCH
from tests.unit.importers.test_agent_dumps import DUMPS
from tests.unit.importers.test_atif import TRAJECTORY
from tests.unit.importers.test_chat_exports import EXPORTS
from tests.unit.importers.test_copilot_cli import LINES as COPILOT
from tests.unit.importers.test_cursor import PRINTED as CURSOR
from tests.unit.importers.test_gemini_cli import SESSION
from tests.unit.importers.test_opencode import SESSION as OPENCODE
from tests.unit.importers.test_openhands import EVENTS
from tests.unit.importers.test_pi import LINES as PI
from tests.unit.importers.test_sharegpt import TURNS

BY_LINE = ("session-jsonl", "messages-jsonl", "claude-code", "codex", "copilot-cli", "cursor", "pi")
_FORMATS = st.sampled_from([None, *FORMATS])
_LINES = [
    {"type": "session_start", "session_id": "s", "ts": "2024-05-10T12:00:00Z", "meta": {}},
    {"type": "turn_start", "session_id": "s", "turn": 1, "content": "hi"},
    {
        "type": "assistant",
        "session_id": "s",
        "turn": 1,
        "step": 0,
        "content": None,
        "meta": {"tokens": {"prompt": 3}, "version": 3},
    },
    {
        "type": "action",
        "session_id": "s",
        "turn": 1,
        "step": 0,
        "meta": {"tool": "x", "input": {"a": 1}, "call_id": "4.0", "tool_call_id": "c"},
    },
    {
        "type": "observation",
        "session_id": "s",
        "turn": 1,
        "step": 0,
        "content": "found",
        "meta": {"status": "success", "durationMs": 1.5, "tool": "x"},
    },
    {"type": "final", "session_id": "s", "turn": 1, "step": 1, "content": "done"},
    {"type": "retraction", "session_id": "s", "meta": {"data": {"versions": [[2, 3]]}}},
    {"type": "turn_end", "session_id": "s", "turn": 1, "meta": {"status": "ok", "stepCount": 1}},
]
_PROJECT = [
    {"role": "user", "content": "hi", "createdAt": 1_700_000_000_000, "conversationId": "p"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "u"}},
        ],
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        "includeInContext": False,
        "duration": 12,
    },
    {"role": "tool", "toolName": "f", "tool_call_id": "c", "content": "r", "mode": "agent"},
    {"role": "system", "content": "SUMMARY of all that", "createdAt": "2024-05-10T12:00:00"},
]
_CHAT = [
    {"sender": "user", "text": "hi", "mentions": ["@cat"], "timestamp": 1_700_000_000},
    {"catId": "cat", "content": "hello", "threadId": "t", "tool_calls": [{"id": 1}]},
]
_DUMP = [
    {"type": "human", "data": {"content": [{"type": "text", "text": "hi"}], "name": "ada"}},
    {
        "type": "ai",
        "data": {
            "content": "I look.",
            "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}],
            "invalid_tool_calls": [{"name": "g", "args": "{", "id": "d", "error": None}],
            "usage_metadata": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
            "response_metadata": {"model_name": "m", "finish_reason": "stop"},
        },
    },
    {"type": "tool", "data": {"content": "r", "tool_call_id": "c", "status": "error"}},
    {"lc": 1, "type": "constructor", "id": ["x", "AIMessage"], "kwargs": {"content": "done"}},
]


def _documents() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        "session-jsonl": _LINES,
        "messages-json": _PROJECT,
        "messages-jsonl": _CHAT,
    }
    found["claude-code"] = list[Any](claude_example().lines)
    found["codex"] = rollout().lines
    found["chatgpt"] = [spoken().exported()]
    found["sharegpt"] = [{"id": "a", "conversations": TURNS}]
    found["openhands"] = EVENTS
    found["atif"] = [TRAJECTORY]
    found["copilot-cli"] = COPILOT
    found["cursor"] = CURSOR
    found["gemini-cli"] = [SESSION]
    found["opencode"] = [OPENCODE]
    found["pi"] = PI
    found["langchain"] = _DUMP
    found |= {name: [value] for name, value in EXPORTS.items()}
    found |= {name: each if isinstance(each, list) else [each] for name, each in DUMPS.items()}
    real = json.loads(TAU_BENCH.read_text("utf-8"))
    shortest = sorted(real, key=lambda each: len(json.dumps(each)))[:2]
    return {**found, "openai": shortest}


DOCUMENTS = _documents()
_TEXTS = {
    name: "\n".join(map(json.dumps, document)) if name in BY_LINE else json.dumps(document)
    for name, document in DOCUMENTS.items()
}


@contextmanager
def written(content: bytes, **beside: bytes) -> Iterator[Path]:
    """Write a file, and others beside it, and give its path."""
    with tempfile.TemporaryDirectory() as directory:
        for name, other in beside.items():
            (Path(directory) / f"{name}.json").write_bytes(other)
        path = Path(directory) / "file"
        path.write_bytes(content)
        yield path


def _read(path: Path, format_name: str | None) -> list[Transcript]:
    """Return a file's transcripts; fail if reading raises, or gives what cannot be stored."""
    found = list(read_transcripts(path, format_name))
    transcripts = [item for item in found if isinstance(item, Transcript)]
    assert all(isinstance(item, Transcript | ImportFailed) for item in found)
    for transcript in transcripts:
        events = transcript.events
        if transcript.stream is not None:
            events = tuple(e for e in transcript.stream.read({}) if isinstance(e, NewEvent))
        with suppress(InvalidEvent):
            prepare(events, None, THRESHOLD_BYTES)
            for event in events:
                data = event.data
                assert data == decode(data.type, data.schema_version, encode(data))
    return transcripts


@given(st.binary(max_size=200) | st.sampled_from(HOSTILE), _FORMATS)
def test_bytes_never_break_a_reader(content: bytes, format_name: str | None) -> None:
    """What is not text, no JSON or of no format is reported."""
    with written(content) as path:
        _read(path, format_name)
        with suppress(ImportFailed):
            assert detect(path) in FORMATS


@given(st.lists(jsons(), max_size=4), st.booleans(), _FORMATS)
@example(values=[{"type": [], "session_id": 1}], lines=True, format_name=None)
def test_json_never_breaks_a_reader(
    values: list[Any], lines: bool, format_name: str | None
) -> None:
    """Neither does JSON of any other kind, nor what only Python takes for JSON."""
    text = "\n".join(map(json.dumps, values)) if lines else json.dumps(values)
    with written(text.encode("utf-8", "surrogatepass")) as path:
        _read(path, format_name)


@given(st.sampled_from(sorted(_TEXTS)), st.data())
def test_damaged_bytes_never_break_a_reader(name: str, data: st.DataObject) -> None:
    """A transcript that was cut, spliced or overwritten is read as far as it goes, or reported."""
    content = data.draw(changed_bytes(_TEXTS[name].encode()))
    with written(content) as path:
        _read(path, data.draw(st.sampled_from([None, name])))


@given(st.sampled_from(sorted(DOCUMENTS)), st.data())
def test_damaged_values_never_break_a_reader(name: str, data: st.DataObject) -> None:
    """Any value of a real transcript may be any other JSON."""
    document = data.draw(changed_json(DOCUMENTS[name]))
    values = document if isinstance(document, list) else [document]
    text = "\n".join(map(json.dumps, values)) if name in BY_LINE else json.dumps(document)
    with written(text.encode()) as path:
        _read(path, name)


@given(st.binary(max_size=20) | st.sampled_from(HOSTILE) | jsons().map(json.dumps).map(str.encode))
@example(b'{"conversations": {"file": [1e999]}}')
@example(b'{"id": "\\ud800", "title": 3, "mode": [], "createdAt": 1e300}')
def test_what_stands_beside_never_breaks_a_reader(content: bytes) -> None:
    """``meta.json`` and ``index.json`` may be as broken as the file itself."""
    for name in ("messages-json", "messages-jsonl"):
        with written(_TEXTS[name].encode(), meta=content, index=content) as path:
            _read(path, name)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_large_things_are_read_or_reported(number: int) -> None:
    """Deep nesting, a million digits and megabytes in one line are no way to stop a reader."""
    for content in (HOSTILE[number], b'[{"role": "user", "content": ' + HOSTILE[number] + b"}]"):
        with written(content) as path:
            for format_name in (None, *FORMATS):
                _read(path, format_name)


@scaled_settings(15)
@given(st.lists(st.sampled_from(sorted(DOCUMENTS)), min_size=1, max_size=3), st.data())
def test_loading_never_breaks_the_store(names: list[str], data: st.DataObject) -> None:
    """What can be loaded is whole, and loading it again adds nothing; the rest is in the report."""
    with tempfile.TemporaryDirectory() as directory:
        with EventStore.open(f"sqlite:///{directory}/store.db", synchronous="OFF") as store:
            for name in names:
                document = data.draw(changed_json(DOCUMENTS[name]))
                lines = document if name in BY_LINE and isinstance(document, list) else [document]
                content = "\n".join(map(json.dumps, lines)).encode()
                content = data.draw(st.just(content) | changed_bytes(content))
                with written(content) as path:
                    first = load(store, read_transcripts(path))
                    again = load(store, read_transcripts(path))
                assert 0 == again.events_added
                assert len(first.failures) == len(again.failures)
            assert store.verify().ok
