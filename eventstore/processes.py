"""Identity of processes, so that others see when one has ended; and hooks around forks.

On Linux a process is identified by the machine's boot, the namespace of process ids, its id and its
start time. Elsewhere it has no identity, and counts as alive until its leases expire.

After a fork the child holds copies of its parent's sockets, of locks whose holders do not exist in
the child, and of executors without threads. Objects that own such things register hooks here.
"""

from __future__ import annotations

import itertools
import os
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eventstore.telemetry.log import get_logger

__all__ = ["at_fork", "described", "has_ended", "identity", "in_child"]


_STARTED = 19  # the 22nd field, of those after the command's closing parenthesis


def described() -> str:
    """Return a description of this process and its machine."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def identity() -> str:
    """Return a text that identifies this process on its machine; empty if the platform has none."""
    return _identity(os.getpid())


@cache
def _identity(number: int) -> str:
    place, started = _place(), _started(number)
    return f"{place}:{number}:{started}" if place and started else ""


def has_ended(process: str) -> bool:
    """Whether a process is known to have ended: it ran on this machine and is gone."""
    if process == identity():
        return False
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
    """Return a process's start time in clock ticks since boot; None if no process has this id."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A zombie has ended, but its parent has not waited for it yet.
    return None if fields[0] in ("Z", "X") else fields[_STARTED]


Hook = Callable[[], None]

_log = get_logger("eventstore")
_numbers = itertools.count()
_known: dict[int, _Hooks] = {}


@dataclass(frozen=True, slots=True)
class _Hooks:
    before: Callable[[], Hook | None]
    in_parent: Callable[[], Hook | None]
    in_child: Callable[[], Hook | None]


def _nothing() -> None:
    return None


def at_fork(before: Hook, in_parent: Hook, in_child: Hook) -> None:
    """Register three methods of an object to run around each fork, while the object lives."""
    number = next(_numbers)

    def forget(_: Any) -> None:
        _known.pop(number, None)

    methods = (weakref.WeakMethod(each, forget) for each in (before, in_parent, in_child))
    _known[number] = _Hooks(*methods)


def in_child(method: Hook) -> None:
    """Register an object's method to run in each forked child, while the object lives."""
    number = next(_numbers)
    found = weakref.WeakMethod(method, lambda _: _known.pop(number, None))
    _known[number] = _Hooks(_nothing, _nothing, found)


def _run(stage: str) -> None:
    # Copying the values into a list is atomic with respect to other threads.
    for hooks in list(_known.values()):
        hook = getattr(hooks, stage)()
        try:
            if hook is not None:
                hook()
        except Exception:
            _log.warning("fork hook failed", stage=stage, exc_info=True)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(
        before=lambda: _run("before"),
        after_in_parent=lambda: _run("in_parent"),
        after_in_child=lambda: _run("in_child"),
    )
