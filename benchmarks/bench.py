"""The environment of every benchmark: sizes, empty databases, and filled databases."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.workload import fill
from eventstore import EventStore
from tests.postgres import PostgresServer, PostgresUnavailable, fresh_database

__all__ = ["FULL", "MILLION", "POSTGRESQL", "QUICK", "SQLITE", "TINY", "Bench", "Scale"]

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of a run.

    Attributes:
        rounds: Rounds of work that takes up to a few milliseconds.
        repeats: Rounds of work that takes up to a few seconds.
        patience_s: Total time after which work is not repeated again, in seconds.
        small: Events in the database that reads and rebuilds start from.
        large: Events in the database that shows whether memory grows.
        stored: Events in the database whose size should not slow down appends.
        few: Events in the database that it is compared with.
        turns: Turns of the conversation whose storage is measured.
        lengths: Numbers of messages at which turns are compared.
        read_lengths: Numbers of messages at which reads of the messages[] view are compared.
        idle: Numbers of conversations at which an idle worker is compared.
        idle_s: How long the idle worker is observed, in seconds.
        opening: Events of the conversation that is opened after a crash.
        marked: Numbers of conversations in the stores for which checkpoints are made.
        listed: Conversations in the store whose screens are measured.
        message_sizes: Bytes of the messages that go through everything.
        followers: Streams that follow live conversations at one service.
    """

    rounds: int
    repeats: int
    patience_s: float
    small: int
    large: int
    stored: int
    few: int
    turns: int
    lengths: tuple[int, int]
    read_lengths: tuple[int, ...]
    idle: tuple[int, int]
    idle_s: float
    opening: int
    marked: tuple[int, int]
    listed: int
    message_sizes: tuple[int, ...]
    followers: int


FULL = Scale(
    rounds=2_000,
    repeats=3,
    patience_s=30,
    small=20_000,
    large=200_000,
    stored=1_000_000,
    few=10_000,
    turns=400,
    lengths=(100, 5_000),
    read_lengths=(20, 100, 1_000, 10_000, 100_000),
    idle=(100, 10_000),
    idle_s=10,
    opening=10_000,
    marked=(200, 2_000),
    listed=100_000,
    message_sizes=(1_000, 100_000, 1_000_000, 4_000_000, 16_000_000),
    followers=200,
)
MILLION = replace(FULL, small=100_000, large=1_000_000)
QUICK = Scale(
    rounds=200,
    repeats=3,
    patience_s=4,
    small=2_000,
    large=10_000,
    stored=50_000,
    few=10_000,
    turns=400,
    lengths=(100, 5_000),
    read_lengths=(20, 100, 1_000, 10_000),
    idle=(100, 1_000),
    idle_s=5,
    opening=2_000,
    marked=(50, 200),
    listed=10_000,
    message_sizes=(1_000, 1_000_000, 8_000_000),
    followers=200,
)
TINY = Scale(
    rounds=3,
    repeats=1,
    patience_s=1,
    small=200,
    large=400,
    stored=400,
    few=200,
    turns=3,
    lengths=(4, 8),
    read_lengths=(4, 8),
    idle=(2, 4),
    idle_s=0.2,
    opening=60,
    marked=(2, 4),
    listed=60,
    message_sizes=(1_000,),
    followers=4,
)


class Bench:
    """Sizes and databases of one run; a context manager that deletes everything on exit.

    Args:
        scale: The sizes.
        postgres_url: A server where databases may be created; a throw-away one by default.
    """

    def __init__(self, scale: Scale, postgres_url: str | None = None) -> None:
        self.scale = scale
        self.left_out: list[str] = []
        self._stack = ExitStack()
        self._server_url = postgres_url
        self._looked = postgres_url is not None
        self._filled: dict[tuple[str, str], tuple[str, int]] = {}

    def __enter__(self) -> Self:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def server_url(self) -> str | None:
        """URL of the PostgreSQL server, which starts on first use; None if it is unavailable."""
        if not self._looked:
            self._looked = True
            try:
                self._server_url = self._stack.enter_context(PostgresServer()).url()
            except PostgresUnavailable as error:
                self.left_out.append(f"PostgreSQL is left out: {str(error).splitlines()[0]}")
        return self._server_url

    @property
    def databases(self) -> tuple[str, ...]:
        """The available databases."""
        return (SQLITE, POSTGRESQL) if self.server_url else (SQLITE,)

    @contextmanager
    def fresh(self, database: str) -> Iterator[str]:
        """Yield the URL of an empty database, and delete it afterwards."""
        if database == SQLITE:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                yield f"sqlite:///{folder}/store.db"
        else:
            with fresh_database(str(self.server_url)) as url:
                yield url

    def filled(self, database: str, name: str, events: int) -> str:
        """Return the URL of the database with this name, filled up to this many events.

        The database stays until the end of the run, and grows if more events are requested. On
        PostgreSQL, it has been vacuumed, analyzed and checkpointed.
        """
        key = (database, name)
        url, there = self._filled.get(key) or (self._stack.enter_context(self.fresh(database)), 0)
        if there < events:
            # NORMAL: filling is not measured, and need not survive a power cut.
            with EventStore.open(url, synchronous="NORMAL") as store:
                fill(store, events - there, seed=there + 1)
                if database == POSTGRESQL:
                    _settle(store)
            self._filled[key] = (url, events)
        return url


def _settle(store: EventStore) -> None:
    with store.engine.connect() as connection:
        plain = connection.execution_options(isolation_level="AUTOCOMMIT")
        plain.exec_driver_sql("VACUUM ANALYZE")
        plain.exec_driver_sql("CHECKPOINT")
