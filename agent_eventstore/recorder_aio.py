"""The recorder for event loops: `agent_eventstore.recorder`, with ``await``.

The same names and the same events; nothing here blocks the loop. A batch of a stalled stream is
written by a timer of the loop itself. A task that is cancelled still records how its blocks ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from agent_eventstore.artifacts import ToolOutputs
from agent_eventstore.batching import AGAIN_S, BATCH_S, SELDOM_S
from agent_eventstore.current import CallBlock, OneTurn, OpenTurn
from agent_eventstore.journal_aio import AsyncJournal, finish
from agent_eventstore.machines import CLOSED, AnswerText, CallScript, Executable, TurnScript
from agent_eventstore.requests import (
    Request,
    failed_summary,
    request_of,
    strategy_for,
    summary_of,
)
from agent_eventstore.stops import left
from agent_eventstore.tool_call import AsyncToolCall
from agent_eventstore.upkeep import Upkeep, earlier_calls
from eventstore import Appended, NewEvent
from eventstore.events import TokenUsage, UserMessage
from projections import Views
from projections.context import ContextSettings, ContextView
from projections.context.compression import LlmSummary, Strategy
from projections.context.state import AskedMode
from projections.context.system_part import permitted

__all__ = ["AsyncLlmCall", "AsyncToolCall", "AsyncTurn"]


class AsyncLlmCall(CallBlock):
    """`LlmCall` for an event loop."""

    form = "async with turn.llm_call(...) as call:"

    def __init__(
        self,
        journal: AsyncJournal,
        script: CallScript,
        ended: Callable[[TokenUsage | None], None],
        prepare: Callable[[CallScript], Awaitable[None]],
        inside: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._script = script
        self._ended = ended
        self._prepare = prepare
        self._inside = inside
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._failed: Exception | None = None
        self._again: float | None = None
        self._pause = AGAIN_S
        self._stopped = False
        self._counted = False

    async def __aenter__(self) -> Self:
        """Write the request, and ahead of it the results of tools that it is the first to tell."""
        self._enter_once()
        self._inside("turn.llm_call")
        await self._prepare(self._script)
        try:
            done = await self._journal.write(self._script.begin())
        except asyncio.CancelledError as error:
            self._state = "over"
            await self._journal.abandon(self._script.begin(), self._script.abandoned(error))
            raise
        self._state = "open"
        self._script.begun(done, time.monotonic())
        return self

    async def feed(self, chunk: Any) -> None:
        """Take a chunk of the stream, as the provider's SDK yields it or as a dict."""
        self._taking("call.feed")
        self._check()
        async with self._lock:
            events = self._script.feed(chunk, time.monotonic())
            self._watch()
            await self._write(events)

    async def delta(self, text: str = "", *, reasoning: str = "") -> None:
        """Take a piece of an answer of any SDK, in words; leaving the block ends the answer."""
        self._taking("call.delta")
        self._check()
        async with self._lock:
            events = self._script.say(text, reasoning, time.monotonic())
            self._watch()
            await self._write(events)

    async def response(self, response: Any) -> None:
        """Take a whole response that was not streamed."""
        self._taking("call.response")
        await finish(self._take(partial(self._script.respond, response, time.monotonic())))

    @property
    def text(self) -> AnswerText[Awaitable[None]]:
        """The message's text, once the call has ended well; ``await call.text("...")`` tells it."""
        return AnswerText(self._said(), self.message)

    async def message(
        self,
        text: str | None = None,
        *,
        reasoning: str | None = None,
        tool_calls: Sequence[Any] = (),
        usage: TokenUsage | dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """Take the whole answer of any SDK, in words; see `LlmCall.message`."""
        self._taking("call.message")
        tell = partial(
            self._script.tell,
            time.monotonic(),
            said=text,
            reasoning=reasoning,
            tool_calls=tool_calls,
            usage=usage,
            finish_reason=finish_reason,
        )
        await finish(self._take(tell))

    async def _take(self, answer: Callable[[], list[NewEvent]]) -> None:
        async with self._lock:
            # In a thread: to estimate the tokens of an answer that tells none takes a while.
            await self._write(await asyncio.to_thread(answer))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the message or the error, also when the task has been cancelled."""
        self._state = "over"
        await finish(self._end(error))

    async def cancel(self, why: str = CLOSED) -> None:
        """Record that no more of the stream is wanted; an answer that is whole stands as it is."""
        await finish(self._end(None, cancelled=why))

    async def _end(self, error: BaseException | None, *, cancelled: str | None = None) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        async with self._lock:
            now = time.monotonic()
            if self._script.unreported:
                await asyncio.to_thread(self._script.estimate)
            events = self._script.end(now, error, cancelled=cancelled)
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

    @property
    def _due_at(self) -> float | None:
        """When a batch is due, or what was not written is tried again."""
        return min(
            (at for at in (self._script.due_at, self._again) if at is not None), default=None
        )

    def _watch(self) -> None:
        due_at = self._due_at
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
        elif (self._due_at or 0.0) > time.monotonic():
            self._watch()
        elif self._due_at is not None:
            self._again = None
            self._flushing = asyncio.ensure_future(self._flush())

    async def _flush(self) -> None:
        async with self._lock:
            events = self._script.flush(time.monotonic())
            try:
                written = await self._journal.offer(events, self._script.recorded)
            except Exception as error:
                self._failed = error
                return
            if written:
                self._pause = AGAIN_S
            else:
                self._again = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, SELDOM_S)
                self._watch()

    async def _write(self, events: list[NewEvent]) -> None:
        if events:
            await self._journal.record(events, self._script.recorded)


class AsyncTurn(OpenTurn[AsyncLlmCall]):
    """`Turn` for an event loop."""

    form = "async with conversation.turn(...) as turn:"

    def __init__(
        self,
        journal: AsyncJournal,
        views: Views,
        script: TurnScript,
        said: UserMessage,
        outputs: ToolOutputs,
        upkeep: Upkeep,
        ended: Callable[[TokenUsage | None], None],
        one: OneTurn,
    ) -> None:
        self._journal = journal
        self._one = one
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
        """The tokens of the turn's model calls so far; not ``reported`` if some are estimates."""
        return self._script.usage

    async def __aenter__(self) -> Self:
        """Write the turn's start and the input."""
        begun = self._script.begin(self._said)
        self._enter_once()
        self._one.take(self, self.number, self._journal.conversation_id)
        try:
            await self._journal.write(begun)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._step_back()
                self._ended(None)
                await self._journal.abandon(begun, self._script.end(time.monotonic(), error=error))
            self._one.leave(self)
            raise
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
        try:
            await finish(self._end(error))
        finally:
            self._one.leave(self)

    async def _end(self, error: BaseException | None) -> None:
        for call in self.unfinished():
            await call.cancel(left(error) or CLOSED)
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
        mode: AskedMode = "active",
        agent: str | None = None,
        tools: Sequence[dict[str, Any]] = (),
        run: bool | str | None = None,
        settings: ContextSettings | None = None,
        strategy: Strategy | str | None = None,
        format: str = "openai_chat",
        provider: str | None = None,
        paths: bool | None = None,
    ) -> Request:
        """Return the messages of the next request; see `Views.context`."""
        self._within("turn.context")
        chosen = strategy_for(settings, strategy)
        if paths is None:
            paths = self._outputs.readable(permitted(tools, self._script.policy))

        def read() -> ContextView:
            view = self._views.context(
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
                paths=paths,
                **self._script.rendering(mode, run, agent),
            )
            self._outputs.provide(self._views.store, self._journal.conversation_id, view)
            return view

        view, note = await asyncio.to_thread(read), ""
        if view.due is not None and isinstance(chosen, LlmSummary):
            written = await asyncio.to_thread(chosen.write, view.due)
            note = written.failure and failed_summary(written.failure, chosen)
            if written.text:
                summary = summary_of(view.due, written.text, chosen)
                await self._journal.write([self._script.event(summary)])
                view = await asyncio.to_thread(read)
        self._script.rendered = request_of(view, self._journal.version, note)
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
        tools_from_messages: bool = False,
    ) -> AsyncLlmCall:
        """Return a model call to be entered around the request to the provider."""
        self._within("turn.llm_call")
        script = self._script.call(
            request,
            provider=provider,
            specification=specification,
            model=model,
            prompt=prompt,
            parameters=parameters,
            tools=tools,
            retry_of=retry_of,
            tools_from_messages=tools_from_messages,
        )
        self.last_call = AsyncLlmCall(
            self._journal, script, self._script.count, self._tell, self._within
        )
        return self.last_call

    def tool(self, call: Executable, *, idempotent: bool = False) -> AsyncToolCall:
        """Return a tool call to be entered around the tool's execution."""
        self._within("turn.tool")
        script = self._script.tool(call, self._journal.conversation_id, idempotent=idempotent)
        return AsyncToolCall(self._journal, script, self._outputs, self._within)

    async def deny(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed because it is not allowed."""
        await self._refuse(call, "denied", reason)

    async def skip(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed, for another reason."""
        await self._refuse(call, "skipped", reason)

    def max_steps(self) -> None:
        """Let the turn end as one that reached its limit of steps."""
        self._status = "max_steps"

    async def _tell(self, script: CallScript) -> None:
        """Record results that a request is the first to tell."""
        if not script.brings_results:
            return
        if script.answers.unread:
            stream = self._journal.conversation_id
            rows = await asyncio.to_thread(earlier_calls, self._views, stream)
            script.answers.earlier(rows)
        events = script.brought()
        if events:
            await finish(self._record_results(events))

    async def _record_results(self, events: list[NewEvent]) -> None:
        kept: list[Appended] = []
        await self._journal.record(events, kept.append)
        for done in kept:
            for event, told in zip(done.events, events, strict=True):
                content = getattr(told.data, "content", None)
                if self._outputs.wanted(event, content):
                    await asyncio.to_thread(self._outputs.keep, event, content)

    async def _refuse(self, call: Executable, status: str, reason: str) -> None:
        self._within("turn.skip" if status == "skipped" else "turn.deny")
        script = self._script.tool(call, self._journal.conversation_id)
        await self._journal.record(script.refuse(status, reason))
