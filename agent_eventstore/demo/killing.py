"""The agent in its own process, which stops at a requested point and is killed there.

The process reads its order from stdin as one line of JSON, so that no password appears in the
process list. It writes what a user would see to stdout, one line of JSON each. It never outlives
its parent: whenever it waits, for the order or to be killed, it reads stdin.

Nothing depends on timing: the process reports that it has stopped, and is then killed. If it does
not report within a minute, it is killed all the same. No process is left running, whatever fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn, Self

import agent_eventstore
from agent_eventstore.conversation import Conversation
from agent_eventstore.demo import script
from agent_eventstore.demo.agent import DemoAgent, Listener
from agent_eventstore.demo.scripted_model import (
    DEFINITIONS,
    Outcome,
    Reply,
    ScriptedModel,
    Workspace,
)
from eventstore import EventStore
from eventstore.errors import ErrorType, Traceback
from eventstore.events import JsonObject

__all__ = ["STOPPED", "AgentProcess", "Killed", "Order", "main", "parse_report"]


STOPPED = "stopped"
"""The kind of the line that reports the stop."""

_PATIENCE_S = 60.0
_PACKAGES = Path(agent_eventstore.__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Order:
    """The order to the process.

    Attributes:
        url: The database.
        conversation_id: The conversation.
        folder: The folder that the tools work on.
        death: A name of the script's ``DEATHS``.
        delay_s: The model's delay before each piece of its answer, in seconds.
    """

    url: str = field(repr=False)
    conversation_id: str
    folder: str
    death: str
    delay_s: float

    def line(self) -> str:
        """Return the order as a line."""
        return json.dumps(asdict(self)) + "\n"


def parse_report(line: str) -> tuple[str, str]:
    """Return the kind and the text of a line from the process."""
    kind, text = json.loads(line)
    return kind, text


class _StoppingModel(ScriptedModel):
    """Stops after a given number of chunks, or never."""

    def __init__(self, replies: Sequence[Reply], delay_s: float, after: int | None) -> None:
        super().__init__(replies, delay_s=delay_s, tools=DEFINITIONS)
        self._after = after

    def stream(self, messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
        for number, chunk in enumerate(super().stream(messages)):
            if number == self._after:
                _stop()
            yield chunk


class _StoppingWorkspace(Workspace):
    """Stops after a tool has taken effect, before its result is recorded."""

    def run(self, name: str, arguments: JsonObject | None) -> Outcome:
        super().run(name, arguments)
        _stop()


def main() -> None:
    """Read an order, and run a turn up to the point where the process is killed."""
    line = sys.stdin.readline()
    if not line:
        return
    order = Order(**json.loads(line))
    death = script.DEATHS[order.death]
    model = _StoppingModel(death.replies, order.delay_s, death.after_chunks)
    workspace = _StoppingWorkspace(Path(order.folder), {})
    with (
        EventStore.open(order.url, migrate=False) as store,
        Conversation.open(store, order.conversation_id) as conversation,
    ):
        DemoAgent(conversation, model, workspace, _tell).turn(death.user)


def _tell(kind: str, text: str) -> None:
    sys.stdout.write(json.dumps([kind, text]) + "\n")
    sys.stdout.flush()


def _stop() -> NoReturn:
    _tell(STOPPED, "")
    sys.stdin.read()
    raise SystemExit("the process that started this one has ended")


@dataclass(frozen=True, slots=True)
class Killed:
    """A killed process: its id, the signal that ended it, and the text on its screen.

    ``shown`` is the streamed part of the answer that was cut short.
    """

    pid: int
    signal: int
    shown: str


class AgentProcess:
    """A process that runs one turn, up to the point where it is killed.

    A context manager: entering starts the process, which then waits for its order; leaving ends
    it.
    """

    def __enter__(self) -> Self:
        """Start the process."""
        self._process = subprocess.Popen(
            # -P: do not import modules from the current directory.
            [sys.executable, "-P", "-m", "agent_eventstore.demo.killing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": _python_path()},
            # An interrupt from the keyboard is for the demo, which then ends this process.
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End the process if it is still running."""
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def run_and_kill(self, order: Order, tell: Listener) -> Killed:
        """Send the order to the process, and kill it with SIGKILL when it reports its stop.

        Args:
            order: The order.
            tell: Called with everything that the process shows, as it happens.

        Raises:
            ChildProcessError: The process ended before it could be killed.
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
            raise ChildProcessError(f"the agent's process ended unexpectedly, with status {status}")
        return Killed(self._process.pid, -status, shown)

    def _listen(self, order: Order, tell: Listener) -> str | None:
        """Return the shown part of the last answer, or None if the process never stopped."""
        assert self._process.stdin is not None  # noqa: S101 - requested in __enter__
        assert self._process.stdout is not None  # noqa: S101 - likewise
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order.line())
            self._process.stdin.flush()
        shown = ""
        for kind, text in map(parse_report, self._process.stdout):
            if kind == STOPPED:
                return shown
            shown = shown + text if kind == "text" else ""
            tell(kind, text)
        return None


def _python_path() -> str:
    """Return the PYTHONPATH with which the process finds these packages, installed or not."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join((str(_PACKAGES), inherited)) if inherited else str(_PACKAGES)


if __name__ == "__main__":
    main()
