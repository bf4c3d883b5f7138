"""``python -m tests.unit.importers.format_table``: a table for ``docs/import-export.md``.

Each row is what an import of the format's example gives, so that a reader that keeps less changes
the table.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_eventstore.transcripts import Transcript, coverage, read_transcripts
from eventstore.events import AssistantMessage, ToolResult, UserMessage
from tests.properties.test_fuzz_importers import BY_LINE, DOCUMENTS

__all__ = ["table", "write_example"]

_HEAD = (
    "| format | version in the example | messages of users, answers, calls, results "
    "| texts kept | not understood |\n|---|---|---|---|---|\n"
)
_VERSIONS = ("version", "cli_version", "schema_version", "copilotVersion", "lc")
_COUNTED = (UserMessage, AssistantMessage, ToolResult)


def table() -> str:
    """Return the table in Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        return _HEAD + "".join(_row(Path(folder), name) for name in sorted(DOCUMENTS))


def write_example(directory: Path, name: str, length: int | None = None) -> Path:
    """Write a format's example, or only its first lines."""
    document = DOCUMENTS[name]
    path = directory / ("a.jsonl" if name in BY_LINE else "a.json")
    values = document[:length] if name in BY_LINE else [document]
    path.write_text("\n".join(map(json.dumps, values)), "utf-8")
    return path


def _row(folder: Path, name: str) -> str:
    path = write_example(folder, name)
    made, calls = Counter[type](), 0
    for transcript in read_transcripts(path, name):
        assert isinstance(transcript, Transcript)
        events = transcript.stream.read({}) if transcript.stream else transcript.events
        for event in events:
            data = getattr(event, "data", None)
            made[type(data)] += 1
            calls += len(data.tool_calls) if isinstance(data, AssistantMessage) else 0
    users, answers, results = (made[kind] for kind in _COUNTED)
    found = coverage(path, name)
    shares = () if found is None else (found.users, found.models, found.results)
    texts, understood = sum(s.texts for s in shares), sum(s.understood for s in shares)
    kept = f"{understood} of {texts}" if texts else "too short to compare"
    unknown = "" if found is None or not found.unknown else str(found.unknown)
    versions = ", ".join(sorted(set(_versions(DOCUMENTS[name])))) or "none is written"
    counts = f"{users}, {answers}, {calls}, {results}"
    return f"| `{name}` | {versions} | {counts} | {kept} | {unknown} |\n"


def _versions(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _versions(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in _VERSIONS and isinstance(each, str | int):
                yield str(each)
            else:
                yield from _versions(each)


if __name__ == "__main__":
    sys.stdout.write(table())
