"""A session in a process that is killed after so many appends, see `tests.killable_processes`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from agent_eventstore import AgentSession, JsonlHistorySink, LegacyXmlSink
from tests.agents.scripted import Scripted
from tests.crash.world import Kill, KillableStore, World
from tests.killable_processes import serve

__all__ = ["ACTION", "FINAL", "QUESTION", "options"]

QUESTION = "帮我读 README"
ACTION = '<thought>需要 read...</thought><action tool="read">/repo/README.md</action>'
FINAL = "<final>README 摘要...</final>"


def read(path: str) -> str:
    """Return a part of a file."""
    return "(文件片段)"


def options(folder: Path, *replies: str) -> dict[str, Any]:
    """Return how the agent of document 001's example is made."""
    return {
        "model": Scripted(*replies),
        "model_name": "deepseek-chat",
        "tokenizer_model": "cl100k_base",
        "protocol": "react",
        "tools": [read],
        "sinks": [JsonlHistorySink(folder / "history"), LegacyXmlSink(folder / "history")],
    }


def _live(url: str, conversation_id: str, folder: str, after: int) -> None:
    with KillableStore.open(url, migrate=False, synchronous="NORMAL") as store:
        assert isinstance(store, KillableStore)
        store.world = World(Path(folder), Kill(after_append=after))
        session = AgentSession.create(
            store,
            conversation={"conversation_id": conversation_id},
            **options(Path(folder), ACTION, FINAL),
        )
        session.run_turn(QUESTION)
        session.close()


def _warm_up(url: str) -> None:
    with TemporaryDirectory() as folder:
        _live(url, str(uuid4()), folder, 0)


if __name__ == "__main__":
    serve(_live, _warm_up)
