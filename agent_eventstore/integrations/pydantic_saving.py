"""`SavedRun`: a run of Pydantic AI is saved while it happens, and not only at its end.

`StreamedRun` does so, and records what the model streams as well.
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

from agent_eventstore.integrations.conversation_streams import Streamed, seal_streams
from agent_eventstore.integrations.pydantic_ai import EventStoreConversations
from agent_eventstore.journal_aio import in_thread
from agent_eventstore.providers import Delta
from eventstore.events import ToolCallDelta

__all__ = ["SavedRun", "StreamedRun"]


class SavedRun(AbstractCapability[Any]):
    """A capability that saves what a run has, before each request and before each tool.

    What a process had when it was killed is loaded by the next: what the user said, each answer,
    the results of earlier steps. A run on it without a prompt goes on with the calls that no result
    is known of. The result of a run is saved, too, so that nobody else needs to.

    Args:
        conversations: Where to.
        scope: Whose the conversation is, as `EventStoreConversations.save` takes it.
    """

    def __init__(self, conversations: EventStoreConversations, *, scope: str | None = None) -> None:
        self.conversations, self.scope = conversations, scope
        self._conversation: Conversation | None = None
        self._saving = asyncio.Lock()

    async def for_run(self, ctx: RunContext[Any]) -> SavedRun:
        """Return a capability for one run, as each has a conversation of its own."""
        own = copy(self)
        own._conversation, own._saving = None, asyncio.Lock()
        return own

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> AgentRunResult[Any]:
        """Begin with what is stored, and save the result.

        Raises:
            ConversationConflict: The run does not go on from what is stored.
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
        told = result.conversation
        async with self._saving:
            self._conversation.deferred_tool_requests = told.deferred_tool_requests
            await self._save(told.messages, told.usage)
        result._conversation_saved(str(self._conversation.revision))
        return result

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, handler: Any
    ) -> Any:
        """Save what the model is asked, ahead of it."""
        await self._step(ctx)
        return await handler(request_context)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Save the answer that asks for a tool, ahead of it."""
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
    """A `SavedRun` that records what the model streams, too: a kill leaves what had arrived.

    It has every run ask the model for a stream. What was left of an answer is an interrupted item
    of the timeline, with its text, once the next run begins; loaded messages do not have it.
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
    """Return what an event of a stream adds to an answer."""
    match event.part if isinstance(event, PartStartEvent) else event.delta:
        case TextPart(content=text) | TextPartDelta(content_delta=text):
            return Delta(text=text)
        case ThinkingPart(content=text) | ThinkingPartDelta(content_delta=text):
            return Delta(reasoning=text or "")
        case (
            ToolCallPart(tool_name=name, args=args, tool_call_id=own)
            | ToolCallPartDelta(tool_name_delta=name, args_delta=args, tool_call_id=own)
        ):
            told = args if isinstance(args, str) else json.dumps(args) if args else ""
            call = ToolCallDelta(index=event.index, name=name, provider_id=own, arguments=told)
            return Delta(tool_calls=(call,))
    return Delta()
