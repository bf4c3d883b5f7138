"""What a forked child makes anew: connections, locks and threads, which are its parent's.

After a fork the child holds copies of its parent's sockets, of locks whose holders do not exist in
it, and of executors without threads. Whatever owns such things says here what is to be done.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eventstore.log import get_logger

__all__ = ["at_fork", "in_child"]

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
    """Have three methods of an object called around each fork, for as long as the object lives."""
    number = next(_numbers)

    def forget(_: Any) -> None:
        _known.pop(number, None)

    methods = (weakref.WeakMethod(each, forget) for each in (before, in_parent, in_child))
    _known[number] = _Hooks(*methods)


def in_child(method: Hook) -> None:
    """Have an object's method called in each forked child, for as long as the object lives."""
    number = next(_numbers)
    found = weakref.WeakMethod(method, lambda _: _known.pop(number, None))
    _known[number] = _Hooks(_nothing, _nothing, found)


def _run(stage: str) -> None:
    # A list of a dictionary's values is made at once, whatever other threads do.
    for hooks in list(_known.values()):
        hook = getattr(hooks, stage)()
        try:
            if hook is not None:
                hook()
        except Exception:
            _log.warning("fork not prepared for", stage=stage, exc_info=True)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(
        before=lambda: _run("before"),
        after_in_parent=lambda: _run("in_parent"),
        after_in_child=lambda: _run("in_child"),
    )
