"""The server from which `multiprocessing` forks processes, with the product imported already.

It is a new interpreter otherwise, which takes more than a second to import what each process needs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import forkserver, util
from typing import Any
from unittest.mock import patch

from tests.warm import Programs

__all__ = ["fork_now", "start_by"]


def start_by(programs: Programs) -> None:
    """Have this process's server forked from the one that the tests' programs are forked from."""

    def start(_: str, command: Sequence[bytes | str], files: Sequence[int]) -> int:
        text = os.fsdecode(command[-1])
        return programs.start("-c", text, stdout=1, kept=files).pid

    _start(start)
    # It is not a child of this process, which would look after it. It ends with this process.
    server: Any = forkserver._forkserver
    server.ensure_running = lambda: None


def fork_now() -> None:
    """Fork this process's server from this process, which has no threads and no connections yet."""
    _start(_fork)


def _start(start: Any) -> None:
    with patch.object(util, "spawnv_passfds", start):
        forkserver.ensure_running()


def _fork(_: str, command: Sequence[bytes | str], files: Sequence[int]) -> int:
    if pid := os.fork():
        return pid
    for each in map(int, os.listdir("/proc/self/fd")):
        if each not in (0, 1, 2, *files):
            with suppress(OSError):
                os.close(each)
    try:
        exec(os.fsdecode(command[-1]), {})  # noqa: S102 - as the interpreter would run it
    except SystemExit:  # when this process's parent has ended
        os._exit(0)
    finally:
        os._exit(1)
