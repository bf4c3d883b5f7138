"""Many processes at little cost: they are forked from one that has imported everything already.

Each runs a function of a module by itself, shares nothing with the test but what it is handed, and
can be killed. None is forked from the test's own process, whose threads and connections a child
must not inherit.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

CONTEXT: ForkServerContext = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.concurrency.writer", "sqlalchemy.dialects.postgresql.psycopg"]
)

PATIENCE_S = 60.0


class Gate:
    """Where processes wait until all are there.

    It is made of pipes: a process that waited at a barrier of shared locks was once never woken.

    Args:
        count: How many processes come.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._arrivals, self._arrival = CONTEXT.Pipe(duplex=False)
        self._opened, self._opening = CONTEXT.Pipe(duplex=False)

    def wait(self) -> None:
        """Tell that this process is there, and return once the gate is open."""
        self._arrival.send(None)
        self._opened.poll(None)

    def open(self) -> None:
        """Open the gate once all processes are there; it stays open."""
        for _ in range(self._count):
            assert self._arrivals.poll(PATIENCE_S), "a process has not come to the gate"
            self._arrivals.recv()
        self._opening.send(None)


@contextmanager
def running(count: int, function: Any, *arguments: Any) -> Iterator[list[ForkServerProcess]]:
    """Run ``function(index, *arguments)`` in so many processes; end those that are left."""
    processes = [
        CONTEXT.Process(target=function, args=(index, *arguments)) for index in range(count)
    ]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()
            process.close()
