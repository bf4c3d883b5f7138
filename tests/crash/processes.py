"""Agents' processes at little cost: forked from a server that has lived such a life already.

The server is a program of its own that reads what to run from its input, a line of JSON each, and
answers with how the process ended. It forks when it has no thread and no connection of its own, so
that none is inherited.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from uuid import UUID, uuid4

from tests.crash.world import Kill

__all__ = ["KILLED", "Agents", "agents", "rest"]

KILLED = -9
_ROOT = Path(__file__).parents[2]


class Agents:
    """The server of the agents' processes, as a test sees it."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests, self._answers = requests, answers

    def run(self, url: str, conversation_id: UUID, folder: Path, kill: Kill) -> int:
        """Let an agent live in a process of its own; return how that ended, -9 if killed."""
        line = [url, str(conversation_id), str(folder), asdict(kill)]
        self._requests.write(json.dumps(line) + "\n")
        self._requests.flush()
        return int(self._answers.readline())


@contextmanager
def agents() -> Iterator[Agents]:
    """Run the server, and end it with the block."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.processes"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield Agents(server.stdin, server.stdout)
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


def _serve() -> None:
    warm: set[str] = set()
    for line in sys.stdin:
        url, conversation_id, folder, kill = json.loads(line)
        if url not in warm:
            _warm_up(url)
            warm.add(url)
        child = os.fork()
        if child == 0:
            try:
                live(url, conversation_id, folder, Kill(**kill))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


def _warm_up(url: str) -> None:
    """Live once unkilled, so that no child pays for what a process does only once."""
    with TemporaryDirectory() as folder:
        live(url, str(uuid4()), folder, Kill())
    rest()


def rest() -> None:
    """Return when no other thread runs, and what there is will be cheap to fork."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    gc.collect()
    # A collection in a child would copy all of the parent's memory.
    gc.freeze()


if __name__ == "__main__":
    # Only in the server: the test has no use for them.
    from tests.crash.agent import live

    _serve()
