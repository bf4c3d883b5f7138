"""The recorder for event loops: `agent_eventstore.turn` with ``await``.

It has the same names, writes the same events, and never blocks the event loop. A timer of the loop
writes the pending batch of a stalled stream. A cancelled task still records how its blocks ended.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Self, Unpack

from agent_eventstore.current import Block, TurnBlock
from agent_eventstore.errors import NotCommitted
from agent_eventstore.journal import patiently
from agent_eventstore.journal_aio import AsyncJournal
from agent_eventstore.llm_call import AsyncLlmCall
from agent_eventstore.machines import CLOSED, CallScript, Executable, RequestedCall
from agent_eventstore.requests import Request, failed_summary, request_of, summary_of
from agent_eventstore.resuming import earlier_calls
from agent_eventstore.session import posted_before
from agent_eventstore.stops import stopped_or_gone
from agent_eventstore.tool_call import AsyncToolBlock
from eventstore import Appended, NewEvent
from eventstore.arguments import require_known
from eventstore.errors import ErrorType, Traceback
from eventstore.threads import finish, to_thread
from projections.context.compression import LlmSummary
from projections.context.settings import ContextOptions, strategy_for

__all__ = ["AsyncToolBlock", "AsyncTurn"]


class AsyncTurn(TurnBlock[AsyncLlmCall, AsyncJournal, AsyncToolBlock]):
    """`Turn` for an event loop."""

    _form = "async with conversation.turn(...) as turn:"
    _model_call, _tool_call = AsyncLlmCall, AsyncToolBlock
    _loop: asyncio.AbstractEventLoop | None = None
    _task: weakref.ref[asyncio.Task[Any]] | None = None
    _cancelled = False

    async def __aenter__(self) -> Self:
        """Write the turn's start and the input."""
        if self.outcome is not None:
            return self
        self._enter_once()
        if not self._started and await self._posted_before():
            return self
        await self._start()
        self._become_current()
        self._loop, task = asyncio.get_running_loop(), asyncio.current_task()
        # Weak, to avoid a reference cycle: a live answer refers to its call and this turn, and the
        # traceback of a cancelled task refers to the frames that hold the answer. A strong
        # reference would keep a generator that a server drops from ever being closed.
        self._task = None if task is None else weakref.ref(task)
        return self

    async def _start(self) -> None:
        """Write the turn's start and the input, unless `begin` has."""
        self._session.one_turn.take(self, self.number, self._journal.conversation_id)
        started: list[NewEvent] = []
        try:
            if self._plan is None:
                started = self._beginning()
            else:
                started = await to_thread(self._beginning)
            if self._started:
                await self._journal.settle(started)
            elif self._connection is not None:
                await self._journal.write_within(self._connection, started)
            else:
                await self._journal.write(started)
        except BaseException as error:
            within = self._connection is not None and not self._started
            if started and not within and isinstance(error, asyncio.CancelledError):
                self._step_back()
                self._session.turn_ended(None)
                await self._journal.abandon(
                    started, self._script.end(time.monotonic(), error=error)
                )
            else:
                self._script.tracing.fail(error)
            self._session.one_turn.leave(self)
            raise

    async def begin(self) -> None:
        """Write the turn's start and the input now; see `Turn.begin`."""
        self._require_beginnable()
        if await self._posted_before():
            return
        if self._connection is None:
            await self._start()
        else:
            try:
                await self._journal.write_within(self._connection, self._beginning())
            except BaseException as error:
                self._script.tracing.fail(error)
                raise
        self._started = True

    async def _posted_before(self) -> bool:
        if (posted := self._script.message_id) is None:
            return False
        views, stream = self._session.views, self._session.id
        look = partial(posted_before, views, stream, posted, retry=self._retries)
        return self._repeat(await to_thread(patiently, look))

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> bool | None:
        """Write the turn's end; suppress the exception of this turn's own stop."""
        if self.outcome is not None:
            return None
        self._step_back()
        cancelled: asyncio.CancelledError | None = None
        self._session.leaving(error)
        try:
            await finish(self._end(self._cause(error)))
        except NotCommitted:
            if error is None:
                raise
        except asyncio.CancelledError as raised:
            cancelled = raised
        finally:
            self._session.leaving(error)
            self._session.one_turn.leave(self)
        if cancelled is not None and not self._taken_back(cancelled):
            raise cancelled
        return self._is_own_stop(error) or self._taken_back(error) or None

    def _interrupt(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        """Cancel the turn's task, unless it has seen the stop already."""
        task = None if self._task is None else self._task()
        if task is not None and self._state == "open" and not self._stop_requested:
            self._stop_requested = self._cancelled = True
            task.cancel(self._stop)

    def _taken_back(self, error: BaseException | None) -> bool:
        """Undo a cancellation that `_cancel` requested; return whether no other is pending."""
        if not self._cancelled or not isinstance(error, asyncio.CancelledError):
            return False
        self._cancelled = False
        task, own = asyncio.current_task(), None if self._task is None else self._task()
        return task is not None and task is own and task.uncancel() == 0

    async def _end(self, error: BaseException | None) -> None:
        for call in self._unfinished():
            await call.cancel(stopped_or_gone(error) or CLOSED)
        events = self._script.end(time.monotonic(), self._status, error)
        self._session.turn_ended(self._script.usage)
        await self._journal.record(events)
        if error is None and self._session.titling is not None:
            titled = await asyncio.to_thread(self._session.titled, self._script.input)
            await self._journal.record(titled)
        if error is None and self._session.upkeep.due(self._journal.version):
            await asyncio.to_thread(self._session.upkeep.after_turn, self._journal.version)

    async def context(self, **options: Unpack[ContextOptions]) -> Request:
        """Return the next request; see `Turn.context`."""
        require_known(options, ContextOptions)
        self._within("turn.context")
        await self._journal.settle(self._script.begin(self._message))
        chosen = strategy_for(options.get("strategy"), options.get("settings"))
        read = self._rendering({**options, "strategy": chosen})
        view, note = await to_thread(patiently, read), ""
        if view.due is not None and isinstance(chosen, LlmSummary):
            written = await asyncio.to_thread(chosen.write, view.due)
            note = written.failure and failed_summary(written.failure, chosen)
            if written.text:
                summary = summary_of(view.due, written.text, chosen)
                await self._journal.write([self._script.event(summary)])
                view = await to_thread(patiently, read)
        self._script.rendered = request_of(view, self._journal.version, note)
        return self._script.rendered

    async def deny(self, call: Executable, reason: str) -> None:
        """Record that a tool call is not executed because it is not allowed; see `Turn.deny`."""
        await self._refuse(call, "denied", reason)

    async def skip(self, call: Executable, reason: str) -> None:
        """Record that a tool call is not executed, for any other reason; see `Turn.deny`."""
        await self._refuse(call, "skipped", reason)

    async def replace(self, call: RequestedCall, rest: Sequence[RequestedCall] = ()) -> bool:
        """End the turn so that other work can run; see `Turn.replace`."""
        self._within("turn.replace")
        script = self._script.tool(call, self._journal.conversation_id, idempotent=True)
        script.require_open()
        if script.refusal is not None:
            return False
        await self._journal.write(self._script.replace(time.monotonic(), script, rest))
        self._script.ended = True
        return True

    async def _tell(self, script: CallScript) -> None:
        """Record the tool results that the log learns only from this request."""
        if not script.brings_results:
            return
        if script.answers.unread:
            stream = self._journal.conversation_id
            rows = await to_thread(earlier_calls, self._session.views, stream)
            script.answers.earlier(rows)
        events = script.take_pending()
        if events:
            await finish(self._record_results(events))

    async def _record_results(self, events: list[NewEvent]) -> None:
        recorded: list[Appended] = []
        await self._journal.record(events, recorded.append)
        for done in recorded:
            for event, new_event in zip(done.events, events, strict=True):
                content = getattr(new_event.data, "content", None)
                if self._session.outputs.wanted(event, content):
                    await to_thread(self._session.outputs.keep, event, content)

    async def _refuse(self, call: Executable, status: str, reason: str) -> None:
        Block._within(self, "turn.skip" if status == "skipped" else "turn.deny")
        script = self._script.tool(call, self._journal.conversation_id)
        script.require_open()
        await self._journal.record(script.refuse(status, reason))
        self._going()
