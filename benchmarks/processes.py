"""The command ``eventstore`` in its own process, and the memory of it and its children."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from agent_eventstore.cli.target import URL_VARIABLE

__all__ = ["background", "run_watched"]

_MODULE = "agent_eventstore.cli"
_PERIOD_S = 0.02
_MB = 2**20


def run_watched(url: str, *arguments: str) -> tuple[Any, float]:
    """Run a command to its end; return its JSON document, and the peak memory of one process.

    Memory is the resident set in megabytes, sampled fifty times per second, of the process and its
    children; the largest value counts.

    Raises:
        RuntimeError: The command failed; the message is its output.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with _started(url, *arguments, stdout=output, stderr=errors) as process:
            peak, watched = 0, psutil.Process(process.pid)
            while process.poll() is None:
                peak = max(peak, _largest(watched))
                time.sleep(_PERIOD_S)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(errors.read().decode())
        return json.loads(output.read()), peak / _MB


@contextmanager
def background(url: str, *arguments: str) -> Iterator[psutil.Process]:
    """Yield a command that runs in the background, and end it afterwards."""
    with _started(url, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def _started(url: str, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    # The URL may contain a password, which a command line would show to everyone.
    environment = {**os.environ, URL_VARIABLE: url}
    return subprocess.Popen([sys.executable, "-m", _MODULE, *arguments], env=environment, **streams)


def _largest(process: psutil.Process) -> int:
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return max(map(_resident, family))


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:  # It has just ended.
        return 0
