"""A small agent, and an example of how a product's own loop records its work.

The loop is like any product's: call the model, run the tools that it requests, call it again. Each
``with`` wraps something the product does anyway and makes it durable: the input before the model is
called, the answer while it streams, a tool call before the tool runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agent_eventstore.agents import FunctionTool, ModelRequest
from agent_eventstore.conversation import Conversation
from agent_eventstore.demo import script
from agent_eventstore.demo.scripted_model import (
    DEFINITIONS,
    IDEMPOTENT,
    MODEL,
    Reply,
    ScriptedModel,
    Workspace,
    text_of,
)
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.machines import RequestedCall
from agent_eventstore.turn import Turn
from eventstore.events import JsonObject

__all__ = ["DemoAgent", "DemoModel", "Listener", "demo_tools"]


Listener = Callable[[str, str], None]
"""Called with a kind (user, text, said, call, result or error) and a text, as it happens."""

_MAX_TOKENS = 8_000
_RESERVE = 1_000  # of these, for the answer
_MAX_STEPS = 10
_ATTEMPTS = 3
_RETRY_AFTER_S = 0.05
_PARAMETERS = {"stream": True, "stream_options": {"include_usage": True}}


class DemoAgent:
    """An agent in a conversation.

    Args:
        conversation: Where everything is recorded.
        model: The model to call.
        workspace: The folder that the tools work on.
        tell: Called with everything as it happens, as a screen would be.
    """

    def __init__(
        self,
        conversation: Conversation,
        model: ScriptedModel,
        workspace: Workspace,
        tell: Listener = lambda kind, text: None,
    ) -> None:
        self._conversation, self._model = conversation, model
        self._workspace, self._tell = workspace, tell

    def turn(self, text: str) -> None:
        """Answer the user, with as many model calls and tool calls as needed."""
        self._tell("user", text)
        with self._conversation.turn(text) as turn:
            for _ in range(_MAX_STEPS):
                answer = self._ask(turn)
                for wanted in answer.tool_calls:
                    self._use_tool(turn, wanted)
                if not answer.tool_calls:
                    return
            turn.max_steps()

    def _ask(self, turn: Turn) -> LlmCall:
        """Call the model, retrying failed calls, until it has answered."""
        failed: LlmCall | None = None
        for _ in range(_ATTEMPTS):
            # In the turn's mode, which determines the rules of the system part.
            request = turn.context(
                model=MODEL,
                max_tokens=_MAX_TOKENS,
                reserve_for_response=_RESERVE,
                tools=DEFINITIONS,
            )
            call = turn.llm_call(
                request,
                provider="openai",
                specification="openai_chat",
                parameters=_PARAMETERS,
                retry_of=failed,
            )
            try:
                with call:
                    for chunk in self._model.stream(request.messages):
                        call.feed(chunk)
                        self._tell("text", text_of(chunk))
            except ConnectionError as error:
                self._tell("error", str(error))
                failed = call
                time.sleep(_RETRY_AFTER_S)
            else:
                self._tell("said", "")
                return call
        raise ConnectionError(f"the model did not answer in {_ATTEMPTS} attempts")

    def _use_tool(self, turn: Turn, wanted: RequestedCall) -> None:
        self._tell("call", f"{wanted.name} {wanted.arguments_text}")
        with turn.tool(wanted, idempotent=wanted.name in IDEMPOTENT) as tool:
            status, content = self._workspace.run(wanted.name, wanted.arguments)
            if status == "success":
                tool.result(content)
            else:
                tool.fail(content)
        self._tell("result", f"{status}: {content}")


_NO_MORE = (
    "That was all that this recorded model has to say: name a real one with --model, and its key "
    "or its server."
)
_DELAY_S = 0.02


class DemoModel:
    """Plays the demo's recorded replies in order; after the last it says that there are no more."""

    def __init__(self) -> None:
        self._replies = iter(script.REPLIES)

    def __call__(self, request: ModelRequest) -> Iterator[JsonObject]:
        """Return the chunks of the next reply."""
        reply = next(self._replies, Reply(_NO_MORE))
        model = ScriptedModel([reply], delay_s=_DELAY_S, tools=request.tools)
        return model.stream(request.messages)


def demo_tools(folder: Path) -> list[FunctionTool]:
    """Return the demo's tools, working on its project in an existing folder."""
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
