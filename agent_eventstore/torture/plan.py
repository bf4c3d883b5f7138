"""What one run is to do, as every process is told, and the notes in which each keeps what it did.

The conversations of a run belong to a user of the run's own, and their events name the run, so that
readers and the final check can tell them from all others.

Notes stand outside the database, before and after each append. A line is written whole by one call
of the operating system, and so it outlives the process that wrote it, however that ends. What was
acknowledged stands here; the check compares it with the log.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from eventstore import EventStore
from eventstore.ids import derived_id

__all__ = [
    "NOTES",
    "PATIENCE_S",
    "TENANT",
    "Ack",
    "Batch",
    "Delivered",
    "Memory",
    "Notes",
    "Plan",
    "Tally",
    "deliveries",
    "recall",
    "write_down",
]


TENANT = "eventstore-torture"
"""The tenant that all conversations of the kit belong to."""

PATIENCE_S = 120.0
"""How long a process may wait for the database, or a run for its processes, in seconds."""

NOTES = ".notes"
"""How the names of files with notes end."""

_ERA = 500
_PAGE = 1_000
_STOP = "stop"
_SETTLED = "settled"

Delivered = tuple[UUID, int]
"""An event that a reader was handed: conversation and version."""

_DELIVERY = struct.Struct(">16sQ")


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: where, how much, and how roughly.

    Args:
        url: The database, with a session name of the run's own on PostgreSQL.
        directory: Where the processes keep their notes.
        run: The id of this run; also the user that its conversations belong to.
        writers: How many processes append.
        events: How many events are to be acknowledged in all; None for as many as there is time.
        seconds: How long to write at most.
        every_s: The average time between two kills, and between two cuts, in seconds.
        seed: What chance begins with.
        scenario: What is done to the processes and to the database.
        readers: How many processes tail the feed.
        workers: How many processes keep the projections warm.
        busy_timeout_ms: How long a writer waits for another's lock.
        shared: How many conversations the writers share at a time.
    """

    url: str = field(repr=False)
    directory: Path
    run: UUID
    writers: int
    events: int | None
    seconds: float | None
    every_s: float
    seed: int
    scenario: str
    readers: int
    workers: int
    busy_timeout_ms: int = 30_000
    shared: int = 8

    def chance(self, *what: object) -> random.Random:
        """Return numbers that are the same for the same seed and the same parts."""
        return random.Random(f"{self.seed} {what}")  # noqa: S311 - work, not secrets

    def share(self, index: int) -> int | None:
        """Return how many events one writer has to get acknowledged; None if there is no end."""
        if self.events is None:
            return None
        return self.events // self.writers + (index < self.events % self.writers)

    def streams(self, name: str, number: int) -> list[UUID]:
        """Return the conversations that a writer may append its batch of this number to.

        All but the last are shared by the writers. After each 500 batches a writer goes on to new
        ones, so that a long run has many conversations, of some thousand events at most.
        """
        era = number // _ERA
        shared = [derived_id(self.run, "shared", era, place) for place in range(self.shared)]
        return [*shared, derived_id(self.run, name, era)]

    def writer_names(self) -> list[str]:
        """Return the names of all that have appended so far."""
        found = (path.stem for path in self.directory.glob(f"*{NOTES}"))
        return sorted(name for name in found if name.startswith("writer-") or name == "holder")

    def heads(self, store: EventStore) -> dict[UUID, int]:
        """Return the conversations of the run, and the versions that they have reached."""
        heads: dict[UUID, int] = {}
        after: UUID | None = None
        while page := store.list(tenant_id=TENANT, user_id=str(self.run), after=after, limit=_PAGE):
            heads.update((info.conversation_id, info.version) for info in page)
            after = page[-1].conversation_id
        return heads

    def notes(self, name: str) -> Path:
        """Return the file of a process's notes."""
        return self.directory / f"{name}{NOTES}"

    def stop(self) -> None:
        """Tell all processes to come to an end."""
        # A file: a lock or an event in memory might be held by a process that is killed.
        (self.directory / _STOP).touch()

    def stopped(self) -> bool:
        """Whether processes are to come to an end."""
        return (self.directory / _STOP).exists()

    def settle(self) -> None:
        """Tell the readers that nothing is written any more."""
        (self.directory / _SETTLED).touch()

    def settled(self) -> bool:
        """Whether nothing is written any more."""
        return (self.directory / _SETTLED).exists()


