"""The plan of a run, which every process gets, and the notes in which each records its actions.

A run's conversations belong to a user of its own, and their events carry the run's id, so readers
and the final check can distinguish them from all others.

Notes are files outside the database, written before and after each append. Each line is written by
a single system call, so it survives the process however that ends. Notes hold what was
acknowledged; the check compares this with the log.
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
"""The tenant of all the kit's conversations."""

PATIENCE_S = 120.0
"""How long a process waits for the database, and a run for its processes, in seconds."""

NOTES = ".notes"
"""The suffix of note files."""

_ERA = 500
_PAGE = 1_000
_STOP = "stop"
_SETTLED = "settled"

Delivered = tuple[UUID, int]
"""An event that a reader received: conversation and version."""

_DELIVERY = struct.Struct(">16sQ")


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a run.

    Args:
        url: The database, on PostgreSQL with a session name unique to the run.
        directory: Where the processes keep their notes.
        run: The id of this run, which is also the user of its conversations.
        writers: The number of processes that append.
        events: The total number of events to acknowledge; None for no limit.
        seconds: The longest time to write.
        every_s: The average time between two kills, and between two cuts, in seconds.
        seed: The seed of the random choices.
        scenario: What happens to the processes and the database.
        readers: The number of processes that tail the feed.
        workers: The number of processes that keep the projections caught up.
        busy_timeout_ms: How long a writer waits for another's lock.
        shared: The number of conversations that the writers share at a time.
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
        """Return a random generator that depends only on the seed and the arguments."""
        return random.Random(f"{self.seed} {what}")  # noqa: S311 - work, not secrets

    def share(self, index: int) -> int | None:
        """Return the number of events that one writer must get acknowledged; None for no limit."""
        if self.events is None:
            return None
        return self.events // self.writers + (index < self.events % self.writers)

    def streams(self, name: str, number: int) -> list[UUID]:
        """Return the conversations to which a writer may append its batch of this number.

        All except the last are shared by the writers. After each 500 batches a writer moves on to
        new ones, so that a long run has many conversations of at most a few thousand events.
        """
        era = number // _ERA
        shared = [derived_id(self.run, "shared", era, place) for place in range(self.shared)]
        return [*shared, derived_id(self.run, name, era)]

    def writer_names(self) -> list[str]:
        """Return the names of all processes that have appended so far."""
        found = (path.stem for path in self.directory.glob(f"*{NOTES}"))
        return sorted(name for name in found if name.startswith("writer-") or name == "holder")

    def heads(self, store: EventStore) -> dict[UUID, int]:
        """Return the current version of each conversation of the run."""
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
        """Tell all processes to finish."""
        # Use a file: a process might be killed while it holds a lock or event in memory.
        (self.directory / _STOP).touch()

    def stopped(self) -> bool:
        """Whether processes must finish."""
        return (self.directory / _STOP).exists()

    def settle(self) -> None:
        """Tell the readers that writing has ended."""
        (self.directory / _SETTLED).touch()

    def settled(self) -> bool:
        """Whether writing has ended."""
        return (self.directory / _SETTLED).exists()


@dataclass(frozen=True, slots=True)
class Batch:
    """One append: its name, unique within the run, its conversation and its size."""

    name: str
    stream: UUID
    size: int


NOTHING = Batch("", UUID(int=0), 0)
"""The batch of notes that concern no batch."""


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch that the store has acknowledged, and the version of its first event."""

    batch: Batch
    first: int


@dataclass(slots=True)
class Memory:
    """What a process had done when its notes were read.

    ``acks`` are the acknowledgements still valid; ``gone`` are acknowledged appends that the
    recorder reported as lost and that were not written again. ``events`` counts all acknowledged
    events. ``counts`` holds the number of lines by kind; for ``lost`` and ``again``, of events.
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
        """Record that a batch is about to be appended."""
        self._note("try", batch, 0)

    def acknowledged(self, batch: Batch, first: int) -> None:
        """Record that a batch has been appended, and the version of its first event."""
        self._note("ack", batch, first)

    def lost(self, batch: Batch, first: int) -> None:
        """Record that a recorder has reported an acknowledged batch as lost."""
        self._note("lost", batch, first)

    def count(self, kind: str) -> None:
        """Record an occurrence that is only counted."""
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
    """Return the content of a process's notes; an empty memory if there are none."""
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
    """Counts the acknowledged events in growing notes; each call reads only what is new."""

    def __init__(self, paths: Callable[[], Iterable[Path]]) -> None:
        self._paths = paths
        self._read: Counter[Path] = Counter()
        self._events = 0

    def events(self) -> int:
        """Return the number of events acknowledged so far."""
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
    """Record the events that a reader received."""
    os.write(file, b"".join(_DELIVERY.pack(stream.bytes, version) for stream, version in events))


def deliveries(path: Path) -> Iterator[Delivered]:
    """Yield the events that a reader received, in that order."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while record := file.read(_DELIVERY.size):
            stream, version = _DELIVERY.unpack(record)
            yield UUID(bytes=stream), version
