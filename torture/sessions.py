"""Writers that are recorders, and writers that fork.

A recording writer continues its conversations while the database goes back to older states. When a
journal reports lost events, the writer notes them, and either has them written again or reopens the
conversation without them, as a product would. So the notes tell exactly which acknowledged events
the log may lack.

A forking writer appends through one store, which the parent opened. Each process uses the store in
two threads and meanwhile forks children, which continue with the same store object and occasionally
fork children themselves.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from random import Random
from typing import NoReturn
from uuid import UUID

from agent_eventstore.journal import Acknowledged, Journal
from eventstore import Appended, EventStore, NewEvent
from eventstore.errors import (
    ConversationNotFound,
    ForkedStore,
    LogWentBack,
    StoreUnavailable,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.ids import derived_id
from torture.plan import PATIENCE_S, TENANT, Ack, Batch, Notes, Plan, Tally
from torture.writing import append, make, open_store

__all__ = ["converse", "fork_writers"]


_CONVERSATIONS = 3
_LARGEST = 20
_PAUSE_S = 0.05

_THREADS = 2
_CHILDREN = 3
_BATCHES = 15
_MEAN = _BATCHES // 2
_ALONE = 3
_OF_THEIR_OWN = 5

_FORK_PAUSE_S = 0.005


def converse(plan: Plan, index: int) -> None:
    """Write to this writer's conversations until the run is stopped, then once more to each.

    The last append is needed because a loss is only reported to a writer that appends.
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
    """The state shared by the sessions of one process."""

    def __init__(
        self, plan: Plan, store: EventStore, notes: Notes, name: str, choose: Random
    ) -> None:
        self.plan, self.store, self.notes, self.name, self.choose = plan, store, notes, name, choose
        self.number = 0

    def batch(self, stream: UUID) -> Batch:
        """Create the next batch and note it."""
        batch = Batch(f"{self.name}.{self.number}", stream, self.choose.randint(1, _LARGEST))
        self.number += 1
        self.notes.tries(batch)
        return batch

    def begin(self, batch: Batch, events: list[NewEvent]) -> Appended:
        """Create a conversation, or append to an existing one."""
        owner = str(self.plan.run)
        return self.store.append(batch.stream, events, tenant_id=TENANT, user_id=owner)


class _Session:
    """One conversation, and its acknowledged batches that are not known to be lost."""

    def __init__(self, writer: _Writer, place: int) -> None:
        self._writer = writer
        self._stream = derived_id(writer.plan.run, writer.name, place)
        self._acks: list[Ack] = []
        self._journal: Journal | None = None

    def append(self) -> None:
        """Append a batch, whatever happens to the database.

        Raises:
            StoreUnavailable: The append failed for two minutes.
        """
        batch, until = self._writer.batch(self._stream), time.monotonic() + PATIENCE_S
        events = make(self._writer.plan, batch, self._writer.choose)
        while True:
            try:
                self._acknowledged(batch, self._write(batch, events).version)
                return
            except LogWentBack as error:
                self._went_back(error)
            except WriterFenced as error:
                if error.current_epoch > error.epoch:
                    raise
                self._journal = None  # The log went back to before this opening.
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
            epoch = 0  # The epoch of a new conversation.
        done = self._writer.begin(batch, events)
        self._lost_above(done.version - batch.size)
        # The first batch cannot be written again automatically: a new conversation has an owner.
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
        """Note that the log ends at a version; return the lost batches."""
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
            self._journal = None  # It remembers too little, or the log went back again.
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
    """Return how many events were wrongly named as lost; omitting lost events is permitted."""
    known = {ack.batch.name for ack in lost}
    return sum(_name(event) not in known for event in error.lost)


def _name(event: NewEvent) -> str:
    mark = event.meta.causation_id if event.meta is not None else None
    return str(mark).rsplit(".", 2)[0]


def fork_writers(plan: Plan, index: int) -> None:
    """Append in threads and forked children until this process's share is acknowledged.

    Raises:
        ChildProcessError: A child has failed; its traceback is on stderr.
    """
    name, share = f"writer-{index}", plan.share(index)
    tally, failures = Tally(lambda: list(plan.directory.glob(f"{name}.*"))), 0
    children: set[int] = set()
    enough = threading.Event()
    with open_store(plan) as store, Notes(plan.notes(f"{name}.forks")) as notes:
        threads = [
            threading.Thread(
                target=_write, args=(plan, store, f"{name}.t{number}", 0, enough.is_set)
            )
            for number in range(_THREADS)
        ]
        # Warm up first: a fork must not copy what other packages initialise at first use half done.
        first = iter(range(_ALONE))
        _write(plan, store, f"{name}.first", 0, lambda: next(first, None) is None)
        for thread in threads:
            thread.start()
        number = 0
        while not plan.stopped() and (share is None or tally.events() < share):
            if len(children) == _CHILDREN:
                failures += _reap(children)
                continue
            number += 1
            children.add(_fork(plan, store, f"{name}.c{number}", number))
            notes.count("forks")
        enough.set()
        while children:
            failures += _reap(children)
        for thread in threads:
            thread.join()
    if failures:
        raise ChildProcessError(f"{failures} children failed")


def _fork(plan: Plan, store: EventStore, name: str, number: int) -> int:
    """Fork a child that appends several batches; return its process id to the parent."""
    if child := os.fork():
        return child
    _live(plan, store, name, number)


def _live(plan: Plan, store: EventStore, name: str, number: int) -> NoReturn:
    status = 1
    try:
        batches = plan.chance(name).randint(1, _BATCHES)
        left = iter(range(batches))
        _write(plan, store, name, number, lambda: next(left, None) is None)
        status = 0
        if name.count(".c") == 1 and batches % _OF_THEIR_OWN == 0:
            child = _fork(plan, store, f"{name}.c", number)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _write(
    plan: Plan, store: EventStore, name: str, forks: int, enough: Callable[[], bool]
) -> None:
    choose, number = plan.chance(name), 0
    with Notes(plan.notes(name)) as notes:
        while not plan.stopped() and not enough():
            *shared, _ = plan.streams(name, _MEAN * forks + number)
            batch = Batch(f"{name}.{number}", choose.choice(shared), choose.randint(1, _LARGEST))
            notes.tries(batch)
            try:
                append(plan, store, notes, batch, choose, exact=choose.random() < 0.5)
            except ForkedStore:
                notes.count("refused")
                return
            number += 1


def _reap(children: set[int]) -> int:
    """Remove an ended child from the set; return 1 if it failed, otherwise 0."""
    child, status = os.waitpid(-1, os.WNOHANG)
    if child == 0:
        time.sleep(_FORK_PAUSE_S)
        return 0
    children.discard(child)
    return int(os.waitstatus_to_exitcode(status) != 0)
