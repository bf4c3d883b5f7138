"""Peers: other libraries for the same work, if they are installed (the extra ``bench``).

Each is used through its public interface and with its own settings. On SQLite those are a
write-ahead log and the benchmark's sync level; a peer that cannot set it is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from random import Random
from typing import Protocol

from sqlalchemy import make_url

from benchmarks.bench import POSTGRESQL, Bench
from benchmarks.measure import Figure
from benchmarks.workload import text
from eventstore import NewEvent

__all__ = [
    "AGENTS",
    "EVENTSOURCING",
    "Peer",
    "Reader",
    "projected",
    "readers",
    "versions",
    "writers",
]

EVENTSOURCING = importlib.util.find_spec("eventsourcing") is not None
AGENTS = importlib.util.find_spec("agents") is not None
_POOL = importlib.util.find_spec("psycopg_pool") is not None


class Peer(Protocol):
    """A peer with an open database."""

    @property
    def name(self) -> str:
        """Its name in tables."""

    @property
    def path(self) -> str:
        """Its SQLite file; empty on PostgreSQL."""

    def stream(self) -> Callable[[Sequence[NewEvent]], object]:
        """Begin a stream; return the function that appends events to it, durably, in one call."""

    def turns(
        self, events: Sequence[NewEvent], history: Sequence[NewEvent]
    ) -> Callable[[], object]:
        """Return a function that appends events one by one, then loads the whole stream.

        The stream begins with an existing history.
        """

    def close(self) -> None:
        """Close its connections."""


class Reader(Protocol):
    """A peer that can read all events of all streams."""

    @property
    def name(self) -> str:
        """Its name in tables."""

    def fill(self, events: Sequence[NewEvent]) -> object:
        """Append these events to one stream."""

    def read_all(self) -> int:
        """Read and decode all events, and return how many there are."""


def versions() -> list[str]:
    """Return each peer with its version, or a note that it is left out."""
    return [
        f"{package} {version(package)}" if there else f"{package} is not installed and left out"
        for package, there in (("eventsourcing", EVENTSOURCING), ("openai-agents", AGENTS))
    ]


@contextmanager
def writers(url: str, synchronous: str = "FULL", connections: int = 1) -> Iterator[list[Peer]]:
    """Yield the peers that can write to a database of this kind, each to its own tables.

    Args:
        url: On SQLite, the peers' files are created next to this one.
        synchronous: SQLite's sync level; peers that support only FULL are left out of others.
        connections: Maximum number of connections that a peer may use at a time.
    """
    found: list[Peer] = []
    sqlite = make_url(url).get_backend_name() == "sqlite"
    with ExitStack() as stack:
        if EVENTSOURCING and (sqlite or _POOL) and (synchronous == "FULL" or not sqlite):
            from benchmarks.peers.eventsourcing import Recorder

            found.append(Recorder(url, connections))
        if AGENTS and sqlite and synchronous == "FULL":
            from benchmarks.peers.agents import Session

            found.append(Session(url))
        for peer in found:
            stack.callback(peer.close)
        yield found


@contextmanager
def readers(url: str) -> Iterator[list[Reader]]:
    """Yield the peers that can read a whole database of this kind."""
    with writers(url) as found:
        if EVENTSOURCING:
            from benchmarks.peers.eventsourcing import Recorder

            yield [peer for peer in found if isinstance(peer, Recorder)]
        else:
            yield []


def projected(bench: Bench, database: str) -> list[Figure]:
    """Return the time of a peer's projection from the beginning, if one is available."""
    if not (EVENTSOURCING and _POOL and database == POSTGRESQL):
        return []
    from benchmarks.peers.projecting import projection_s

    rng, count = Random(1), max(bench.scale.small // 10, 100)
    texts = [text(rng) for _ in range(count)]
    with bench.fresh(database) as url:
        return [Figure("eventsourcing", (projection_s(url, texts),), count)]
