"""Processes that may be killed, at little cost: forked from a server that has lived already.

The server is a module of the tests, run as a program, that calls `serve`. It reads what to live
through from its input, a line of JSON each, and answers with how the process ended. It forks when
it has no thread and no connection of its own, so that none is inherited.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eventstore.leases import KEEPER
from tests.warm import server

__all__ = ["KILLED", "killable_processes", "serve"]

KILLED = -9


@contextmanager
def killable_processes(module: str) -> Iterator[Callable[..., int]]:
    """Run a server, and end it with the block.

    Yields:
        What lets a process live through an order, which is JSON and begins with the database's
        URL, and returns how that ended: ``KILLED`` if it was.
    """
    with server(module) as run:
        yield lambda *order: run(order)


def serve(live: Callable[..., object], warm_up: Callable[[str], object]) -> None:
    """Fork a process for each order until there are no more.

    Args:
        live: What the process does; given the order.
        warm_up: Lives once unkilled on each kind of database, so that no child pays for what a
            process does only once.
    """
    warm: set[str] = set()
    for line in sys.stdin:
        order = json.loads(line)
        kind = order[0].partition(":")[0]
        if kind not in warm:
            warm_up(order[0])
            _wait_until_idle()
            warm.add(kind)
        child = os.fork()
        if child == 0:
            try:
                live(*order)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


def _wait_until_idle() -> None:
    """Return when no other thread runs, and what there is will be cheap to fork."""
    with KEEPER._changed:
        KEEPER._changed.notify_all()  # else its thread sees in ten seconds that no lease is left
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    gc.collect()
    # A collection in a child would copy all of the parent's memory.
    gc.freeze()
