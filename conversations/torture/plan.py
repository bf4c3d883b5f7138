"""What one run of the torture kit is to do, as every process of it is told.

The conversations of a run are known beforehand: their ids are derived from the run's own, so that
readers and the final check can tell them from all others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from eventstore.ids import derived_id

__all__ = ["PATIENCE_S", "TENANT", "Plan"]

TENANT = "eventstore-torture"
"""The tenant that all conversations of the kit belong to."""

PATIENCE_S = 120.0
"""How long a process may wait for the database, or a run for its processes, in seconds."""

_STOP = "stop"
_SETTLED = "settled"


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
    """

    url: str
    directory: Path
    run: UUID
    writers: int
    events: int | None
    seconds: float | None
    every_s: float
    seed: int
    shared: int = 8
    readers: int = 2
    workers: int = 2

    def chance(self, *what: object) -> random.Random:
        """Return numbers that are the same for the same seed and the same parts."""
        return random.Random(f"{self.seed} {what}")  # noqa: S311 - work, not secrets

    def share(self, index: int) -> int | None:
        """Return how many events one writer has to get acknowledged; None if there is no end."""
        if self.events is None:
            return None
        return self.events // self.writers + (index < self.events % self.writers)

    def stream(self, name: str) -> UUID:
        """Return the conversation that only the process of this name writes to."""
        return derived_id(self.run, name)

    def shared_streams(self) -> list[UUID]:
        """Return the conversations that all writers write to."""
        return [derived_id(self.run, "shared", number) for number in range(self.shared)]

    def writer_names(self) -> list[str]:
        """Return the names of all processes that append."""
        return [*(f"writer-{index}" for index in range(self.writers)), "holder"]

    def streams(self) -> list[UUID]:
        """Return every conversation of the run."""
        return [*self.shared_streams(), *map(self.stream, self.writer_names())]

    def notes(self, name: str) -> Path:
        """Return the file of a process's notes."""
        return self.directory / f"{name}.notes"

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
