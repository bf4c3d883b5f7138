"""A chat in a process that is killed after so many appends; see `tests.killable_processes`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from agent_eventstore import ChatSession, ModelRequest, Participant
from tests.crash.world import Kill, KillableStore, World
from tests.killable_processes import serve

__all__ = ["ALL", "QUESTION", "ROLE_MAP", "answer"]

ALL = tuple(Participant(name) for name in ("ada", "bob", "cy"))
ROLE_MAP = {"coder": "ada", "reviewer": "bob", "tester": "cy"}
QUESTION = "Sort a list"


def answer(request: ModelRequest) -> Any:
    """Answer as the participant that is asked."""
    who = next(each.id for each in ALL if f"You are {each.id} " in request.messages[0]["content"])
    return iter([f"{who} ", "answers"])


def _live(url: str, conversation_id: str, folder: str, mode: str, after: int) -> None:
    with KillableStore.open(url, migrate=False, synchronous="NORMAL") as store:
        assert isinstance(store, KillableStore)
        store.world = World(Path(folder), Kill(after_append=after))
        session = ChatSession.create(
            store,
            participants=ALL,
            model=answer,
            mode=mode,
            role_map=ROLE_MAP,
            conversation={"conversation_id": conversation_id},
        )
        session.send(QUESTION)
        session.close()


def _warm_up(url: str) -> None:
    with TemporaryDirectory() as folder:
        _live(url, str(uuid4()), folder, "workflow", 0)


if __name__ == "__main__":
    serve(_live, _warm_up)
