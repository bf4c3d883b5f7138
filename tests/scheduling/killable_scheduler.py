"""A scheduler in a process that is killed after so many appends, see `tests.killable_processes`."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from agent_eventstore import ModelRequest, Scheduler, TaskPlan
from agent_eventstore.agents.agent_session import CONTINUE
from agent_eventstore.agents.queue import TaskResult
from tests.crash.world import Kill, KillableStore, World
from tests.killable_processes import serve

__all__ = ["FIRST", "live", "model"]

FIRST = "the first task"


def model(request: ModelRequest) -> dict[str, Any]:
    """Answer as three conversations do, from what each has been told so far.

    The root has a draft made, then a review; the reviewer asks the author to explain. What did not
    come about is asked for again.
    """
    texts = [m["content"] for m in request.messages if m["role"] == "user"]
    texts = [text for text in texts if text != CONTINUE]
    results = [json.loads(m["content"]) for m in request.messages if _is_answer(m)]
    if texts[0] == "Begin":
        if not results:
            return _call("conv_create", user_instruction="Draft")
        if len(results) == 1:
            author = results[0]["conversation_id"]
            return _call("conv_create", user_instruction=f"Review {author}")
        return {"role": "assistant", "content": f"done: {results[1]['last_assistant_message']}"}
    if texts[0].startswith("Review"):
        if not results:
            return _call("conv_send", conversation_id=texts[0].split()[1], text="Explain")
        answer = f"reviewed, {results[0]['last_assistant_message']}"
        return {"role": "assistant", "content": answer}
    return {
        "role": "assistant",
        "content": {"Draft": "drafted", "Explain": "explained"}[texts[-1]],
    }


def _is_answer(message: dict[str, Any]) -> bool:
    return message["role"] == "tool" and '"conversation_id"' in str(message["content"])


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    wanted = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [wanted]}


def live(store: KillableStore, root: str) -> list[TaskResult]:
    """Open the root, or begin it; see all tasks through."""
    options: dict[str, Any] = {"conversation_id": root, "if_exists": "open", "if_busy": "take_over"}
    with Scheduler.create(store, model=model, conversation=options) as scheduler:
        plan = TaskPlan(conversation_id=scheduler.root, input_items="Begin", task_id=FIRST)
        scheduler.enqueue([plan])
        return scheduler.run()


def _live(url: str, root: str, folder: str, after: int) -> None:
    with KillableStore.open(url, migrate=False, synchronous="NORMAL") as store:
        assert isinstance(store, KillableStore)
        store.world = World(Path(folder), Kill(after_append=after))
        live(store, root)


def _warm_up(url: str) -> None:
    with TemporaryDirectory() as folder:
        _live(url, str(uuid4()), folder, 0)


if __name__ == "__main__":
    serve(_live, _warm_up)
