"""What a mutant meets: a store with conversations in it, and a directory for its files.

Every world is a copy of the same one, so that a failure needs no more than the mutants of its own
batch to be seen again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from agent_eventstore.transcripts import load, read_transcripts
from eventstore import EventStore
from projections import Views
from tests.properties.test_fuzz_importers import DOCUMENTS
from tests.unit.importers.reading import TAU_BENCH
from tests.unit.streams.recorded import NAMES, chunks_of

__all__ = ["World", "documents", "fill", "golden", "open_world", "streams"]

_GOLDEN = Path(__file__).parents[1] / "golden"
_SHORT_BYTES = 12_000
_CHUNKS = 40


@dataclass(frozen=True, slots=True)
class World:
    """A store, the conversations that it began with, and a directory of the mutant's own."""

    url: str
    store: EventStore
    views: Views
    ids: tuple[UUID, ...]
    directory: Path

    def write(self, name: str, content: bytes) -> Path:
        """Write a file into the directory."""
        path = self.directory / name
        path.write_bytes(content)
        return path


@cache
def documents() -> tuple[tuple[str, Any], ...]:
    """Return transcripts to begin from, each with its format: real ones, and one of each format."""
    real = json.loads(TAU_BENCH.read_text("utf-8"))
    short = [each for each in real if len(json.dumps(each)) < _SHORT_BYTES]
    return (*DOCUMENTS.items(), *(("openai", [each]) for each in short))


@cache
def golden() -> tuple[tuple[str, int, Any], ...]:
    """Return a payload of each type and version of the schema."""
    found = []
    for path in sorted(_GOLDEN.glob("*.v*.json")):
        name, version = path.stem.rsplit(".v", 1)
        found.append((name, int(version), json.loads(path.read_text("utf-8"))))
    return tuple(found)


@cache
def streams() -> tuple[tuple[dict[str, Any], ...], ...]:
    """Return the first chunks of recorded streams of real providers."""
    return tuple(tuple(chunks_of(name)[:_CHUNKS]) for name in NAMES)


def fill(url: str, directory: Path) -> None:
    """Make the store that every world is a copy of."""
    with EventStore.open(url) as store:
        for number, (name, document) in enumerate(documents()[:8]):
            path = directory / f"{number}"
            lines = [json.dumps(value) for value in document]
            path.write_text("\n".join(lines) if "jsonl" in name else json.dumps(document))
            load(store, read_transcripts(path, name))
        Views(store).conversations()


@contextmanager
def open_world(url: str, directory: Path, template: Path | None) -> Iterator[World]:
    """Open a world; on SQLite it is first copied from a template."""
    directory.mkdir(parents=True, exist_ok=True)
    if template is not None:
        shutil.copy(template, directory / "store.db")
    with EventStore.open(url, synchronous="OFF") as store:
        ids = tuple(info.conversation_id for info in store.list())
        yield World(url, store, Views(store), ids, directory)
