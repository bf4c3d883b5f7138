"""Processes beside a test that can be killed, with whatever they have started themselves.

They are forked from a process that has imported everything already: an interpreter that starts and
imports costs many times what most of them do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerProcess

from tests.concurrency.processes import CONTEXT

__all__ = ["kill", "start"]

# The server is shared by the whole run, and so this names what `tests.concurrency` wants too.
CONTEXT.set_forkserver_preload(
    [
        "tests.concurrency.writer",
        "tests.projections.children",
        "sqlalchemy.dialects.postgresql.psycopg",
    ]
)


def start(function: Callable[..., object], *arguments: object) -> ForkServerProcess:
    """Run a function of a module in a process, which leads a process group of its own."""
    process = CONTEXT.Process(target=_lead, args=(function, *arguments))
    process.start()
    return process


def kill(process: ForkServerProcess) -> None:
    """Kill a process, if it still runs, and what is left of its group."""
    assert process.pid is not None
    process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _lead(function: Callable[..., object], *arguments: object) -> None:
    os.setsid()
    function(*arguments)
