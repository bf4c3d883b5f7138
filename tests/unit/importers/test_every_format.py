"""What holds for each format alike: it is understood, in the docs, cut anywhere, and repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import (
    FORMATS,
    PROJECT,
    coverage,
    detect,
    load,
    read_transcripts,
)
from tests.properties.test_fuzz_importers import DOCUMENTS
from tests.unit.importers.format_table import table, write_example

DOCS = Path(__file__).parents[3] / "docs" / "import-export.md"
LIVE = ("claude-code", "codex", "copilot-cli", "cursor", "pi")
ELSEWHERE = {PROJECT, "inspect", "ui-messages", "aider", "cline"}
"""A directory, and formats whose examples stand in tests of their own."""


def test_each_format_has_an_example_and_a_row() -> None:
    """A new reader comes with both."""
    assert {*FORMATS} == {*DOCUMENTS} | ELSEWHERE
    rows = DOCS.read_text("utf-8")
    assert [] == [name for name in FORMATS if f"| `{name}` |" not in rows]


def test_the_docs_say_what_is_kept() -> None:
    """If this fails: python -m tests.unit.importers.format_table."""
    assert table() in DOCS.read_text("utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_example_is_detected_and_understood(tmp_path: Path, name: str) -> None:
    """Of no kind of texts is more than half missing from the events."""
    path = write_example(tmp_path, name)
    assert name == detect(path)
    found = coverage(path, name)
    assert found is None or found.is_certain, str(found)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_second_import_adds_nothing(tmp_path: Path, name: str) -> None:
    """Whatever identifies a conversation of the format identifies it again."""
    path = write_example(tmp_path, name)
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        first = load(store, read_transcripts(path, name))
        again = load(store, read_transcripts(path, name))
    assert (True, 0, 0) == (first.events_added > 0, first.failed, again.events_added)


@pytest.mark.parametrize("name", LIVE)
def test_a_live_file_cut_at_any_line(tmp_path: Path, name: str) -> None:
    """Imported after each line that is written, it shows what the whole file shows."""
    with (
        EventStore.open(f"sqlite:///{tmp_path / 'a.db'}", synchronous="OFF") as grown,
        EventStore.open(f"sqlite:///{tmp_path / 'b.db'}", synchronous="OFF") as whole,
    ):
        for length in range(1, len(DOCUMENTS[name]) + 1):
            load(grown, read_transcripts(write_example(tmp_path, name, length), name, force=True))
        load(whole, read_transcripts(write_example(tmp_path, name), name), strict=True)
        views = Views(whole), Views(grown)
        streams = [entry.conversation_id for entry in views[0].conversations()]
        assert streams
        for stream in streams:
            expected, found = (
                [
                    (item.kind, item.text, item.arguments)
                    for item in each.timeline(stream)
                    if item.text or item.arguments  # a part of an answer may have calls alone
                ]
                for each in views
            )
            assert expected == found
