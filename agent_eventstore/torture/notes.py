"""What the processes write down of their work, outside the database, before and after each append.

A line is written whole by one call of the operating system, and so it outlives the process that
wrote it, however that ends. What was acknowledged stands here; the check compares it with the log.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

__all__ = [
    "Ack",
    "Batch",
    "Delivered",
    "Memory",
    "Notes",
    "Tally",
    "deliveries",
    "recall",
    "write_down",
]

_DELIVERY = struct.Struct(">16sQ")

Delivered = tuple[UUID, int]
"""An event that a reader was handed: conversation and version."""


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
