"""What ``eventstore chat --demo`` talks to: the recorded model, and the tools of its project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_eventstore.agents import FunctionTool, ModelRequest
from agent_eventstore.demo import script
from agent_eventstore.demo.model import DEFINITIONS, IDEMPOTENT, Reply, ScriptedModel, Workspace
from eventstore.events import JsonObject

__all__ = ["RecordedModel", "demo_tools"]

_NO_MORE = (
    "That was all that this recorded model has to say: name a real one with --model, and its key "
    "or its server."
)
_DELAY_S = 0.02


class RecordedModel:
    """Gives the demo's recorded replies in order, whatever is said; then says that it is over."""

    def __init__(self) -> None:
        self._replies = iter(script.REPLIES)

    def __call__(self, request: ModelRequest) -> Iterator[JsonObject]:
        """Return the chunks of the next reply."""
        reply = next(self._replies, Reply(_NO_MORE))
        model = ScriptedModel([reply], delay_s=_DELAY_S, tools=request.tools)
        return model.stream(request.messages)


def demo_tools(folder: Path) -> list[FunctionTool]:
    """Return the demo's tools, at work on its project in an existing folder."""
    workspace = Workspace(folder, script.PROJECT)
    return [_tool(workspace, each["function"]) for each in DEFINITIONS]


def _tool(workspace: Workspace, declared: JsonObject) -> FunctionTool:
    name = declared["name"]

    def run(**arguments: str) -> str:
        status, content = workspace.run(name, arguments)
        if status == "failed":
            raise ValueError(content)
        return content

    return FunctionTool(**declared, function=run, idempotent=name in IDEMPOTENT)
