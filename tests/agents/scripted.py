"""Models that say what they are told to, and tools, for the tests of agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_eventstore import ModelRequest
from agent_eventstore.demo.scripted_model import Reply, ScriptedModel, Wanted

__all__ = ["Scripted", "Wanted", "read", "reply"]


def reply(text: str, *calls: Wanted) -> Reply:
    """Return a reply of a scripted model."""
    return Reply(text, tuple(calls))


class Scripted:
    """A model that gives one reply a call, in chunks of OpenAI's, and keeps what it was asked."""

    def __init__(self, *replies: Reply | str) -> None:
        told = [Reply(each) if isinstance(each, str) else each for each in replies]
        self._model = ScriptedModel(told, delay_s=0.0)
        self.asked: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Iterator[dict[str, Any]]:
        """Return the chunks of the next reply."""
        self.asked.append(request)
        return self._model.stream(request.messages)


def read(path: str) -> str:
    """Return the text of a file."""
    return f"# {path}"
