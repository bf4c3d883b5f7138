"""Processes that tests start and kill: ``python -m tests.projections.children WHAT URL ...``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from eventstore import EventStore, new_id
from projections import generations, rebuild, worker
from tests.projections.support import turn

__all__ = ["PAGE_EVENTS"]

PAGE_EVENTS = 14
"""How small the pages of these rebuilds are: two turns."""


def die(*_: Any, **__: Any) -> None:
    """End this process at once, with nothing cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def rebuild_and_die(url: str, where: str, workers: str) -> None:
    """Begin a rebuild, and die after its first page, or before its cut-over or its cleaning up."""
    rebuild._PAGE_EVENTS = PAGE_EVENTS
    if where != "progress":
        setattr(generations, where, die)
    with EventStore.open(url) as store:
        progress = die if where == "progress" else None
        rebuild.rebuild(store, workers=int(workers), on_progress=progress)


def write(url: str, conversations: str, turns: str) -> None:
    """Append to conversations in turns, event by event."""
    with EventStore.open(url) as store:
        cids = [new_id() for _ in range(int(conversations))]
        for number in range(int(turns)):
            for cid in cids:
                for payload in turn(7 * number, f"w{number}"):
                    store.append(cid, [payload])


def work(url: str, rounds_until_death: str) -> None:
    """Run the worker until nothing is behind, or until it has done that many rounds."""
    left = int(rounds_until_death)

    def after_round(_count: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            die()

    with EventStore.open(url) as store:
        worker.run(store, poll_interval_s=0.01, stop=None, on_round=after_round)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "rebuild": rebuild_and_die,
        "write": write,
        "work": work,
    }
    commands[sys.argv[1]](*sys.argv[2:])
