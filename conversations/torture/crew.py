"""The processes of a run: started, killed with SIGKILL, and started again.

They are forked from a server that has imported everything already. Only processes that were started
here are ever killed; none outlives the run, also when that is killed itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, Self

from conversations.torture.following import fold, rebuild_again, tail
from conversations.torture.plan import Plan
from conversations.torture.writing import hold, write

__all__ = ["Crew"]

_WRITER = "writer"
_REBUILDER = "rebuilder"
_PRELOADED = ["conversations.torture.crew", "sqlalchemy.dialects.postgresql.psycopg"]


@dataclass(slots=True)
class _Member:
    """One process, by what it does; ``killed`` until it is started again."""

    kind: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    process: ForkServerProcess
    killed: bool = False


class Crew:
    """All processes of a run; leaving the block ends those that are left."""

    def __init__(self, plan: Plan, cursor: str | None) -> None:
        self._plan = plan
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._members: list[_Member] = []
        self.kills = self.failed = 0
        for index in range(plan.readers):
            self._add("reader", tail, index, cursor)
        for index in range(plan.workers):
            self._add("worker", fold, index)
        self._add(_REBUILDER, rebuild_again)
        self._add("holder", hold)
        for index in range(plan.writers):
            self._add(_WRITER, write, index)

    def tend(self) -> bool:
        """Restart what was killed; return whether a writer is still at work."""
        for member in list(self._members):
            if member.process.is_alive():
                continue
            ended = member.process.exitcode
            self._members.remove(member)
            if member.killed:
                self._add(member.kind, member.function, *member.arguments)
            elif ended:
                self.failed += 1
        return any(member.kind == _WRITER for member in self._members)

    def kill(self, draw: Callable[[list[_Member]], _Member]) -> None:
        """Kill one of the processes; readers are spared, since they are what is believed."""
        able = [each for each in self._members if each.kind != "reader" and not each.killed]
        if not able:
            return
        self._kill(draw(able))

    def _kill(self, member: _Member) -> None:
        if member.process.is_alive():
            member.process.kill()
            member.process.join()
            # It may have ended by itself just before.
            member.killed = member.process.exitcode == -signal.SIGKILL
            self.kills += member.killed

    def wait(self, patience_s: float, *, readers: bool) -> None:
        """Wait until the readers, or all others, have ended; those that do not have failed.

        The rebuilder is killed: what it is at takes longer the larger the log.
        """
        until = time.monotonic() + patience_s
        for member in self._members:
            if (member.kind == "reader") != readers:
                continue
            if member.kind == _REBUILDER:
                self._kill(member)
            member.process.join(max(0.0, until - time.monotonic()))
            if member.killed and not member.process.is_alive():
                continue
            self.failed += member.process.exitcode != 0

    def _add(self, kind: str, function: Callable[..., None], *arguments: Any) -> None:
        process = self._context.Process(
            target=_live, args=(function, self._plan, *arguments), daemon=True
        )
        process.start()
        self._members.append(_Member(kind, function, arguments, process))

    def __enter__(self) -> Self:
        """Return the crew."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill whoever still runs."""
        for member in self._members:
            member.process.kill()
            member.process.join()


def _live(function: Callable[..., None], *arguments: Any) -> None:
    # Ctrl-C is for the run, which then ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    function(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
