"""A run of the OpenAI Agents SDK, recorded as it happens: model calls, streams, tools, handoffs.

A session alone learns of items at the end of a step. With a `RecordedRun` around the runner, what
a process had when it was killed is in the log: the answer as far as it had streamed, and which
tools had begun; opening the session again ends it truthfully, and the next run is told.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self

from agents import Model, MultiProvider, RunConfig, RunHooks

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.integrations.openai_agents import EventStoreSession
from agent_eventstore.integrations.openai_events import OpenAIHandoff
from agent_eventstore.integrations.openai_models import (
    CURRENT,
    RecordedModel,
    RecordedProvider,
    current_run,
)
from agent_eventstore.llm_call import AsyncLlmCall
from agent_eventstore.machines import RequestedCall
from agent_eventstore.providers.base import plain
from agent_eventstore.recovery import IfBusy, Recovery
from agent_eventstore.tool_call import AsyncToolCall
from agent_eventstore.turn_aio import AsyncTurn
from eventstore import AsyncEventStore
from eventstore.errors import ErrorType, Trace
from eventstore.events import Meta, Payload
from eventstore.ids import uuid_in

__all__ = ["RecordedModel", "RecordedRun", "current_run"]


class RecordedRun(RunHooks[Any]):
    """Hooks for the runner, and a context manager around it: a turn of the session's conversation.

    ``async with RecordedRun(session) as run``, and then ``Runner.run(agent, text, session=session,
    hooks=run, run_config=run.config())``. An agent that has its model as an object gets a
    `RecordedModel` of it. Entering opens the conversation for writing, as `Conversation.open` does:
    what a killed run has left is sealed (`recovery`), and its writer is fenced.

    Args:
        session: The session that the runner is given.
        if_busy: What to do while another run has it open: ``raise``, ``wait`` or ``take_over``.
    """

    def __init__(self, session: EventStoreSession, *, if_busy: IfBusy = "raise") -> None:
        self.session = session
        self._if_busy: IfBusy = if_busy
        self._stack = AsyncExitStack()
        self._asked: dict[str, RequestedCall] = {}
        self._running: dict[str, AsyncToolCall] = {}
        self._told: list[Future[Any]] = []
        self.conversation: AsyncConversation
        self.turn: AsyncTurn

    @property
    def recovery(self) -> Recovery | None:
        """What was sealed when the conversation was opened; None of a new one."""
        return self.conversation.recovery

    def config(self, given: RunConfig | None = None) -> RunConfig:
        """Return a configuration whose models, named by text, are recorded; ``given`` otherwise."""
        made = RunConfig() if given is None else replace(given)
        if isinstance(made.model, Model):
            made.model = RecordedModel(made.model)
        made.model_provider = RecordedProvider(made.model_provider or MultiProvider())
        return made

    async def __aenter__(self) -> Self:
        """Open the conversation, and begin the turn.

        Raises:
            ConversationInUse: Another run has it open.
        """
        named = self.session.session_id
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
        self.session.attach(Meta(session_id=self.conversation.session_id, turn=self.turn.number))
        CURRENT.set(self)
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Trace
    ) -> bool | None:
        """End what is left open, the turn, and the conversation's session."""
        self.session.attach(None)
        CURRENT.set(None)
        for tool in [*self._running.values()]:
            await tool.__aexit__(kind, error, trace)
        self._running.clear()
        return await self._stack.__aexit__(kind, error, trace)

    def call(self, model: Any, prompt: Any, arguments: dict[str, Any]) -> AsyncLlmCall:
        """Return a call of a model, to be entered around the SDK's request."""
        settings: dict[str, Any] = getattr(arguments.get("model_settings"), "to_json_dict", dict)()
        kept = {
            name: plain(value)
            for name, value in settings.items()
            if value is not None and not name.startswith("extra_")  # these may hold credentials
        }
        return self.turn.llm_call(
            specification="openai_responses",
            model=None if model is None else str(model),
            prompt=plain(prompt),
            parameters=kept,
            tools=tuple(
                {
                    "type": "function",
                    "name": getattr(tool, "name", type(tool).__name__),
                    "parameters": plain(getattr(tool, "params_json_schema", None)),
                }
                for tool in arguments.get("tools") or ()
            ),
        )

    def answered(self, call: AsyncLlmCall) -> None:
        """Note which tools an answer asks for."""
        for asked in call.tool_calls:
            self._asked[asked.provider_id or asked.name] = asked

    def tell(self, event: Payload) -> None:
        """Have an event recorded from any thread; leaving the run waits for that."""
        told = self.conversation.append(event)
        self._told.append(asyncio.run_coroutine_threadsafe(told, self._loop))

    async def _settle(self) -> None:
        while self._told:
            await asyncio.wrap_future(self._told.pop(0))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Record that a tool is about to run, ahead of it."""
        given = _call_of(context, tool)
        asked = self._asked.pop(given, None)
        if asked is not None:
            self._running[given] = await self.turn.tool(asked).__aenter__()

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        """Record what a tool has returned."""
        given = _call_of(context, tool)
        running = self._running.pop(given, None)
        if running is not None:
            await running.result(result if isinstance(result, str) else plain(result))
            await running.__aexit__(None, None, None)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Record who hands over to whom."""
        told = OpenAIHandoff(from_agent=from_agent.name, to_agent=to_agent.name)
        await self.conversation.append(told)


def _call_of(context: Any, tool: Any) -> str:
    """Return by what a call is known: its id, or else the tool's name."""
    return str(getattr(context, "tool_call_id", None) or getattr(tool, "name", ""))
