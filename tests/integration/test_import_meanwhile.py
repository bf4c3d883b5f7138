"""What goes on around an import: other imports, files that change or vanish, many failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import ImportReport, Transcript, load, read_transcripts
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.loader import MOST_FAILURES, MOST_IDS
from agent_eventstore.transcripts.transcript import Stream
from eventstore import EventStore, NewEvent
from tests.integration import codex_sessions

pytestmark = pytest.mark.exhaustive_when("postgresql")


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


class _Interrupted:
    """A stream at the beginning of whose n-th reading someone else does something."""

    def __init__(self, stream: Stream, other: Callable[[], Any], reading: int = 2) -> None:
        self._stream, self._other = stream, other
        self._left = reading
        self.left_out = LeftOut()
        self.reports: list[Any] = []

    def read(self, cuts: Mapping[int, int]) -> Iterator[NewEvent | ImportFailed]:
        """Yield the events of the file."""
        self._left -= 1
        if self._left == 0:
            self.reports.append(self._other())
        yield from self._stream.read(cuts)


@pytest.mark.parametrize("grown", [False, True])
def test_two_imports_at_the_same_time(store: EventStore, tmp_path: Path, grown: bool) -> None:
    """Both counted the same events, and one went on from an answer that the other had split."""
    session = codex_sessions.Rollout()
    session.message("user", "hello")
    session.message("assistant", "hi")
    path, length = session.write(tmp_path / "a.jsonl"), len(session.lines)

    def other() -> ImportReport:
        if grown:
            session.message("assistant", "there")
        try:
            return load(store, read_transcripts(session.write(path)))
        finally:
            session.write(path, length)

    (item,) = read_transcripts(path)
    assert isinstance(item, Transcript)
    assert item.stream is not None
    stream = _Interrupted(item.stream, other)
    report = load(store, [replace(item, stream=stream)])
    (first,) = stream.reports
    assert (3, 1, 0) == (first.events_added, first.conversations, first.failed)
    assert (0, 0, int(grown)) == (report.events_added, report.conversations, report.failed)
    assert 3 == len(list(store.read(first.ids[0])))
    assert 0 == load(store, read_transcripts(session.write(path))).failed


def test_failures_that_are_held_are_bounded(store: EventStore, tmp_path: Path) -> None:
    """Half a million bad lines took 400 MB: the report has the first of them, and counts all."""
    path = tmp_path / "bad.jsonl"
    path.write_text("{bad\n" * (MOST_FAILURES + 2), "utf-8")
    report = load(store, read_transcripts(path, "session-jsonl"))
    assert (MOST_FAILURES + 2, MOST_FAILURES) == (report.failed, len(report.failures))
    assert [1, 2, 3] == [each.line for each in report.failures[:3]]
    assert all(each.__traceback__ is None for each in report.failures)


def test_a_session_whose_file_is_gone_stops_no_other(store: EventStore, tmp_path: Path) -> None:
    """A program that deletes its old sessions ended the import of the others."""
    paths = []
    for name in ("a", "b"):
        session = codex_sessions.Rollout(name)
        session.message("user", "hello")
        paths.append(session.write(tmp_path / name))
    found = [item for path in paths for item in read_transcripts(path)]
    paths[0].unlink()
    report = load(store, found)
    assert (1, 1) == (report.failed, report.conversations)
    assert "the file cannot be read: No such file or directory" == report.failures[0].reason


def test_a_session_that_is_purged_meanwhile_stops_no_other(
    store: EventStore, tmp_path: Path
) -> None:
    """The import ended with StopIteration, which a generator's caller takes for its end."""
    session = codex_sessions.Rollout()
    session.message("user", "hello")
    path = session.write(tmp_path / "a.jsonl")
    (purged,) = load(store, read_transcripts(path)).ids
    (item,) = read_transcripts(path)
    assert isinstance(item, Transcript)
    assert item.stream is not None
    stream = _Interrupted(item.stream, lambda: store.purge(purged, reason="asked"), reading=1)
    report = load(store, [replace(item, stream=stream), *read_transcripts(path)])
    assert (1, 1) == (report.failed, report.conversations)
    assert "was purged during the import" in report.failures[0].reason


def test_ids_that_are_held_are_bounded() -> None:
    """The report has the first of them, and counts all."""
    report = ImportReport()
    for number in range(MOST_IDS + 2):
        report.note(UUID(int=number), 1)
    assert (MOST_IDS + 2, MOST_IDS) == (report.conversations, len(report.ids))
