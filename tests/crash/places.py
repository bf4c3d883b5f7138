"""Where agents live and die: a database, the processes that write to it, and their files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import UUID

from eventstore import EventStore, new_id
from projections import Views
from tests.crash.processes import Agents
from tests.crash.world import Kill, World

__all__ = ["Place"]


@dataclass
class Place:
    """A database, and the processes that write to it."""

    url: str
    store: EventStore
    views: Views
    agents: Agents
    folder: Path

    def live(self, kill: Kill) -> tuple[UUID, World, int]:
        """Let an agent live until it is killed; return its conversation, its files, its end."""
        conversation_id = new_id()
        folder = self.folder / str(conversation_id)
        folder.mkdir()
        code = self.agents.run(self.url, conversation_id, folder, kill)
        return conversation_id, World(folder), code

    @cached_property
    def whole(self) -> World:
        """The files of an agent that nobody killed: what there is to be killed after."""
        _, world, code = self.live(Kill())
        assert code == 0
        return world
