"""The agent in a process of its own, which stops where it is to be killed.

Started by `killing`. Its order comes on stdin, as one line of JSON, so that no password shows in a
list of processes; what a user would see on the screen goes to stdout, a line of JSON each. It never
outlives whoever started it: where it waits, for the order or to be killed, it waits at stdin.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

from agent_eventstore.conversation import Conversation
from agent_eventstore.demo import script
from agent_eventstore.demo.agent import Agent
from agent_eventstore.demo.model import Reply, ScriptedModel
from agent_eventstore.demo.tools import DEFINITIONS, Outcome, Workspace
from eventstore import EventStore
from eventstore.events import JsonObject

__all__ = ["STOPPED", "Order", "main", "read_told"]

STOPPED = "stopped"
"""What is told where the process stops."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the process is to do.

    Attributes:
        url: The database.
        conversation_id: The conversation.
        folder: What the tools work on.
        death: Which of the script's deaths.
        delay_s: How long the model takes for a piece of its answer, in seconds.
    """

    url: str = field(repr=False)
    conversation_id: str
    folder: str
    death: str
    delay_s: float

    def line(self) -> str:
        """Return the order as a line."""
        return json.dumps(asdict(self)) + "\n"


def read_told(line: str) -> tuple[str, str]:
    """Return what a line of the process tells: of what kind it is, and the text."""
    kind, text = json.loads(line)
    return kind, text


class _StoppingModel(ScriptedModel):
    """Stops in the middle of its stream, or never."""

    def __init__(self, replies: Sequence[Reply], delay_s: float, after: int | None) -> None:
        super().__init__(replies, delay_s=delay_s, tools=DEFINITIONS)
        self._after = after

    def stream(self, messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
        for number, chunk in enumerate(super().stream(messages)):
            if number == self._after:
                _stop()
            yield chunk


class _StoppingWorkspace(Workspace):
    """Stops when a tool has taken effect, before anybody learns of it."""

    def run(self, name: str, arguments: JsonObject | None) -> Outcome:
        super().run(name, arguments)
        _stop()


def main() -> None:
    """Take an order, and hold a turn up to the point where the process is killed."""
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
        Agent(conversation, model, workspace, _tell).turn(death.user)


def _tell(kind: str, text: str) -> None:
    sys.stdout.write(json.dumps([kind, text]) + "\n")
    sys.stdout.flush()


def _stop() -> NoReturn:
    _tell(STOPPED, "")
    sys.stdin.read()
    raise SystemExit("nobody is there any more to kill this process")


if __name__ == "__main__":
    main()
