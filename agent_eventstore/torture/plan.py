"""What one run of the torture kit is to do, as every process of it is told.

The conversations of a run belong to a user of the run's own, and their events name the run, so that
readers and the final check can tell them from all others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from eventstore import EventStore
from eventstore.ids import derived_id

__all__ = ["NOTES", "PATIENCE_S", "TENANT", "Plan"]

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
