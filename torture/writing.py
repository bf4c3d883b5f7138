"""The processes of a run: writers, tailing readers, projection workers, and rebuilds.

Writers are killed at random; a holder keeps transactions open. Each notes a batch before appending
it and again when it is acknowledged. A process killed in between appends the same batch again when
it is restarted, as a product would: with the same event ids, so that the store must detect whether
the first attempt was committed.

The others follow the writers. When its connection is cut, each process continues where it was. A
reader remembers only its cursor; its notes hold the events that it received, in order.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import timedelta
from random import Random

from eventstore import ANY, EventStore, Meta, NewEvent
from eventstore.errors import (
    DatabaseBusy,
    EventStoreError,
    ForkedStore,
    InvalidCursor,
    StoreUnavailable,
    WrongExpectedVersion,
)
from eventstore.events import AssistantMessage, TurnEnd, TurnStart, UserMessage
from eventstore.events.base import Clock, utc_now
from eventstore.events.records import EventData
from eventstore.events.values import TextPart
from eventstore.ids import derived_id
from projections import worker
from projections.catalogue import PROJECTIONS
from projections.upkeep import rebuild
from torture.plan import PATIENCE_S, TENANT, Batch, Notes, Plan, recall, write_down

__all__ = ["append", "fold", "hold", "make", "open_store", "rebuild_again", "tail", "write"]


_PAUSE_S = 0.02

_PAGE = 500

_LARGEST = 20
_CLOCK_OFF_S = 86_400.0
_HOLD_S = {"sqlite": 0.05, "postgresql": 0.8}


def tail(plan: Plan, index: int, cursor: str | None) -> None:
    """Read the feed from a cursor until all stored events have been received.

    If the cursor is refused because the log went back, discard the notes and start over. Give up if
    nothing arrives for two minutes after the writers have ended.
    """
    seen = 0
    file = os.open(plan.notes(f"reader-{index}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    until = time.monotonic() + PATIENCE_S
    with open_store(plan) as store, Notes(plan.notes(f"readers-{index}")) as notes:
        while True:
            try:
                # Before the page: everything stored by now is in this page or an earlier one.
                end = sum(plan.heads(store).values()) if plan.settled() else None
                page = store.read_all(after=cursor, limit=_PAGE)
                own = [each for each in page if each.meta.correlation_id == plan.run.hex]
                write_down(file, [(each.conversation_id, each.version) for each in own])
                cursor, seen = page.cursor, seen + len(own)
                if page:
                    until = time.monotonic() + PATIENCE_S
                    continue
                if end is not None and seen >= end:
                    break
            except InvalidCursor:
                os.ftruncate(file, 0)
                cursor, seen = None, 0
                notes.count("begun_anew")
            except StoreUnavailable:
                pass
            if plan.settled() and time.monotonic() > until:
                break
            time.sleep(_PAUSE_S)
    os.close(file)


def fold(plan: Plan, index: int) -> None:
    """Keep all projections caught up, as ``eventstore projections run`` does."""
    stop = threading.Event()
    threading.Thread(target=_tell_when_stopped, args=(plan, stop), daemon=True).start()
    with open_store(plan) as store:
        while not stop.is_set():
            with suppress(EventStoreError):
                worker.run(store, poll_interval_s=_PAUSE_S, stop=stop)


def _tell_when_stopped(plan: Plan, stop: threading.Event) -> None:
    while not plan.stopped():
        time.sleep(_PAUSE_S)
    stop.set()


def rebuild_again(plan: Plan) -> None:
    """Rebuild some or all projections repeatedly.

    Rests as long as each rebuild took: its cost grows with the log, and would otherwise slow down
    the writers of a long run more and more.
    """
    choose = plan.chance("rebuild", os.getpid())
    names = [projection.name for projection in PROJECTIONS]
    with Notes(plan.notes("rebuilds")) as notes, open_store(plan) as store:
        while not plan.stopped():
            chosen, started = choose.sample(names, choose.randint(1, len(names))), time.monotonic()
            with suppress(EventStoreError):
                done = rebuild(store, chosen)
                notes.acknowledged(Batch("rebuild", plan.run, done.events), 0)
            until = 2 * time.monotonic() - started
            while time.monotonic() < until and not plan.stopped():
                time.sleep(_PAUSE_S)


class _GivenUp(Exception):
    """Raised to roll the holder's transaction back."""


