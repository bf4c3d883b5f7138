"""The recorder for event loops: `conversations.recorder`, with ``await``.

The same names and the same events; nothing here blocks the loop. A batch of a stalled stream is
written by a timer of the loop itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from conversations.artifacts import ToolOutputs
from conversations.journal import AsyncJournal
from conversations.recorder import Said
from conversations.requests import Request, request_of
from conversations.scripts import (
    CallFacts,
    CallScript,
    RequestedCall,
    ToolScript,
    TurnScript,
)
from eventstore import NewEvent
from eventstore.events import (
    ContentPart,
    Sections,
    TokenUsage,
)
from projections import Views

__all__ = ["AsyncLlmCall", "AsyncToolCall", "AsyncTurn"]


class AsyncLlmCall(CallFacts):
    """`LlmCall` for an event loop."""

    def __init__(
        self, journal: AsyncJournal, script: CallScript, ended: Callable[[TokenUsage | None], None]
    ) -> None:
        self._journal = journal
        self._script = script
        self._ended = ended
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Write the request."""
        await self._journal.write(self._script.begin())
        return self

    async def feed(self, chunk: Any) -> None:
        """Take a chunk of the stream, as the provider's SDK yields it or as a dict."""
        if self._flushing is not None and self._flushing.done():
            done, self._flushing = self._flushing, None
            done.result()
        async with self._lock:
            await self._write(self._script.feed(chunk, time.monotonic()))
        self._watch()

    async def response(self, response: Any) -> None:
        """Take a whole response that was not streamed."""
        async with self._lock:
            await self._write(self._script.respond(response, time.monotonic()))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the message or the error, also when the task has been cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.shield(self._end(error))
        told = self._script.message or self._script.error
        self._ended(told.usage if told else None)

    async def _end(self, error: BaseException | None) -> None:
        async with self._lock:
            await self._write(self._script.end(time.monotonic(), error))

    def _watch(self) -> None:
        due_at = self._script.due_at
        if due_at is None or (self._timer is not None and not self._timer.cancelled()):
            return
        delay = max(0.0, due_at - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        due_at = self._script.due_at
        if due_at is not None and due_at > time.monotonic():
            self._watch()
        elif due_at is not None:
            self._flushing = asyncio.ensure_future(self._flush())

    async def _flush(self) -> None:
        async with self._lock:
            await self._write(self._script.flush(time.monotonic()))

    async def _write(self, events: list[NewEvent]) -> None:
        self._script.recorded(await self._journal.write(events))


class AsyncToolCall:
    """`ToolCall` for an event loop."""

    def __init__(self, journal: AsyncJournal, script: ToolScript, outputs: ToolOutputs) -> None:
        self._journal = journal
        self._script = script
        self._outputs = outputs

    @property
    def call_id(self) -> str:
        """Our own id of the call."""
        return self._script.call.call_id

    @property
    def idempotency_key(self) -> str:
        """What the tool may use to recognise a second execution of this call."""
        return self._script.idempotency_key

    async def __aenter__(self) -> Self:
        """Write the call."""
        await self._journal.write(self._script.begin())
        return self

    async def result(
        self,
        content: str | Sequence[ContentPart] | None,
        *,
        preview: str | None = None,
        sections: Sections | None = None,
    ) -> None:
        """Record what the tool returned; large text goes to a blob."""
        kept = content if content is None or isinstance(content, str) else tuple(content)
        await self._end(status="success", content=kept, preview=preview, sections=sections)

    async def fail(self, error: str) -> None:
        """Record that the tool failed, in words for the model."""
        await self._end(status="failed", content=error, error=error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record the failure, or an empty success, if nothing was recorded yet."""
        if error is not None:
            await asyncio.shield(
                self._journal.write(self._script.end(time.monotonic(), error=error))
            )
        else:
            await self._end(status="success", content="")

    async def _end(self, **result: Any) -> None:
        done = await self._journal.write(self._script.end(time.monotonic(), **result))
        if done is not None:
            content = result.get("content")
            await asyncio.to_thread(self._outputs.keep, done.events[-1], content)


class AsyncTurn:
    """`Turn` for an event loop."""

    def __init__(
        self,
        journal: AsyncJournal,
        views: Views,
        script: TurnScript,
        said: Said,
        outputs: ToolOutputs,
        ended: Callable[[TokenUsage | None], None],
    ) -> None:
        self._journal = journal
        self._views = views
        self._script = script
        self._said = said
        self._outputs = outputs
        self._ended = ended
        self._status: Literal["ok", "max_steps"] = "ok"

    @property
    def number(self) -> int:
        """The turn's number, from 1."""
        return self._script.meta.turn or 0

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of the turn's model calls so far, as reported."""
        return self._script.usage

    async def __aenter__(self) -> Self:
        """Write the turn's start and the input."""
        await self._journal.write(self._script.begin(self._said))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the turn's end."""
        events = self._script.end(time.monotonic(), self._status, error)
        await asyncio.shield(self._journal.write(events))
        self._ended(self._script.usage)

    async def context(
        self,
        *,
        max_tokens: int | None = None,
        max_messages: int | None = None,
        model: str = "gpt-4o",
    ) -> Request:
        """Return the messages of the next request; see `Views.context`."""
        view = await asyncio.to_thread(
            self._views.context,
            self._journal.conversation_id,
            max_tokens=max_tokens,
            max_messages=max_messages,
            model=model,
        )
        return request_of(view, model, max_tokens)

    def llm_call(
        self,
        request: Request | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        parameters: dict[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        retry_of: AsyncLlmCall | None = None,
    ) -> AsyncLlmCall:
        """Return a model call to be entered around the request to the provider."""
        script = self._script.call(
            request,
            provider=provider,
            model=model,
            parameters=parameters,
            tools=tools,
            retry_of=retry_of,
        )
        return AsyncLlmCall(self._journal, script, self._script.count)

    def tool(self, call: RequestedCall, *, idempotent: bool = False) -> AsyncToolCall:
        """Return a tool call to be entered around the tool's execution."""
        script = ToolScript(call, self._journal.conversation_id, time.monotonic(), idempotent)
        return AsyncToolCall(self._journal, script, self._outputs)

    async def deny(self, call: RequestedCall, reason: str) -> None:
        """Record that a call is not executed because it is not allowed."""
        await self._refuse(call, "denied", reason)

    async def skip(self, call: RequestedCall, reason: str) -> None:
        """Record that a call is not executed, for another reason."""
        await self._refuse(call, "skipped", reason)

    def max_steps(self) -> None:
        """Let the turn end as one that reached its limit of steps."""
        self._status = "max_steps"

    async def _refuse(self, call: RequestedCall, status: str, reason: str) -> None:
        script = ToolScript(call, self._journal.conversation_id, time.monotonic())
        await self._journal.write(script.refuse(status, reason))
