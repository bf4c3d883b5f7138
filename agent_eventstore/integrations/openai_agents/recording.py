"""A run of the OpenAI Agents SDK, recorded as it happens: model calls, streams, tools, handoffs.

A session receives items only at the end of a step. With a `RecordedRun` around the runner, the log
keeps what a killed process had: the part of the answer that had streamed, and which tools had
begun. Opening the session again seals these, and the next run's model is told about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, Self

from agents import Model, ModelProvider, MultiProvider, RunConfig, RunHooks
from agents import exceptions as sdk
from agents.tracing import CustomSpanData, GuardrailSpanData, Span, Trace, TracingProcessor

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.integrations.openai_agents.events import (
    OpenAIGuardrail,
    OpenAIHandoff,
    OpenAISpan,
)
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from agent_eventstore.integrations.openai_agents.usage import bill_of, counts_of
from agent_eventstore.llm_call import AsyncLlmCall
from agent_eventstore.machines import RequestedCall
from agent_eventstore.recovery import IfBusy, Recovery
from agent_eventstore.tool_call import AsyncToolBlock
from agent_eventstore.turn_aio import AsyncTurn
from eventstore import AsyncEventStore
from eventstore.errors import ErrorType, Traceback
from eventstore.events import Meta, Payload
from eventstore.events.base import utc_now
from eventstore.ids import uuid_in
from eventstore.telemetry.log import get_logger
from eventstore.threads import finish, in_thread
from projections.providers.stream_base import plain

__all__ = [
    "CURRENT",
    "RecordedModel",
    "RecordedProvider",
    "RecordedRun",
    "RecordedSpans",
    "RecordingState",
    "call_fields",
    "call_of",
    "current_run",
]


class RecordingState(Protocol):
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


CURRENT: ContextVar[RecordingState | None] = ContextVar("recorded run", default=None)


def current_run() -> RecordingState | None:
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
async def _pending(run: RecordingState) -> AsyncIterator[None]:
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


def call_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to record of a request, in addition to its model and prompt."""
    settings: dict[str, Any] = getattr(arguments.get("model_settings"), "to_json_dict", dict)()
    recorded = {
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
    return {"specification": "openai_responses", "parameters": recorded, "tools": tools}


def call_of(context: Any, tool: Any) -> str:
    """Return the id of the call that a tool's hook is about, or else the tool's name."""
    return str(getattr(context, "tool_call_id", None) or getattr(tool, "name", ""))


_log = get_logger("agent_eventstore")


_BLOCKING = sdk.InputGuardrailTripwireTriggered, sdk.OutputGuardrailTripwireTriggered


class RecordedRun(RunHooks[Any]):
    """Hooks for the runner, and a context manager around it: one turn of the conversation.

    Use ``async with RecordedRun(session) as run``, then ``Runner.run(agent, text, session=session,
    hooks=run, run_config=run.config())``. If an agent has its model as an object, wrap it in a
    `RecordedModel`. Entering opens the conversation for writing, as `Conversation.open` does: it
    seals what a killed run left open (`recovery`) and fences that run's writer.

    Args:
        session: The session that the runner is given.
        if_busy: What to do while another run has it open: ``raise``, ``wait`` or ``take_over``.
    """

    def __init__(self, session: EventStoreSession, *, if_busy: IfBusy = "raise") -> None:
        self.session = session
        self._if_busy: IfBusy = if_busy
        self._stack = AsyncExitStack()
        self._requested: dict[str, RequestedCall] = {}
        self._running: dict[str, AsyncToolBlock] = {}
        self._pending_reports: list[Future[Any]] = []
        self._given: Any = None
        self._bills: list[Payload] = []
        self.over, self.pending = False, 0
        self.conversation: AsyncConversation
        self.turn: AsyncTurn

    @property
    def recovery(self) -> Recovery | None:
        """What was sealed when the conversation was opened; None if it is new."""
        return self.conversation.recovery

    def config(self, given: RunConfig | None = None) -> RunConfig:
        """Return a copy of a configuration whose models, named by text, are recorded."""
        made = RunConfig() if given is None else replace(given)
        if isinstance(made.model, Model):
            made.model = RecordedModel(made.model)
        made.model_provider = RecordedProvider(made.model_provider or MultiProvider())
        return made

    async def __aenter__(self) -> Self:
        """Open the conversation and begin the turn.

        Raises:
            ConversationInUse: Another run has it open.
        """
        try:
            await self._enter()
        except BaseException as error:  # whose block is not entered, so nobody leaves it
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _enter(self) -> None:
        named = await self.session._run(lambda: self.session._end.checked_key())
        by_id = uuid_in(named) is not None
        threads = AsyncEventStore(self.session.store)
        self.conversation = await self._stack.enter_async_context(
            await AsyncConversation.start(
                threads,
                key=None if by_id else named,
                conversation_id=named if by_id else None,
                **self.session.owner,
                if_exists="open",
                mode="agent",
                if_busy=self._if_busy,
            )
        )
        self.turn = await self._stack.enter_async_context(self.conversation.continuation())
        self._loop = asyncio.get_running_loop()
        self._stack.push_async_callback(self._settle)
        self._stack.push_async_exit(self._leave)
        self.session.attach(Meta(session_id=self.conversation.session_id, turn=self.turn.number))
        CURRENT.set(self)

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> bool | None:
        """End what is still open: tools, the turn, and the conversation's session."""
        self.over = True
        CURRENT.set(None)
        return await self._stack.__aexit__(kind, error, trace)

    async def _leave(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End the tools, and have the session settle the recorded events that have no item."""
        await finish(self._leaving(kind, error, trace))

    async def _leaving(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        left, self._running = self._running, {}
        async with AsyncExitStack() as ending:  # each step, whatever becomes of the others
            # Otherwise a tool waits for an approval inside it, or the runner continues after its
            # reader has left: their results arrive with the items, which settle them.
            if error is not None or not (left or self.pending):
                blocked = isinstance(error, _BLOCKING)
                ending.push_async_callback(in_thread, self.session.detach, blocked=blocked)
            if error is not None:
                for tool in reversed([*left.values()]):
                    ending.push_async_callback(tool.__aexit__, kind, error, trace)

    def call(self, model: Any, prompt: Any, arguments: dict[str, Any]) -> AsyncLlmCall:
        """Return a model call to enter around the SDK's request."""
        named = None if model is None else str(model)
        return self.turn.llm_call(model=named, prompt=plain(prompt), **call_fields(arguments))

    def answered(self, call: AsyncLlmCall) -> None:
        """Note the tool calls of an answer."""
        for requested in call.tool_calls:
            self._requested[requested.provider_id or requested.name] = requested

    def tell(self, event: Payload) -> None:
        """Record an event, from any thread; the run waits for it before it ends."""
        appended = self.conversation.append(event)
        self._pending_reports.append(asyncio.run_coroutine_threadsafe(appended, self._loop))

    async def _settle(self) -> None:
        await self._pay()
        if self._bills:
            advice = "give the runner hooks=run; the log has their answers only as items"
            _log.warning("model calls of this run are not recorded", advice=advice)
        while self._pending_reports:
            await asyncio.wrap_future(self._pending_reports.pop(0))

    def asks(self, given: Any) -> bool:
        """Whether a model's input is the one that the runner has announced to this run's hooks."""
        return given is self._given

    async def bill(self, model: Any, began: datetime, usage: Any) -> None:
        """Record the usage of a call of a run inside a tool or guardrail."""
        place = self.conversation.version, self.turn.number, self.conversation.session_id
        self._bills.append(bill_of(model, began, usage, place))
        if not self.over:
            await self._pay()

    async def _pay(self) -> None:
        if self._given is not None and self._bills:
            bills, self._bills = self._bills, []
            await self.conversation.append(*bills)

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, items: Any) -> None:
        """Note the input that this run's model is about to get."""
        self._given = items
        await self._pay()

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Record that a tool is about to run, before it does."""
        given = call_of(context, tool)
        requested = self._requested.pop(given, None)
        if requested is not None and not self.over:
            self._running[given] = await self.turn.tool(requested).__aenter__()

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        """Record a tool's result."""
        given = call_of(context, tool)
        running = self._running.pop(given, None)
        if running is not None:
            await running.result(result if isinstance(result, str) else plain(result))
            await running.__aexit__(None, None, None)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Record which agent hands over to which."""
        if not self.over:
            handoff = OpenAIHandoff(from_agent=from_agent.name, to_agent=to_agent.name)
            await self.conversation.append(handoff)


class RecordedSpans(TracingProcessor):
    """Records guardrails and the product's own spans in the surrounding `RecordedRun`, if any.

    Pass it to `agents.add_trace_processor`, or to `set_trace_processors` to send nothing to OpenAI.
    If tracing is disabled, there are no spans.
    """

    def on_span_end(self, span: Span[Any]) -> None:
        """Record a span; the run waits for it before it ends."""
        run, data = current_run(), span.span_data
        if run is None:
            return
        error = None if span.error is None else span.error["message"]
        if isinstance(data, GuardrailSpanData):
            run.tell(OpenAIGuardrail(name=data.name, triggered=data.triggered, error=error))
        elif isinstance(data, CustomSpanData):
            run.tell(
                OpenAISpan(
                    name=data.name,
                    started_at=span.started_at,
                    ended_at=span.ended_at,
                    data=plain(data.data),
                    error=error,
                )
            )

    def on_span_start(self, span: Span[Any]) -> None:
        """Do nothing: a span is recorded when it has ended."""

    def on_trace_start(self, trace: Trace) -> None:
        """Do nothing: a run is a turn."""

    def on_trace_end(self, trace: Trace) -> None:
        """Do nothing: a run is a turn."""

    def shutdown(self) -> None:
        """Do nothing: nothing is buffered."""

    def force_flush(self) -> None:
        """Do nothing: nothing is buffered."""
