"""The agent in a process of its own, which stops where it is to be killed.

Started by `killing`. Its order comes on stdin, as one line of JSON, so that no password shows in a
list of processes; what a user would see on the screen goes to stdout, a line of JSON each. Where it
stops it reads stdin until it is killed, or until whoever started it is gone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from conversations.conversation import Conversation
from conversations.demo import script
from conversations.demo.agent import Agent
from conversations.demo.model import Reply, ScriptedModel
from conversations.demo.tools import Outcome, Workspace
from eventstore import EventStore
from eventstore.events import JsonObject

__all__ = ["STOPPED", "main"]

STOPPED = "stopped"
"""What is told where the process stops."""


class _StoppingModel(ScriptedModel):
    """Stops in the middle of its stream, or never."""

    def __init__(self, replies: Sequence[Reply], delay_s: float, after: int | None) -> None:
        super().__init__(replies, delay_s=delay_s)
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
    order = json.loads(sys.stdin.readline())
    death = script.DEATHS[order["death"]]
    model = _StoppingModel(death.replies, order["delay_s"], death.after_chunks)
    workspace = _StoppingWorkspace(Path(order["folder"]), {})
    with (
        EventStore.open(order["url"], migrate=False) as store,
        Conversation.open(store, order["conversation_id"]) as conversation,
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
