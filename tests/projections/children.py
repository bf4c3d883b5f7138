"""What processes do that tests start and kill.

One that starts workers is a program: ``python -m tests.projections.children URL WORKERS``, which
leads a process group of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from eventstore import EventStore, new_id
from projections import upkeep, worker
from projections.engine import generations, rebuild
from tests.projections.support import turn

__all__ = ["PAGE_EVENTS", "rebuild_and_die", "work", "write"]

PAGE_EVENTS = 14
"""How small the pages of these rebuilds are: two turns."""


def die(*_: Any, **__: Any) -> None:
    """End this process at once, with nothing cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def rebuild_and_die(url: str, where: str, workers: int = 1) -> None:
    """Begin a rebuild, and die after its first page, or before its cut-over or its cleaning up."""
    rebuild._PAGE_EVENTS = PAGE_EVENTS
    if where != "progress":
        setattr(generations, where, die)
    with EventStore.open(url) as store:
        progress = die if where == "progress" else None
        upkeep.rebuild(store, workers=workers, on_progress=progress)


def write(url: str, conversations: int, turns: int) -> None:
    """Append to conversations in turns, event by event."""
    with EventStore.open(url) as store:
        cids = [new_id() for _ in range(conversations)]
        for number in range(turns):
            for cid in cids:
                for payload in turn(7 * number, f"w{number}"):
                    store.append(cid, [payload])


def work(url: str, rounds_until_death: int) -> None:
    """Run the worker until nothing is behind, or until it has done that many rounds."""
    left = rounds_until_death

    def after_round(_count: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            die()

    with EventStore.open(url) as store:
        worker.run(store, poll_interval_s=0.01, stop=None, on_round=after_round)


if __name__ == "__main__":
    os.setsid()
    rebuild_and_die(sys.argv[1], "progress", int(sys.argv[2]))
