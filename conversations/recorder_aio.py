"""The recorder for event loops: `conversations.recorder`, with ``await``.

The same names and the same events; nothing here blocks the loop. A batch of a stalled stream is
written by a timer of the loop itself. A task that is cancelled still records how its blocks ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from conversations.artifacts import ToolOutputs
from conversations.batching import BATCH_S
from conversations.current import OpenTurn
from conversations.journal import AsyncJournal, finish
from conversations.recorder import Said
from conversations.requests import (
    Request,
    failed_summary,
    request_of,
    strategy_for,
    summary_of,
)
from conversations.scripts import CallFacts, CallScript, Executable, ToolScript, TurnScript
from conversations.upkeep import Upkeep
from eventstore import Appended, NewEvent
from eventstore.errors import StoreUnavailable
from eventstore.events import ContentPart, Sections, TokenUsage
from eventstore.events.values import Mode
from projections import Views
from projections.compression import LlmSummary, Strategy
from projections.context import ContextSettings, ContextView

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
        self._failed: Exception | None = None
        self._stopped = False
        self._counted = False

    async def __aenter__(self) -> Self:
        """Write the request."""
        done = await self._journal.write(self._script.begin())
        self._script.begun(done, time.monotonic())
        return self

    async def feed(self, chunk: Any) -> None:
        """Take a chunk of the stream, as the provider's SDK yields it or as a dict."""
        self._check()
        async with self._lock:
            events = self._script.feed(chunk, time.monotonic())
            self._watch()
            await self._write(events)

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
        await finish(self._end(error))

    async def cancel(self) -> None:
        """Record that no more of the stream is wanted; an answer that is whole stands as it is."""
        await finish(self._end(None, cancelled=True))

    async def _end(self, error: BaseException | None, *, cancelled: bool = False) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        async with self._lock:
            events = self._script.end(time.monotonic(), error, cancelled=cancelled)
            if not self._counted:
                self._counted = True
                self._ended(self._script.usage)
            await self._write(events)
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        if error is None:
            self._check()

    def _check(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _watch(self) -> None:
        due_at = self._script.due_at
        if due_at is not None and self._timer is None and not self._stopped:
            delay = max(0.0, due_at - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._stopped:
            return
        if self._lock.locked():
            # Somebody writes; whoever it is has looked at what is due, or the timer looks again.
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self._wake)
        elif (self._script.due_at or 0.0) > time.monotonic():
            self._watch()
        elif self._script.due_at is not None:
            self._flushing = asyncio.ensure_future(self._flush())

    async def _flush(self) -> None:
        async with self._lock:
            try:
                await self._write(self._script.flush(time.monotonic()))
            except StoreUnavailable:
                return  # It is kept, and whoever writes next meets the same trouble, or none.
            except Exception as error:
                self._failed = error

    async def _write(self, events: list[NewEvent]) -> None:
        if events:
            await self._journal.record(events, self._script.recorded)


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
        # What follows is timed, not the write.
        self._script.started_at = time.monotonic()
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
        await self._journal.record(self._script.leave(time.monotonic(), error))

    async def _end(self, **result: Any) -> None:
        await finish(self._record(result))

    async def _record(self, result: dict[str, Any]) -> None:
        kept: list[Appended] = []
        await self._journal.record(self._script.end(time.monotonic(), **result), kept.append)
        for done in kept:
            event, content = done.events[-1], result.get("content")
            if self._outputs.wanted(event, content):
                await asyncio.to_thread(self._outputs.keep, event, content)


class AsyncTurn(OpenTurn[AsyncLlmCall]):
    """`Turn` for an event loop."""

    def __init__(
        self,
        journal: AsyncJournal,
        views: Views,
        script: TurnScript,
        said: Said,
        outputs: ToolOutputs,
        upkeep: Upkeep,
        ended: Callable[[TokenUsage | None], None],
    ) -> None:
        self._journal = journal
        super().__init__()
        self._views = views
        self._script = script
        self._said = said
        self._outputs = outputs
        self._upkeep = upkeep
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
        self._become_current()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the turn's end."""
        self._step_back()
        await finish(self._end(error))

    async def _end(self, error: BaseException | None) -> None:
        for call in self.unfinished():
            await call.cancel()
        events = self._script.end(time.monotonic(), self._status, error)
        self._ended(self._script.usage)
        await self._journal.record(events)
        if error is None and self._upkeep.due(self._journal.version):
            await asyncio.to_thread(self._upkeep.run, self._journal.version)

    async def context(
        self,
        *,
        model: str = "gpt-4o",
        max_tokens: int | None = None,
        reserve_for_response: int | None = None,
        max_messages: int | None = None,
        mode: Mode | None = None,
        agent: str | None = None,
        tools: Sequence[dict[str, Any]] = (),
        run: bool | str | None = None,
        settings: ContextSettings | None = None,
        strategy: Strategy | str | None = None,
        format: str = "openai_chat",
        provider: str | None = None,
    ) -> Request:
        """Return the messages of the next request; see `Views.context`."""
        chosen = strategy_for(settings, strategy)

        def read() -> ContextView:
            return self._views.context(
                self._journal.conversation_id,
                model=model,
                max_tokens=max_tokens,
                reserve_for_response=reserve_for_response,
                max_messages=max_messages,
                tools=tools,
                settings=settings,
                strategy=chosen,
                format=format,
                provider=provider,
                **self._script.rendering(mode, run, agent),
            )

        view, note = await asyncio.to_thread(read), ""
        if view.due is not None and isinstance(chosen, LlmSummary):
            written = await asyncio.to_thread(chosen.write, view.due)
            note = written.failure and failed_summary(written.failure, chosen)
            if written.text:
                summary = summary_of(view.due, written.text, chosen)
                await self._journal.write([self._script.event(summary)])
                view = await asyncio.to_thread(read)
        self._script.rendered = request_of(view, self._journal.version, tools, note)
        return self._script.rendered

    def llm_call(
        self,
        request: Request | None = None,
        *,
        provider: str | None = None,
        specification: str | None = None,
        model: str | None = None,
        prompt: Any = None,
        parameters: dict[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        retry_of: AsyncLlmCall | None = None,
    ) -> AsyncLlmCall:
        """Return a model call to be entered around the request to the provider."""
        script = self._script.call(
            request,
            provider=provider,
            specification=specification,
            model=model,
            prompt=prompt,
            parameters=parameters,
            tools=tools,
            retry_of=retry_of,
        )
        self.last_call = AsyncLlmCall(self._journal, script, self._script.count)
        return self.last_call

    def tool(self, call: Executable, *, idempotent: bool = False) -> AsyncToolCall:
        """Return a tool call to be entered around the tool's execution."""
        script = self._script.tool(call, self._journal.conversation_id, idempotent=idempotent)
        return AsyncToolCall(self._journal, script, self._outputs)

    async def deny(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed because it is not allowed."""
        await self._refuse(call, "denied", reason)

    async def skip(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed, for another reason."""
        await self._refuse(call, "skipped", reason)

    def max_steps(self) -> None:
        """Let the turn end as one that reached its limit of steps."""
        self._status = "max_steps"

    async def _refuse(self, call: Executable, status: str, reason: str) -> None:
        script = self._script.tool(call, self._journal.conversation_id)
        await self._journal.record(script.refuse(status, reason))
