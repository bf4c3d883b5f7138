"""Starts the agent in a process of its own (`child`), and kills it where it stops.

Nothing depends on timing: the process tells that it has stopped, and is killed then. If it never
tells, it is killed all the same after a minute; and nothing is left running, whatever goes wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import conversations
from conversations.demo.agent import Listener
from conversations.demo.child import STOPPED

__all__ = ["Killed", "run_and_kill"]

_PATIENCE_S = 60.0
_PACKAGES = Path(conversations.__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Killed:
    """A process that is no more: its id, the signal that ended it, and the text on its screen.

    ``shown`` is what had been streamed of the answer that was cut short.
    """

    pid: int
    signal: int
    shown: str


def run_and_kill(
    url: str,
    conversation_id: UUID,
    folder: Path,
    death: str,
    *,
    tell: Listener,
    delay_s: float,
) -> Killed:
    """Have a process hold a turn of the conversation, and kill it with SIGKILL.

    Args:
        url: The database.
        conversation_id: The conversation.
        folder: What the tools work on.
        death: Which of the script's deaths.
        tell: Told what the process shows, as it shows it.
        delay_s: How long the model takes for a piece of its answer, in seconds.

    Raises:
        ChildProcessError: The process has ended before it could be killed.
    """
    order = {
        "url": url,
        "conversation_id": str(conversation_id),
        "folder": str(folder),
        "death": death,
        "delay_s": delay_s,
    }
    shown, stopped = "", False
    with _process(order) as process:
        for kind, text in _told(process):
            if kind == STOPPED:
                stopped = True
                break
            shown = shown + text if kind == "text" else ""
            tell(kind, text)
        process.kill()
    if not stopped:
        raise ChildProcessError(f"the agent's process ended by itself: {process.returncode}")
    return Killed(process.pid, -process.returncode, shown)


@contextlib.contextmanager
def _process(order: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Start the process, give it its order, and see to it that it is gone at the end."""
    process = subprocess.Popen(
        # -P: what lies in the current directory is not to be imported.
        [sys.executable, "-P", "-m", "conversations.demo.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": _python_path()},
        # An interrupt from the keyboard is for the demo, which then ends this process.
        start_new_session=True,
    )
    overdue = threading.Timer(_PATIENCE_S, process.kill)
    with process:
        try:
            overdue.start()
            assert process.stdin is not None  # noqa: S101 - asked for above
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
            yield process
        finally:
            overdue.cancel()
            process.kill()


def _told(process: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    assert process.stdout is not None  # noqa: S101 - asked for in `_process`
    for line in process.stdout:
        kind, text = json.loads(line)
        yield kind, text


def _python_path() -> str:
    """Return where the process finds these packages, installed or not."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join((str(_PACKAGES), inherited)) if inherited else str(_PACKAGES)
