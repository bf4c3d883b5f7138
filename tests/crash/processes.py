"""Agents' processes at little cost, see `tests.killable_processes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

from tests.crash.world import Kill
from tests.killable_processes import killable_processes, serve

__all__ = ["Agents", "agents"]


class Agents:
    """The server of the agents' processes, as a test sees it."""

    def __init__(self, run: Callable[..., int]) -> None:
        self._run = run

    def run(self, url: str, conversation_id: UUID, folder: Path, kill: Kill) -> int:
        """Let an agent live in a process of its own; return how that ended, -9 if killed."""
        return self._run(url, str(conversation_id), str(folder), asdict(kill))


@contextmanager
def agents() -> Iterator[Agents]:
    """Run the server, and end it with the block."""
    with killable_processes("tests.crash.processes") as run:
        yield Agents(run)


def _live(url: str, conversation_id: str, folder: str, kill: dict[str, Any]) -> None:
    live(url, conversation_id, folder, Kill(**kill))


def _warm_up(url: str) -> None:
    with TemporaryDirectory() as folder:
        live(url, str(uuid4()), folder, Kill())


if __name__ == "__main__":
    # Only in the server: the test has no use for them.
    from tests.crash.agent import live

    serve(_live, _warm_up)
