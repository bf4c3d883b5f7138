"""What outlives an agent's process besides the log, and what kills it.

Everything is a line of a file, written by one call of the system: a line is there whole or not at
all, whenever the process is killed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from eventstore import Appended, EventStore

__all__ = ["Chunk", "Kill", "KillableStore", "World", "die"]

Chunk = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kill:
    """When a process ends: after so many appends, effects or chunks, or so long after a chunk."""

    after_append: int | None = None
    after_effect: int | None = None
    after_chunk: int | None = None
    delay_s: float | None = None

    def __str__(self) -> str:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return ", ".join(f"{name} {at}" for name, at in told.items() if at is not None) or "never"


def die() -> None:
    """End the process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class World:
    """The files of one agent, and the moment at which it is to be killed.

    Args:
        folder: Where the files are.
        kill: When to die; a process that only looks or goes on is never killed.
    """

    def __init__(self, folder: Path, kill: Kill | None = None) -> None:
        self.folder = folder
        self.killable = kill is not None
        self._kill = kill or Kill()
        self._chunks = self._effects = self._appends = 0
        self._death: threading.Timer | None = None

    def acknowledged(self, done: Appended) -> None:
        """Note which events the store has called durable, and die if it is time."""
        self._note("acknowledged", [[e.version, str(e.event_id)] for e in done.events])
        self._appends += 1
        if self._appends == self._kill.after_append:
            die()

    def effect(self, tool: str, key: str) -> str:
        """Do what a tool does, and die before its result is known if it is time."""
        self._note("effects", [tool, key])
        self._effects += 1
        if self._effects == self._kill.after_effect:
            die()
        return f"{tool} is done"

    def heard(self, call: str, chunks: Iterable[tuple[Chunk, str]]) -> Iterator[Chunk]:
        """Hand out the chunks of a model call, and note the text of each just before."""
        for chunk, text in chunks:
            self._note("heard", [call, text])
            yield chunk
            self._chunks += 1
            if self._chunks == self._kill.after_chunk:
                self._die_soon()

    def _die_soon(self) -> None:
        if self._kill.delay_s is None:
            die()
        self._death = threading.Timer(self._kill.delay_s or 0.0, die)
        self._death.start()

    def await_death(self) -> None:
        """Die of what was begun, if an agent has come to its end before that."""
        if self._death is not None:
            self._death.join()

    @property
    def acknowledged_appends(self) -> list[Any]:
        """The appends that were called durable."""
        return self._lines("acknowledged")

    @property
    def chunks(self) -> int:
        """How many chunks were handed out."""
        return len(self._lines("heard"))

    @property
    def acknowledged_events(self) -> dict[int, UUID]:
        """The events that were called durable, by version."""
        lines = self.acknowledged_appends
        return {version: UUID(event_id) for line in lines for version, event_id in line}

    @property
    def effects(self) -> list[tuple[str, str]]:
        """What the tools have done: the tool and the idempotency key, in order."""
        return [(tool, key) for tool, key in self._lines("effects")]

    @property
    def texts(self) -> dict[str, str]:
        """The text that was handed out, by model call."""
        found: dict[str, str] = {}
        for call, text in self._lines("heard"):
            found[call] = found.get(call, "") + text
        return found

    def _note(self, name: str, line: Any) -> None:
        file = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)

    def _lines(self, name: str) -> list[Any]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class KillableStore(EventStore):
    """A store that tells the world what it has acknowledged."""

    world: World

    def append(self, *args: Any, **kwargs: Any) -> Appended:
        """Append, and note what is durable."""
        done = super().append(*args, **kwargs)
        self.world.acknowledged(done)
        return done
