"""Models of the OpenAI Agents SDK whose calls are recorded in the surrounding run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol

from agents import Model, ModelProvider

from agent_eventstore.integrations.openai_usage import counts_of
from agent_eventstore.llm_call import AsyncLlmCall
from agent_eventstore.providers.base import plain
from eventstore.events import Payload
from eventstore.events.base import utc_now

__all__ = [
    "CURRENT",
    "RecordedModel",
    "RecordedProvider",
    "Run",
    "asked_for",
    "call_of",
    "current_run",
]


class Run(Protocol):
    """A recorded run, as its models, guardrails and spans see it.

    Attributes:
        over: Whether it has ended; background work that begins later is not recorded.
        pending: The number of its model calls in progress.
    """

    over: bool
    pending: int

    def asks(self, given: Any) -> bool:
        """Whether a model's input belongs to this run, and not to a run inside one of its tools."""
        ...

    async def bill(self, model: Any, began: datetime, usage: Any) -> None:
        """Record the usage of a call of a run inside a tool or guardrail."""
        ...

    def call(self, model: Any, prompt: Any, arguments: dict[str, Any]) -> AsyncLlmCall:
        """Return a model call to enter around the SDK's request."""
        ...

    def answered(self, call: AsyncLlmCall) -> None:
        """Note the tool calls of an answer."""
        ...

    def tell(self, event: Payload) -> None:
        """Record an event, from any thread; the run waits for it before it ends."""
        ...


CURRENT: ContextVar[Run | None] = ContextVar("recorded run", default=None)


def current_run() -> Run | None:
    """Return the recorded run that this task or thread belongs to, or None."""
    run = CURRENT.get()
    return None if run is None or run.over else run


class RecordedModel(Model):
    """A model whose calls are recorded in the surrounding run, if there is one.

    For an agent that a tool or a guardrail calls, only the usage is recorded: its answers are not
    part of the conversation.

    Args:
        inner: The model.
        name: The model's name, if ``inner`` has no attribute ``model``.
    """

    def __init__(self, inner: Model, name: str | None = None) -> None:
        self._inner, self._name = inner, name or getattr(inner, "model", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **rest: Any
    ) -> Any:
        """Call the model, and record the answer."""
        if (run := current_run()) is None:
            return await self._inner.get_response(system_instructions, input, *args, **rest)
        if not run.asks(input):
            began = utc_now()
            response = await self._inner.get_response(system_instructions, input, *args, **rest)
            await run.bill(self._name, began, response.usage)
            return response
        async with _pending(run), run.call(self._name, input, _named(args, rest)) as call:
            response = await self._inner.get_response(system_instructions, input, *args, **rest)
            await call.response(
                {
                    "object": "response",
                    "id": response.response_id,
                    "status": "completed",
                    "output": [plain(item) for item in response.output],
                    "usage": counts_of(response.usage),
                }
            )
        run.answered(call)
        return response

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **rest: Any
    ) -> AsyncIterator[Any]:
        """Call the model, and record the answer while it streams."""
        stream = self._inner.stream_response(system_instructions, input, *args, **rest)
        if (run := current_run()) is None:
            async for event in stream:
                yield event
            return
        if not run.asks(input):
            began, answer = utc_now(), None
            async for event in stream:
                answer = getattr(event, "response", answer)
                yield event
            await run.bill(self._name, began, getattr(answer, "usage", None))
            return
        async with _pending(run), run.call(self._name, input, _named(args, rest)) as call:
            async for event in stream:
                await call.feed(event)
                yield event
        run.answered(call)


@asynccontextmanager
async def _pending(run: Run) -> AsyncIterator[None]:
    run.pending += 1
    try:
        yield
    finally:
        run.pending -= 1


class RecordedProvider(ModelProvider):
    """A provider whose models are recorded in the surrounding run."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        """Return the model with a name, as a `RecordedModel`."""
        return RecordedModel(self._inner.get_model(model_name), model_name)


_ARGUMENTS = ("model_settings", "tools", "output_schema", "handoffs", "tracing")


def _named(args: Any, rest: dict[str, Any]) -> dict[str, Any]:
    """Return the other arguments of a model call by name."""
    return {**dict(zip(_ARGUMENTS, args, strict=False)), **rest}


def asked_for(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to record of a request, in addition to its model and prompt."""
    settings: dict[str, Any] = getattr(arguments.get("model_settings"), "to_json_dict", dict)()
    kept = {
        name: plain(value)
        for name, value in settings.items()
        if value is not None and not name.startswith("extra_")  # these may contain credentials
    }
    tools = tuple(
        {
            "type": "function",
            "name": getattr(tool, "name", type(tool).__name__),
            "parameters": plain(getattr(tool, "params_json_schema", None)),
        }
        for tool in arguments.get("tools") or ()
    )
    return {"specification": "openai_responses", "parameters": kept, "tools": tools}


def call_of(context: Any, tool: Any) -> str:
    """Return the id of the call that a tool's hook is about, or else the tool's name."""
    return str(getattr(context, "tool_call_id", None) or getattr(tool, "name", ""))
