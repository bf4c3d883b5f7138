"""A writer process: appends as it was told, and notes in a file what the store acknowledged.

Every event says which batch it belongs to and how large that is, so that a reader can tell half a
batch from a whole one.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any
from uuid import UUID

from eventstore import ANY, NO_STREAM, EventStore, NewEvent, new_id
from eventstore.errors import WrongExpectedVersion
from eventstore.events import UserMessage
from tests.concurrency.processes import Gate

BATCH_SIZES = (1, 20)


def write(
    index: int,
    url: str,
    notes: str,
    shared: list[UUID],
    appends: int,
    doomed: list[int],
    gate: Gate,
) -> None:
    """Append ``appends`` times: to the shared conversations and an own one, in all ways.

    A doomed writer goes on until it is killed.
    """
    choose = random.Random(index)  # noqa: S311 - the same work in every run
    streams = [*shared, new_id()]
    gate.wait()
    with EventStore.open(url, pool_size=1) as store, open_notes(notes, index) as acknowledged:
        for number in itertools.count() if index in doomed else range(appends):
            size = choose.choice(BATCH_SIZES)
            batch = f"{index}.{number}"
            events = [
                NewEvent(UserMessage.text(f"{batch} {place}/{size}"), new_id())
                for place in range(size)
            ]
            stream = choose.choice(streams)
            version = append(store, stream, events, exact=choose.random() < 0.5)
            ids = [str(event.event_id) for event in events]
            acknowledged.note([str(stream), version - size + 1, ids])


def open_and_append(index: int, url: str, gate: Gate) -> None:
    """Open a database at the same moment as the others, and append one event."""
    gate.wait()
    with EventStore.open(url) as store:
        store.append(new_id(), [UserMessage.text(f"writer {index}")], expected_version=NO_STREAM)


def append(store: EventStore, stream: UUID, events: list[NewEvent], *, exact: bool) -> int:
    """Append at any version, or at the exact one, again and again until it was the right one."""
    if not exact:
        return store.append(stream, events, expected_version=ANY).version
    expected = 0
    while True:
        try:
            return store.append(stream, events, expected_version=expected).version
        except WrongExpectedVersion as conflict:
            expected = conflict.actual


class Notes:
    """A file of JSON lines; a line is written whole before the next append, or not at all."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, line: Any) -> None:
        """Write a line; it outlives the process, not the machine."""
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def __enter__(self) -> Notes:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def open_notes(directory: str, index: int) -> Notes:
    """Return the notes of a writer."""
    return Notes(Path(directory) / f"{index}.jsonl")


def read_notes(directory: Path) -> list[tuple[UUID, int, list[UUID]]]:
    """Return what all writers noted: stream, first version and event ids of each append."""
    lines = [line for path in directory.iterdir() for line in path.read_text().splitlines()]
    return [
        (UUID(stream), first, [UUID(event_id) for event_id in ids])
        for stream, first, ids in map(json.loads, lines)
    ]
