"""Runs the agent in a process of its own (`child`), and kills it where it stops.

Nothing depends on timing: the process tells that it has stopped, and is killed then. If it never
tells, it is killed all the same after a minute; and nothing is left running, whatever goes wrong.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import agent_eventstore
from agent_eventstore.demo.agent import Listener
from agent_eventstore.demo.child import STOPPED, Order, read_told

__all__ = ["AgentProcess", "Killed"]

_PATIENCE_S = 60.0
_PACKAGES = Path(agent_eventstore.__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Killed:
    """A process that is no more: its id, the signal that ended it, and the text on its screen.

    ``shown`` is what had been streamed of the answer that was cut short.
    """

    pid: int
    signal: int
    shown: str


class AgentProcess:
    """A process that holds one turn, up to the point where it is killed.

    A context manager: entering starts the process, which then waits for its order; when it is left,
    the process is gone.
    """

    def __enter__(self) -> Self:
        """Start the process."""
        self._process = subprocess.Popen(
            # -P: what lies in the current directory is not to be imported.
            [sys.executable, "-P", "-m", "agent_eventstore.demo.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": _python_path()},
            # An interrupt from the keyboard is for the demo, which then ends this process.
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process, if it still runs."""
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def run_and_kill(self, order: Order, tell: Listener) -> Killed:
        """Have the process carry out its order, and kill it with SIGKILL where it stops.

        Args:
            order: What to do.
            tell: Told what the process shows, as it shows it.

        Raises:
            ChildProcessError: The process has ended before it could be killed.
        """
        overdue = threading.Timer(_PATIENCE_S, self._process.kill)
        overdue.start()
        try:
            shown = self._listen(order, tell)
        finally:
            overdue.cancel()
            self._process.kill()
        status = self._process.wait()
        if shown is None:
            raise ChildProcessError(f"the agent's process ended by itself: {status}")
        return Killed(self._process.pid, -status, shown)

    def _listen(self, order: Order, tell: Listener) -> str | None:
        """Return what the process has shown of its last answer; None if it never stopped."""
        assert self._process.stdin is not None  # noqa: S101 - asked for on entering
        assert self._process.stdout is not None  # noqa: S101 - likewise
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order.line())
            self._process.stdin.flush()
        shown = ""
        for kind, text in map(read_told, self._process.stdout):
            if kind == STOPPED:
                return shown
            shown = shown + text if kind == "text" else ""
            tell(kind, text)
        return None


def _python_path() -> str:
    """Return where the process finds these packages, installed or not."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join((str(_PACKAGES), inherited)) if inherited else str(_PACKAGES)
