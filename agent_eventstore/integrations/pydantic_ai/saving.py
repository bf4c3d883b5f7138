"""`SavedRun`: saves a Pydantic AI run as it happens, instead of only at its end.

`StreamedRun` also records what the model streams.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable
from copy import copy
from typing import Any

from pydantic_ai.agent import AgentRunResult
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.tools import RunContext

from agent_eventstore.integrations.conversation_events import Streamed, seal_streams
from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations
from eventstore.events import ToolCallDelta
from eventstore.threads import in_thread
from projections.providers import Delta

__all__ = ["SavedRun", "StreamedRun"]


class SavedRun(AbstractCapability[Any]):
    """A capability that saves a run before each model request and before each tool call.

    After a kill, the next process loads the prompt, each answer, and the results of earlier steps.
    A run on these without a prompt makes the calls whose result is unknown. The run's result is
    saved too, so the product need not call `save`.

    Args:
        conversations: The store to save to.
        scope: The conversation's scope, as `EventStoreConversations.save` takes it.
    """

    def __init__(self, conversations: EventStoreConversations, *, scope: str | None = None) -> None:
        self.conversations, self.scope = conversations, scope
        self._conversation: Conversation | None = None
        self._saving = asyncio.Lock()

    async def for_run(self, ctx: RunContext[Any]) -> SavedRun:
        """Return a capability for one run, with its own conversation."""
        own = copy(self)
        own._conversation, own._saving = None, asyncio.Lock()
        return own

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> AgentRunResult[Any]:
        """Begin with the stored conversation, and save the result.

        Raises:
            ConversationConflict: The run does not start at the end of the stored conversation.
        """
        key = str(ctx.conversation_id)
        given = list(ctx.messages)
        stored = await self.conversations.load(key, limit=len(given), scope=self.scope)
        if stored is not None and (not given or stored.messages != given[: len(stored.messages)]):
            raise ConversationConflict(key)
        self._conversation = stored or Conversation(conversation_id=key)
        await in_thread(seal_streams, self.conversations.store, key)
        self.conversations._records.answering.pop(key, None)
        result: AgentRunResult[Any] = await handler()
        saved = result.conversation
        async with self._saving:
            self._conversation.deferred_tool_requests = saved.deferred_tool_requests
            await self._save(saved.messages, saved.usage)
        result._conversation_saved(str(self._conversation.revision))
        return result

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, handler: Any
    ) -> Any:
        """Save the messages of a model request, before it is sent."""
        await self._step(ctx)
        return await handler(request_context)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Save the answer that calls a tool, before the tool runs."""
        await self._step(ctx)
        return await handler(args)

    async def _step(self, ctx: RunContext[Any]) -> None:
        async with self._saving:
            await self._save(ctx.messages, ctx.usage)

    async def _save(self, messages: Any, usage: Any) -> None:
        conversation = self._conversation
        if conversation is None:
            return
        new = list(messages)
        if (
            new != conversation.messages
            or conversation.usage != usage
            or conversation.revision is None
        ):
            conversation.messages, conversation.usage = new, copy(usage)
            await self.conversations.save(conversation, scope=self.scope)


class StreamedRun(SavedRun):
    """A `SavedRun` that also records what the model streams.

    Every run requests a stream from the model. Once the next run begins, an answer cut off by a
    kill is an interrupted item of the timeline with the text that had arrived; loaded messages do
    not contain it.
    """

    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[Any]
    ) -> AsyncIterable[Any]:
        """Pass on the events of a stream, each after it was recorded."""
        key = str(ctx.conversation_id)
        streamed: Streamed | None = None
        try:
            async for event in stream:
                if isinstance(event, PartStartEvent | PartDeltaEvent):
                    if streamed is None:
                        streamed = Streamed(self.conversations.store, key)
                        self.conversations._records.answering[key] = streamed.call_id
                    await streamed.feed(_piece(event))
                yield event
        finally:
            if streamed is not None:
                await streamed.end()


def _piece(event: PartStartEvent | PartDeltaEvent) -> Delta:
    """Return the delta that a stream's event adds to an answer."""
    match event.part if isinstance(event, PartStartEvent) else event.delta:
        case TextPart(content=text) | TextPartDelta(content_delta=text):
            return Delta(text=text)
        case ThinkingPart(content=text) | ThinkingPartDelta(content_delta=text):
            return Delta(reasoning=text or "")
        case (
            ToolCallPart(tool_name=name, args=args, tool_call_id=own)
            | ToolCallPartDelta(tool_name_delta=name, args_delta=args, tool_call_id=own)
        ):
            arguments_text = args if isinstance(args, str) else json.dumps(args) if args else ""
            call = ToolCallDelta(
                index=event.index, name=name, provider_id=own, arguments=arguments_text
            )
            return Delta(tool_calls=(call,))
    return Delta()
