"""An event loop that reports when it is idle, and a store whose commits wait for that.

A commit that is held up until the loop has nothing left to do shows, without a clock, whether
whoever waits for it is woken over and over meanwhile.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from eventstore import EventStore

__all__ = ["GatedStore", "run_gated"]

T = TypeVar("T")
LIMIT = 2_000


class GatedStore(EventStore):
    """A store whose next group commit can be held up until an event loop is idle."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gate = threading.Event()
        self.gate.set()
        self.armed = False
        self.turns = 0
        """Rounds of the event loop since the gate was armed."""

    def shut(self) -> asyncio.Event:
        """Hold up the next commit; return what is set once it is under way."""
        self.gate.clear()
        self._loop, self._reached = asyncio.get_running_loop(), asyncio.Event()
        return self._reached

    def arm(self) -> None:
        """Let the commit go on as soon as the event loop is idle."""
        self.armed, self.turns = True, 0

    def on_round(self, idle: bool) -> None:
        """Count a round of the event loop, which may be about to wait."""
        if self.armed:
            self.turns += 1
            if idle or self.turns >= LIMIT:
                self.armed = False
                self.gate.set()

    def _append_group(self, requests: Any, **options: Any) -> Any:
        """Append, once the gate is open."""
        if not self.gate.is_set():
            self._loop.call_soon_threadsafe(self._reached.set)
            self.gate.wait()
        return super()._append_group(requests, **options)


class _Selector(selectors.DefaultSelector):
    """Reports to the store whether the loop waits for something else than itself."""

    store: GatedStore

    def select(self, timeout: float | None = None) -> Any:
        """Wait for input, as long as the loop has nothing else to do."""
        self.store.on_round(idle=timeout is None or timeout > 60)
        return super().select(timeout)


def run_gated(store: GatedStore, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop whose rounds the store counts."""
    selector = _Selector()
    selector.store = store
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(work)