@dataclass(frozen=True, slots=True)
class Batch:
    """One append: its name, which is unique within the run, its conversation and its size."""

    name: str
    stream: UUID
    size: int


NOTHING = Batch("", UUID(int=0), 0)
"""Stands in notes that are of no batch."""


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch that the store has acknowledged, and the version that it gave to the first event."""

    batch: Batch
    first: int


@dataclass(slots=True)
class Memory:
    """What a process had done when its notes were read.

    ``acks`` are those that stand, ``gone`` the appends that were acknowledged, that the recorder
    then said were lost, and that were not written again. ``events`` counts all that was
    acknowledged, and ``counts`` the lines of each kind, and of ``lost`` and ``again`` the events.
    """

    acks: dict[str, Ack] = field(default_factory=dict)
    gone: set[Batch] = field(default_factory=set)
    pending: Batch | None = None
    tried: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)


class Notes:
    """A file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tries(self, batch: Batch) -> None:
        """Note that a batch is about to be appended."""
        self._note("try", batch, 0)

    def acknowledged(self, batch: Batch, first: int) -> None:
        """Note that a batch has been appended, from this version on."""
        self._note("ack", batch, first)

    def lost(self, batch: Batch, first: int) -> None:
        """Note that a recorder has said of an acknowledged batch that it is lost."""
        self._note("lost", batch, first)

    def count(self, kind: str) -> None:
        """Note that something has happened that is only counted."""
        self._note(kind, NOTHING, 0)

    def _note(self, kind: str, batch: Batch, first: int) -> None:
        line = json.dumps([kind, batch.name, batch.stream.hex, batch.size, first])
        os.write(self._file, line.encode() + b"\n")

    def __enter__(self) -> Notes:
        """Return the notes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        os.close(self._file)


def recall(path: Path) -> Memory:
    """Return what stands in the notes of a process; nothing if it has made none."""
    memory = Memory()
    if not path.exists():
        return memory
    with path.open(encoding="utf-8") as lines:
        for kind, name, stream, size, first in map(json.loads, lines):
            batch = Batch(name, UUID(stream), size)
            if kind == "try":
                memory.pending, memory.tried = batch, memory.tried + 1
            elif kind == "ack":
                memory.acks[name] = Ack(batch, first)
                memory.pending, memory.events = None, memory.events + size
                memory.counts["again"] += size if batch in memory.gone else 0
                memory.gone.discard(batch)
            elif kind == "lost":
                del memory.acks[name]
                memory.gone.add(batch)
                memory.counts["lost"] += size
            else:
                memory.counts[kind] += 1
    return memory


class Tally:
    """Counts the acknowledged events of notes that grow; each look reads only what is new."""

    def __init__(self, paths: Callable[[], Iterable[Path]]) -> None:
        self._paths = paths
        self._read: Counter[Path] = Counter()
        self._events = 0

    def events(self) -> int:
        """Return how many events have been acknowledged by now."""
        for path in self._paths():
            if not path.exists() or path.stat().st_size == self._read[path]:
                continue
            with path.open("rb") as lines:
                lines.seek(self._read[path])
                for line in lines:
                    kind, _, _, size, _ = json.loads(line)
                    self._events += size if kind == "ack" else 0
                    self._read[path] += len(line)
        return self._events


def write_down(file: int, events: Iterable[Delivered]) -> None:
    """Note what a reader was handed."""
    os.write(file, b"".join(_DELIVERY.pack(stream.bytes, version) for stream, version in events))


def deliveries(path: Path) -> Iterator[Delivered]:
    """Yield what a reader was handed, in that order."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while record := file.read(_DELIVERY.size):
            stream, version = _DELIVERY.unpack(record)
            yield UUID(bytes=stream), version
