"""What the tests of importers ask of a file that was read."""

from __future__ import annotations

from pathlib import Path

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import Transcript, read_transcripts
from eventstore.events.records import EventData

TAU_BENCH = (
    Path(__file__).parents[3].parent / "shared" / "data" / "tau-bench" / "airline-even-tasks.json"
)


def found(
    path: Path, format_name: str | None = None, *, force: bool = False
) -> tuple[list[Transcript], list[str]]:
    """Return a file's transcripts, and its failures as ``line: reason``."""
    transcripts, failures = [], []
    for item in read_transcripts(path, format_name, force=force):
        if isinstance(item, ImportFailed):
            failures.append(f"{item.line}: {item.reason}")
        else:
            transcripts.append(item)
    return transcripts, failures


def only(path: Path, format_name: str | None = None, *, force: bool = False) -> Transcript:
    """Return the one transcript of a file without bad records."""
    transcripts, failures = found(path, format_name, force=force)
    assert ([], 1) == (failures, len(transcripts))
    return transcripts[0]


def payloads(transcript: Transcript) -> list[EventData]:
    """Return the payloads after the start of the conversation."""
    return [event.data for event in transcript.events[1:]]
