"""Models of the OpenAI Agents SDK whose calls are recorded in the run around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any, Protocol

from agents import Model, ModelProvider

from agent_eventstore.integrations.openai_usage import counts_of
from agent_eventstore.llm_call import AsyncLlmCall
from agent_eventstore.providers.base import plain
from eventstore.events import Payload

__all__ = ["CURRENT", "RecordedModel", "RecordedProvider", "Run", "current_run"]


class Run(Protocol):
    """What a recorded run is to the models, guardrails and spans within it."""

    def call(self, model: Any, prompt: Any, arguments: dict[str, Any]) -> AsyncLlmCall:
        """Return a call of a model, to be entered around the SDK's request."""
        ...

    def answered(self, call: AsyncLlmCall) -> None:
        """Note which tools an answer asks for."""
        ...

    def tell(self, event: Payload) -> None:
        """Have an event recorded from any thread; leaving the run waits for that."""
        ...


CURRENT: ContextVar[Run | None] = ContextVar("recorded run", default=None)


def current_run() -> Run | None:
    """Return the run that this task or thread is a part of, if it is recorded."""
    return CURRENT.get()


class RecordedModel(Model):
    """A model of the SDK's whose calls are recorded in the run around them, if there is one.

    Args:
        inner: The model.
        name: What it is called, if it does not say so itself.
    """

    def __init__(self, inner: Model, name: str | None = None) -> None:
        self._inner, self._name = inner, name or getattr(inner, "model", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **rest: Any
    ) -> Any:
        """Ask the model, and record the answer."""
        if (run := CURRENT.get()) is None:
            return await self._inner.get_response(system_instructions, input, *args, **rest)
        async with run.call(self._name, input, _named(args, rest)) as call:
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
        """Ask the model, and record the answer while it streams."""
        stream = self._inner.stream_response(system_instructions, input, *args, **rest)
        if (run := CURRENT.get()) is None:
            async for event in stream:
                yield event
            return
        async with run.call(self._name, input, _named(args, rest)) as call:
            async for event in stream:
                await call.feed(event)
                yield event
        run.answered(call)


class RecordedProvider(ModelProvider):
    """A provider of models that are recorded in a run."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of a name."""
        return RecordedModel(self._inner.get_model(model_name), model_name)


_ARGUMENTS = ("model_settings", "tools", "output_schema", "handoffs", "tracing")


def _named(args: Any, rest: dict[str, Any]) -> dict[str, Any]:
    """Return the further arguments of a call of a model by their names."""
    return {**dict(zip(_ARGUMENTS, args, strict=False)), **rest}
