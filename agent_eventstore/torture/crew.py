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
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from random import Random
from typing import Any, Self

from agent_eventstore.torture.plan import Plan

__all__ = ["READER", "REBUILDER", "WRITER", "Crew", "Role"]

READER = "reader"
WRITER = "writer"
REBUILDER = "rebuilder"

Role = tuple[str, Callable[..., None], tuple[Any, ...]]
"""What a process is, and what it calls with the plan and these arguments."""

_PRELOADED = ["agent_eventstore.torture.crew", "sqlalchemy.dialects.postgresql.psycopg"]


@dataclass(slots=True)
class _Member:
    """One process, by what it does.

    ``killed`` until it is started again, ``stopped`` until this time while it is.
    """

    kind: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    process: ForkServerProcess
    killed: bool = False
    stopped: float | None = None

    def goes_on(self) -> None:
        """Let it go on."""
        if self.stopped is not None and self.process.pid is not None:
            self.stopped = None
            os.kill(self.process.pid, signal.SIGCONT)


class Crew:
    """All processes of a run; leaving the block ends those that are left."""

    def __init__(self, plan: Plan, roles: Sequence[Role]) -> None:
        self._plan = plan
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._members: list[_Member] = []
        self.counts: Counter[str] = Counter()
        self.failed = 0
        for kind, function, arguments in roles:
            self._add(kind, function, *arguments)

    def tend(self) -> bool:
        """Restart what was killed, let go on what was stopped; tell whether a writer is at work."""
        for member in list(self._members):
            if member.stopped is not None and member.stopped < time.monotonic():
                member.goes_on()
            if member.process.is_alive():
                continue
            ended = member.process.exitcode
            self._members.remove(member)
            if member.killed:
                self._add(member.kind, member.function, *member.arguments)
            elif ended:
                self.failed += 1
        return any(member.kind == WRITER for member in self._members)

    def kill(self, choose: Random, spared: Sequence[str] = (READER,)) -> None:
        """Kill one of the processes; readers are spared, since they are what is believed."""
        if able := [each for each in self._members if not (each.killed or each.kind in spared)]:
            self._kill(choose.choice(able))

    def stop(self, choose: Random, longest_s: float) -> None:
        """Stop one of the processes for a while, wherever it is; `tend` lets it go on."""
        able = [each for each in self._members if each.stopped is None and each.process.is_alive()]
        if able:
            member = choose.choice(able)
            if member.process.pid is not None:
                member.stopped = time.monotonic() + longest_s * choose.random()
                os.kill(member.process.pid, signal.SIGSTOP)
                self.counts["stops"] += 1

    def _kill(self, member: _Member) -> None:
        if member.process.is_alive():
            member.process.kill()
            member.process.join()
            # It may have ended by itself just before.
            member.killed = member.process.exitcode == -signal.SIGKILL
            self.counts["kills"] += member.killed

    def wait(self, patience_s: float, *, readers: bool) -> None:
        """Wait until the readers, or all others, have ended; those that do not have failed.

        The rebuilder is killed: what it is at takes longer the larger the log.
        """
        until = time.monotonic() + patience_s
        for member in self._members:
            member.goes_on()
        for member in self._members:
            if (member.kind == READER) != readers:
                continue
            if member.kind == REBUILDER:
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
