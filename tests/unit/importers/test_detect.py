"""The format of a file is told by its content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import detect, read_transcripts
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import TAU_BENCH, found

SESSION = {"ts": "2024-05-10T12:00:00Z", "session_id": "s", "type": "session_start"}
PROJECT = {"id": "m", "role": "user", "createdAt": "2024-05-10T12:00:00Z", "content": "a"}
MESSAGE = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([MESSAGE], "openai"),
        ([[MESSAGE]], "openai"),
        ([{"traj": [MESSAGE], "role": "x"}], "openai"),
        ({"messages": [MESSAGE]}, "openai"),
        ([PROJECT], "messages-json"),
        (PROJECT, "messages-jsonl"),
        (SESSION, "session-jsonl"),
    ],
)
def test_a_document_tells_its_format(write: Write, document: Any, expected: str) -> None:
    """What the first record looks like decides."""
    assert expected == detect(write(document))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"messages": [MESSAGE]}, "openai"),
        ([MESSAGE], "openai"),
        (SESSION, "session-jsonl"),
        (MESSAGE, "messages-jsonl"),
        ({"sender": "cat-1", "text": "meow"}, "messages-jsonl"),
    ],
)
def test_lines_tell_their_format(write_lines: Write, line: Any, expected: str) -> None:
    """A broken first line does not hide what the others look like."""
    assert expected == detect(write_lines("{broken", line, line))


def test_real_transcripts_are_recognised() -> None:
    """Objects with the messages under ``traj`` are OpenAI messages."""
    assert "openai" == detect(TAU_BENCH)


@pytest.mark.parametrize("text", ["", "[]", "plain text", '{"a": 1}', "[1, 2]"])
def test_a_file_that_tells_nothing_is_reported(write: Write, text: str) -> None:
    """The report asks for the name of the format, or says that the file is empty."""
    with pytest.raises(
        ImportFailed, match=r"name the format: openai, session-jsonl|the file is empty"
    ):
        detect(write(text))
    assert ([], 1) == (found(write(text))[0], len(found(write(text))[1]))


def test_a_format_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """The choices are named, before anything is read."""
    with pytest.raises(ValueError, match="choose openai"):
        read_transcripts(tmp_path / "missing", "xml")
