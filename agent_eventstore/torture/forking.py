"""Writers that fork: threads and children that append through one store, which the parent opened.

A process opens the store and uses it in two threads; all the while it forks children, which go on
with the same store object, and now and then fork children of their own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from agent_eventstore.torture.notes import Batch, Notes, Tally
from agent_eventstore.torture.plan import Plan
from agent_eventstore.torture.writing import append, open_store
from eventstore import EventStore
from eventstore.errors import ForkedStore

__all__ = ["fork_writers"]

_THREADS = 2
_CHILDREN = 3
_BATCHES = 15
_MEAN = _BATCHES // 2
_ALONE = 3
_OF_THEIR_OWN = 5
_LARGEST = 20
_PAUSE_S = 0.005


def fork_writers(plan: Plan, index: int) -> None:
    """Have threads and forked children append until this process's share is acknowledged.

    Raises:
        ChildProcessError: A child has failed; what it said stands on stderr.
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
        # Once alone: what other packages make at their first use, a fork must not find half made.
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
    """Fork a child that appends some batches; return its process id to the parent."""
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
    """Forget a child that has ended; return whether it has failed."""
    child, status = os.waitpid(-1, os.WNOHANG)
    if child == 0:
        time.sleep(_PAUSE_S)
        return 0
    children.discard(child)
    return int(os.waitstatus_to_exitcode(status) != 0)