def write(plan: Plan, index: int) -> None:
    """Append batches of 1 to 20 events until this writer's share is acknowledged."""
    name = f"writer-{index}"
    memory, share = recall(plan.notes(name)), plan.share(index)
    choose = plan.chance(name, memory.tried)
    done, number = memory.events, memory.tried
    clock = _unsteady(plan.chance(f"{name} clock", number))
    with Notes(plan.notes(name)) as notes, open_store(plan, clock) as store:
        if memory.pending is not None:
            append(plan, store, notes, memory.pending, choose, exact=False)
            done += memory.pending.size
        while (share is None or done < share) and not plan.stopped():
            size = choose.randint(1, _LARGEST)
            if share is not None:
                size = min(size, share - done)
            stream = choose.choice(plan.streams(name, number))
            batch = Batch(f"{name}.{number}", stream, size)
            notes.tries(batch)
            append(plan, store, notes, batch, choose, exact=choose.random() < 0.5)
            done, number = done + size, number + 1


def hold(plan: Plan) -> None:
    """Append in transactions that stay open for a long time, and roll back one in three."""
    memory = recall(plan.notes("holder"))
    choose, number = plan.chance("holder", memory.tried), memory.tried
    # One conversation for the whole run, which becomes a long one.
    *_, own = plan.streams("holder", 0)
    with Notes(plan.notes("holder")) as notes, open_store(plan) as store:
        while not plan.stopped():
            batch = Batch(f"holder.{number}", own, choose.randint(1, _LARGEST))
            number += 1
            notes.tries(batch)
            with suppress(_GivenUp, StoreUnavailable):
                notes.acknowledged(batch, _hold(plan, store, batch, choose))
            # SQLite allows one writer at a time: without pauses the holder would starve the others.
            time.sleep(choose.random() * 4 * _HOLD_S[store.engine.dialect.name])


def _unsteady(choose: Random) -> Clock:
    """Return a clock that jumps on every read, by up to a day and mostly backwards."""
    return lambda: utc_now() - timedelta(seconds=(choose.random() - 0.1) * _CLOCK_OFF_S)


def open_store(plan: Plan, clock: Clock = utc_now) -> EventStore:
    """Open the run's database, retrying as needed.

    Raises:
        StoreUnavailable: Opening failed for two minutes.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return EventStore.open(
                plan.url,
                migrate=False,
                pool_size=2,
                busy_timeout_ms=plan.busy_timeout_ms,
                clock=clock,
            )
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def append(
    plan: Plan, store: EventStore, notes: Notes, batch: Batch, choose: Random, *, exact: bool
) -> None:
    """Append a batch until the store acknowledges it, and note that.

    Raises:
        ForkedStore: This process is a child that cannot use the store.
        StoreUnavailable: The append failed for two minutes.
    """
    events, until = make(plan, batch, choose), time.monotonic() + PATIENCE_S
    expected: int | None = 0 if exact else None
    while True:
        try:
            done = store.append(
                batch.stream,
                events,
                expected_version=ANY if expected is None else expected,
                tenant_id=TENANT,
                user_id=str(plan.run),
            )
            notes.acknowledged(batch, done.version - batch.size + 1)
            return
        except WrongExpectedVersion as conflict:
            expected = conflict.actual
        except ForkedStore:
            raise
        except StoreUnavailable as error:
            if isinstance(error, DatabaseBusy):
                notes.count("busy")
            # The outcome is unknown: repeating it with the same ids is safe either way.
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _hold(plan: Plan, store: EventStore, batch: Batch, choose: Random) -> int:
    with store.writing() as connection:
        done = store.append(
            batch.stream,
            make(plan, batch, choose),
            tenant_id=TENANT,
            user_id=str(plan.run),
            connection=connection,
        )
        time.sleep(choose.random() * _HOLD_S[store.engine.dialect.name])
        if choose.random() < 1 / 3:
            raise _GivenUp
    return done.version - batch.size + 1


def make(plan: Plan, batch: Batch, choose: Random) -> list[NewEvent]:
    """Return the events of a batch, with ids and marks that identify them."""
    clock = _unsteady(choose)()
    return [
        NewEvent(
            _payload(f"{batch.name} {place}", choose.randrange(4)),
            derived_id(plan.run, batch.name, place),
            Meta(
                correlation_id=plan.run.hex,
                causation_id=f"{batch.name}.{place}.{batch.size}",
                occurred_at=clock,
            ),
        )
        for place in range(batch.size)
    ]


def _payload(text: str, kind: int) -> EventData:
    match kind:
        case 0:
            return UserMessage.text(text)
        case 1:
            return AssistantMessage(parts=(TextPart(text=text),), finish_reason="stop")
        case 2:
            return TurnStart(input=text)
        case _:
            return TurnEnd(status="ok")
