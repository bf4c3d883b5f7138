"""Which process this is, so that others of its machine can tell when it has ended.

Known on Linux, by the machine's boot, the namespace of process ids, the id and when the process
began; elsewhere nothing is said, and a process counts as alive until its leases run out.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["described", "has_ended", "identity"]

_STARTED = 19  # the 22nd field, of those after the command's closing parenthesis


def described() -> str:
    """Return process and machine, in words."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def identity() -> str:
    """Return what tells this process from all others of its machine; empty where nothing does."""
    place, started = _place(), _started(os.getpid())
    return f"{place}:{os.getpid()}:{started}" if place and started else ""


def has_ended(process: str) -> bool:
    """Whether a process is known to have ended: one of this machine that is not there any more."""
    place, _, rest = process.partition(":")
    number, _, started = rest.partition(":")
    if not process or place != _place() or not number.isdecimal():
        return False
    return _started(int(number)) != started


@cache
def _place() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    return ""


def _started(number: int) -> str | None:
    """Return when a process began, in the machine's ticks; None if no process has this number."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A zombie has ended, and nobody has asked for its status yet.
    return None if fields[0] in ("Z", "X") else fields[_STARTED]
