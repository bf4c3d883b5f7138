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
