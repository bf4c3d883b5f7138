"""Writers that are recorders: each goes on in its conversations while the database goes back.

Where a journal says that what it has written is lost, its writer notes what, and either has it
written again or opens the conversation anew without it, as a product would. So the notes tell
which acknowledged events the log may lack: exactly those.
"""

from __future__ import annotations

import time
from random import Random
from uuid import UUID

from agent_eventstore.acknowledged import Acknowledged
from agent_eventstore.journal import Journal
from agent_eventstore.torture.notes import Ack, Batch, Notes
from agent_eventstore.torture.plan import PATIENCE_S, TENANT, Plan
from agent_eventstore.torture.writing import make, open_store
from eventstore import Appended, EventStore, NewEvent
from eventstore.errors import (
    ConversationNotFound,
    LogWentBack,
    StoreUnavailable,
    WrongExpectedVersion,
)
from eventstore.ids import derived_id

__all__ = ["converse"]

_CONVERSATIONS = 3
_LARGEST = 20
_PAUSE_S = 0.05


def converse(plan: Plan, index: int) -> None:
    """Write to conversations of one's own until the run is stopped; then once more to each.

    Whoever writes no more is not told of a loss.
    """
    name = f"writer-{index}"
    choose = plan.chance(name)
    with Notes(plan.notes(name)) as notes, open_store(plan) as store:
        writer = _Writer(plan, store, notes, name, choose)
        sessions = [_Session(writer, place) for place in range(_CONVERSATIONS)]
        while not plan.stopped():
            choose.choice(sessions).append()
        for session in sessions:
            session.append()


class _Writer:
    """What the sessions of one process share."""

    def __init__(
        self, plan: Plan, store: EventStore, notes: Notes, name: str, choose: Random
    ) -> None:
        self.plan, self.store, self.notes, self.name, self.choose = plan, store, notes, name, choose
        self.number = 0

    def batch(self, stream: UUID) -> Batch:
        """Return the next batch, noted."""
        batch = Batch(f"{self.name}.{self.number}", stream, self.choose.randint(1, _LARGEST))
        self.number += 1
        self.notes.tries(batch)
        return batch

    def begin(self, batch: Batch, events: list[NewEvent]) -> Appended:
        """Create a conversation, or append to it as whoever comes from elsewhere."""
        owner = str(self.plan.run)
        return self.store.append(batch.stream, events, tenant_id=TENANT, user_id=owner)


class _Session:
    """One conversation, and what of it was acknowledged and is not known to be lost."""

    def __init__(self, writer: _Writer, place: int) -> None:
        self._writer = writer
        self._stream = derived_id(writer.plan.run, writer.name, place)
        self._acks: list[Ack] = []
        self._journal: Journal | None = None

    def append(self) -> None:
        """Append a batch, whatever happens to the database.

        Raises:
            StoreUnavailable: It did not succeed for two minutes.
        """
        batch, until = self._writer.batch(self._stream), time.monotonic() + PATIENCE_S
        events = make(self._writer.plan, batch, self._writer.choose)
        while True:
            try:
                self._acknowledged(batch, self._write(batch, events).version)
                return
            except LogWentBack as error:
                self._went_back(error)
            except StoreUnavailable:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_S)

    def _write(self, batch: Batch, events: list[NewEvent]) -> Appended:
        if self._journal is None:
            return self._open(batch, events)
        done = self._journal.write(events)
        assert done is not None  # noqa: S101 - there are events
        return done

    def _open(self, batch: Batch, events: list[NewEvent]) -> Appended:
        store = self._writer.store
        try:
            epoch = store.raise_writer_epoch(self._stream)
        except ConversationNotFound:
            epoch = 0  # As that of a conversation that begins.
        done = self._writer.begin(batch, events)
        self._lost_above(done.version - batch.size)
        # What it begins with is not written again by itself: a new conversation has an owner.
        written = Acknowledged(done.anchor)
        self._journal = Journal(
            store, self._stream, epoch=epoch, version=done.version, written=written
        )
        return done

    def _acknowledged(self, batch: Batch, version: int) -> None:
        ack = Ack(batch, version - batch.size + 1)
        self._writer.notes.acknowledged(batch, ack.first)
        self._acks.append(ack)

    def _lost_above(self, version: int) -> list[Ack]:
        """Note that the log ends at a version; return what is lost."""
        lost = [ack for ack in self._acks if ack.first > version]
        self._acks = [ack for ack in self._acks if ack.first <= version]
        for ack in lost:
            self._writer.notes.lost(ack.batch, ack.first)
        return lost

    def _went_back(self, error: LogWentBack) -> None:
        notes, journal = self._writer.notes, self._journal
        notes.count("told")
        lost = self._lost_above(error.actual)
        for _ in range(_misnamed(error, lost)):
            notes.count("misnamed")
        if journal is None or self._writer.choose.random() < 1 / 2:
            self._journal = None
            return
        named = {_name(event) for event in error.lost}
        try:
            _write_again(journal)
        except (WrongExpectedVersion, LogWentBack):
            self._journal = None  # More is lost than it remembers, or it went back once more.
            return
        for ack in lost:
            if ack.batch.name in named:
                self._acknowledged(ack.batch, ack.first + ack.batch.size - 1)


def _write_again(journal: Journal) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            journal.write_again()
            return
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)


def _misnamed(error: LogWentBack, lost: list[Ack]) -> int:
    """Return how many events were named that are not lost; those that are forgotten are not."""
    known = {ack.batch.name for ack in lost}
    return sum(_name(event) not in known for event in error.lost)


def _name(event: NewEvent) -> str:
    mark = event.meta.causation_id if event.meta is not None else None
    return str(mark).rsplit(".", 2)[0]
