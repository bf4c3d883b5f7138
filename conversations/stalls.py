"""Writing what a stalled stream has left behind, when nothing comes that would trigger it.

A batch that is due is written by the next chunk. When none comes, one thread for the whole process
writes it instead; it sleeps until the earliest batch is due, and lives only while one is held.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from eventstore.errors import StoreUnavailable

__all__ = ["Stalls", "later"]


class _Woken(Protocol):
    @property
    def wake(self) -> Callable[[], None]: ...


class _Clock:
    """The thread, and what it has to wake."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked child: the thread and what it watched are the parent's."""
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, _Woken]] = []
        self._numbers = itertools.count()
        self._running = False

    def watch(self, at: float, stalls: _Woken) -> None:
        """Wake the stream at this time of the monotonic clock."""
        with self._condition:
            heapq.heappush(self._due, (at, next(self._numbers), stalls))
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="eventstore-stalls", daemon=True).start()
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._due:
                    # A while, since streams come in bursts; then the thread goes.
                    self._condition.wait(1.0)
                    if not self._due:
                        self._running = False
                        return
                wait = self._due[0][0] - time.monotonic()
                if wait > 0:
                    self._condition.wait(wait)
                    continue
                stalls = heapq.heappop(self._due)[2]
            stalls.wake()


_clock = _Clock()
_AGAIN_S = 0.05

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_clock.reset)


@dataclass(frozen=True, slots=True)
class _Later:
    wake: Callable[[], None]


def later(work: Callable[[], None]) -> None:
    """Have work, which raises nothing, done by the clock's thread, as soon as it can be."""
    _clock.watch(time.monotonic(), _Later(work))


class Stalls:
    """Watches one stream. ``lock`` is held by whoever writes the stream's batches."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self._flush = flush
        self._watched = False
        self._stopped = False
        self._due: float | None = None
        self._failed: BaseException | None = None

    def watch(self, due_at: float | None) -> None:
        """Have the batch that is due then be written, if the stream stalls; with ``lock`` held."""
        self._due = due_at
        if due_at is not None and not self._watched:
            self._watched = True
            _clock.watch(due_at, self)

    def check(self) -> None:
        """Raise what went wrong while a batch was written in the background, once."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def stop(self) -> None:
        """Watch no longer; with ``lock`` held."""
        self._stopped = True

    def wake(self) -> None:
        """Write the batch if it is still due, or wait on; called by the clock's thread."""
        if not self.lock.acquire(blocking=False):
            # The stream is being written at this moment: other streams shall not wait for it.
            _clock.watch(time.monotonic() + _AGAIN_S, self)
            return
        try:
            self._watched = False
            if self._stopped or self._due is None:
                return
            if self._due > time.monotonic():
                self.watch(self._due)
                return
            self._due = None
            self._flush()
        except StoreUnavailable:
            pass  # It is kept, and whoever writes next meets the same trouble, or none.
        except Exception as error:
            self._failed = error
        finally:
            self.lock.release()
