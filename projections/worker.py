"""The worker; by default it follows this package's projections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential,
    wait_random,
)

from eventstore import EventStore
from eventstore.database import Watch, backend_of
from eventstore.errors import CannotConnect, DatabaseBusy, KeyUnavailable
from eventstore.processes import in_child
from eventstore.telemetry.gauges import observing
from eventstore.telemetry.log import get_logger
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.context import CONTEXT
from projections.context_reading import bring_up, long_conversations
from projections.engine.follower import (
    RETRY_S,
    catch_up_behind,
    due_again,
    left_behind,
    retry_set_aside,
)
from projections.engine.generations import gone
from projections.engine.lag import measure
from projections.engine.members import Membership, WorkShare
from projections.engine.projection import Projection
from projections.engine.setup import install_all
from projections.errors import GenerationGone

__all__ = ["WorkerThread", "run"]


_log = get_logger("projections.worker")


_AT_LEAST_EVERY_S = 5.0


_LOOKS = 10


_RESTS = 3


_LONGER, _MOST_IDLE_STEPS, _LONGEST_IDLE_S = 1.2, 50, 0.2


_PATIENCE_S = 0.5  # in which other workers should have folded some of their shares


_LONGEST_REST_S = 0.5


_LONGEST_PAUSE_S = 0.1  # the longest that a waiting SQLite writer sleeps before it retries


_FIRST_WAIT_S = 0.1


_LONGEST_WAIT_S = 10.0


_STOPS_S = 5.0


def run(
    store: EventStore,
    *,
    projections: ProjectionSet = PROJECTIONS,
    once: bool = False,
    poll_interval_s: float = 0.02,
    stop: threading.Event | None = None,
    on_round: Callable[[int], None] | None = None,
) -> int:
    """Keep catching up conversations that are behind; return how many were caught up.

    While the store is idle, the worker runs one short query at each interval, regardless of how
    many conversations there are. Workers, on any machine, divide the conversations among them; the
    share of one that died goes to the others after ten seconds. A conversation that cannot be
    folded is set aside; the worker retries it when it gains events or when a worker starts. While
    the database is unavailable or busy, the worker backs off, up to ten seconds. While it runs, it
    serves OpenTelemetry's lag gauges.

    Args:
        store: The store to follow.
        projections: The projections to keep warm, including the product's own, if any.
        once: Return once nothing is behind.
        poll_interval_s: Seconds to wait before the next poll when nothing has happened: a fifth
            longer each time, up to a fifth of a second; after a round that took longer, as long as
            that round. On SQLite the worker also waits after each round that had work (three times
            the round's duration, at most half a second) and after each transaction within a round:
            without these pauses it would keep other processes from writing.
        stop: Return soon after this is set, even in the middle of a round.
        on_round: Called after each round with the number of conversations caught up; 0 for a
            round that failed.

    Raises:
        StoreUnavailable: The database cannot be written; with ``once`` also if it is unavailable
            or busy.
        KeyUnavailable: There are sealed conversations but no keys; with ``once`` also if the key
            provider is unavailable.
    """
    stop = stop or threading.Event()
    on_round = on_round or (lambda _: None)
    total = 0
    with (
        Watch(store.engine) as watch,
        observing(partial(measure, store, projections)),
        Membership(store, "follow", projections) as membership,
    ):
        rounds = _Rounds(store, projections, watch, membership, on_round, stop, in_haste=once)
        step = rounds.do_all if once else rounds.step
        attempts = (
            _for_once(on_round)
            if once
            else _for_ever(stop, on_round, has_keys=store.keys is not None)
        )
        while not stop.is_set():
            count = attempts(step)
            total += count
            if once and not count:
                break
            if not once:
                stop.wait(rounds.rest_s(count, poll_interval_s))
    return total


class WorkerThread:
    """A worker in a thread of this process, as ``EventStore.open(url, worker=True)`` starts one.

    An error that ends `run` is logged, and the worker starts again after ten seconds. A forked
    child gets a thread of its own.

    Args:
        store: The store to follow.
        projections: The projections to keep warm.
    """

    def __init__(self, store: EventStore, projections: ProjectionSet = PROJECTIONS) -> None:
        self._store = store
        self._projections = projections
        self._is_stopped = False
        self._start()
        in_child(self._start)

    def stop(self) -> None:
        """End the thread, after its current transaction; waits at most five seconds for it."""
        self._is_stopped = True
        self._stop.set()
        self._thread.join(_STOPS_S)
        if self._thread.is_alive():
            _log.warning("worker still in a transaction", waited_s=_STOPS_S)

    def _start(self) -> None:
        self._stop = threading.Event()  # a new one, because a fork may have copied a taken lock
        self._thread = threading.Thread(target=self._work, name="eventstore-worker", daemon=True)
        if not self._is_stopped:
            self._thread.start()

    def _work(self) -> None:
        stop = self._stop
        while not stop.is_set():
            try:
                run(self._store, projections=self._projections, stop=stop)
            except Exception as error:
                _log.warning("worker failed", wait_ms=round(1000 * _LONGEST_WAIT_S), why=str(error))
                stop.wait(_LONGEST_WAIT_S)


class _Stopped(BaseException):
    # Not an `Exception`, which would be attributed to the conversation.
    """The worker must stop; what it has written stays, and its cursor has not moved."""


class _Rounds:
    """The rounds of a worker, and when the next one is due."""

    def __init__(
        self,
        store: EventStore,
        projections: Sequence[Projection],
        watch: Watch,
        membership: Membership,
        on_round: Callable[[int], None],
        stop: threading.Event,
        *,
        in_haste: bool,
    ) -> None:
        self._store = store
        self._projections = projections
        self._watch = watch
        self._membership = membership
        self._idle_steps = 0
        self._on_round = on_round
        self._stop = stop
        self._yields = backend_of(store.engine).locks_all and not in_haste
        self._due_at = 0.0
        self._retried, self._retry_at = False, 0.0
        self.took_s = 0.0

    def step(self) -> int:
        """Do a round if anything was committed, or if the last round was a while ago."""
        self.took_s = 0.0
        if self._membership.share != self._membership.renew():
            self._due_at = 0.0
        if not self._watch.moved() and time.monotonic() < self._due_at:
            return 0
        # Another round is due until one has succeeded.
        self._due_at = 0.0
        count = self.do()
        if not count:
            self._due_at = time.monotonic() + _AT_LEAST_EVERY_S
        return count

    def rest_s(self, count: int, poll_interval_s: float) -> float:
        """Return how long to wait after a step that caught up ``count`` conversations."""
        if not count:
            self._idle_steps = min(self._idle_steps + 1, _MOST_IDLE_STEPS)
            rest_s = min(poll_interval_s * _LONGER**self._idle_steps, _LONGEST_IDLE_S)
            return max(poll_interval_s, rest_s, self.took_s)
        self._idle_steps = 0
        return min(_RESTS * self.took_s, _LONGEST_REST_S) if self._yields else 0.0

    def _pause(self, took_s: float) -> None:
        """Let other processes write; end the round if the worker must stop."""
        self._membership.renew()
        if self._yields:
            self._stop.wait(min(took_s, _LONGEST_PAUSE_S))
        if self._stop.is_set():
            raise _Stopped

    def _index(self, conversations: Sequence[UUID]) -> None:
        """Keep the search indexes of long conversations current, so that no request does."""
        if conversations and any(each.name == CONTEXT.name for each in self._projections):
            for conversation_id in long_conversations(self._store, conversations):
                started = time.perf_counter()
                with suppress(DatabaseBusy):  # Left for the next time.
                    bring_up(self._store, conversation_id)
                self._pause(time.perf_counter() - started)

    def do_all(self) -> int:
        """Do a round; if only others' shares are behind, wait for them, or do them too."""
        count = self.do()
        if count or self._membership.share.count == 1:
            return count
        left = left_behind(self._store, self._projections)
        while left and not self._stop.wait(_PATIENCE_S):
            now_left = left_behind(self._store, self._projections)
            if now_left >= left:
                return self.do(everything=True)
            left = now_left
        return count

    def do(self, *, everything: bool = False) -> int:
        """Catch up every conversation of the share that is behind; return their number."""
        started, count = time.perf_counter(), 0
        # In every round: a newer version's cut-over may have removed this version's tables.
        install_all(self._store, self._projections)
        share: Callable[[], WorkShare] = self._membership.renew
        if everything:
            share = partial(WorkShare)
        with gone(), suppress(_Stopped):
            if not self._retried:
                retry_set_aside(self._store, self._projections)
                self._retried, self._retry_at = True, time.monotonic() + RETRY_S
            elif time.monotonic() >= self._retry_at and share().number == 0:
                retry_set_aside(self._store, self._projections, due_again)
                self._retry_at = time.monotonic() + RETRY_S
            count = catch_up_behind(
                self._store, self._projections, self._pause, gained=self._index, share=share
            )
        self.took_s = time.perf_counter() - started
        if count:
            duration_ms = round(self.took_s * 1000, 1)
            _log.info("caught up", conversations=count, duration_ms=duration_ms)
        self._on_round(count)
        return count


def _for_once(on_round: Callable[[int], None]) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(GenerationGone),
        stop=stop_after_attempt(_LOOKS),
        before_sleep=lambda _: on_round(0),
        reraise=True,
    )


def _for_ever(
    stop: threading.Event, on_round: Callable[[int], None], *, has_keys: bool
) -> Retrying:
    def failed(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait_ms = round(1000 * (state.upcoming_sleep or 0))
        _log.warning(
            "round failed", attempt=state.attempt_number, wait_ms=wait_ms, reason=str(error)
        )
        on_round(0)

    passing: tuple[type[Exception], ...] = (CannotConnect, DatabaseBusy, GenerationGone)
    if has_keys:  # The key provider may be unavailable; without one, waiting does not help.
        passing += (KeyUnavailable,)
    return Retrying(
        retry=retry_if_exception_type(passing),
        # Random, so that workers do not all retry at the same moment.
        wait=wait_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S) + wait_random(0, _FIRST_WAIT_S),
        sleep=sleep_using_event(stop),
        stop=stop_when_event_set(stop),
        before_sleep=failed,
        # Stopped while the database is unavailable.
        retry_error_callback=lambda _: 0,
    )
