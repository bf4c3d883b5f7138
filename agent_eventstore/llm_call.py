"""A recorded model call: the request before it is sent, the stream, and the message or error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, Self

from agent_eventstore.batching import AGAIN_S, BATCH_S, SELDOM_S, StreamFlusher
from agent_eventstore.current import CallBlock
from agent_eventstore.journal import INTERRUPTIONS, Journal
from agent_eventstore.journal_aio import AsyncJournal
from agent_eventstore.machines import CLOSED, AnswerText, CallScript
from agent_eventstore.session import JournalT
from eventstore import NewEvent
from eventstore.errors import ErrorType, InvalidEvent, Traceback
from eventstore.events import TokenUsage
from eventstore.threads import finish, to_thread

__all__ = ["AsyncLlmCall", "LlmCall"]


class _CallBase(CallBlock, Generic[JournalT]):
    """The common base of `LlmCall` and `AsyncLlmCall`."""

    def __init__(
        self,
        journal: JournalT,
        script: CallScript,
        ended: Callable[[TokenUsage | None], None],
        prepare: Callable[[CallScript], Any],
        inside: Callable[[str], None],
        going: Callable[[], None],
    ) -> None:
        self._journal: JournalT = journal
        self._script = script
        self._ended = ended
        self._prepare = prepare
        self._inside = inside
        self._going = going
        self._counted = False

    def _count(self) -> None:
        """Add the call's usage to the turn's, once."""
        if not self._counted:
            self._counted = True
            self._ended(self._script.usage)


class LlmCall(_CallBase[Journal]):
    """A model call: its request, the streamed chunks, and its message or error.

    Entering writes the request. Leaving writes the message, or the error with the partial answer.
    An exception is classified and propagates to the caller. A stream that ends before the provider
    marks its end is a ``network`` error.
    """

    _form = "with turn.llm_call(...) as call:"

    def __init__(self, journal: Journal, script: CallScript, *options: Any) -> None:
        super().__init__(journal, script, *options)
        script.in_lines = journal.store.redact is not None
        self._stalls = StreamFlusher(self._flush)

    def __enter__(self) -> Self:
        """Write the request, preceded by the tool results that only its messages report."""
        self._enter_once()
        self._inside("turn.llm_call")
        self._prepare(self._script)
        try:
            done = self._journal.write(self._script.begin())
            self._script.started(done, time.monotonic())
            self._state = "open"
            return self
        except INTERRUPTIONS as error:
            self._state = "over"
            self._journal.abandon(self._script.begin(), self._script.abandoned(error))
            raise
        except Exception as error:
            self._script.tracing.fail(error)
            raise

    def feed(self, chunk: Any) -> None:
        """Record a chunk of the stream, as the provider's SDK yields it or as a dict.

        Most chunks cost no write; see `agent_eventstore.batching`. Chunks of an unknown format
        cause the warning `UnknownChunk`, and the call ends as an error.

        Raises:
            WriterFenced: A newer writer has opened the conversation.
        """
        self._taking("call.feed")
        with self._stalls.lock:
            self._stalls.check()
            self._write(self._script.feed(chunk, time.monotonic()))
            self._stalls.watch(self._script.due_at)

    def delta(self, text: str = "", *, reasoning: str = "") -> None:
        """Record a piece of an answer as text, for any SDK; leaving the block ends the answer.

        Raises:
            UnknownResponse: The piece is not text.
            InvalidEvent: The call was fed a provider's chunks.
        """
        self._taking("call.delta")
        with self._stalls.lock:
            self._stalls.check()
            self._write(self._script.say(text, reasoning, time.monotonic()))
            self._stalls.watch(self._script.due_at)

    def response(self, response: Any) -> None:
        """Record a whole response that was not streamed: an SDK's object or a dict.

        Raises:
            UnknownResponse: Its format is unknown, or it holds no answer; nothing is recorded.
        """
        self._taking("call.response")
        with self._stalls.lock:
            self._write(self._script.respond(response, time.monotonic()))

    @property
    def text(self) -> AnswerText[None]:
        """The text of the successful answer; ``call.text("...")`` records one as the answer."""
        return AnswerText(self._current_text(), self.message)

    def message(
        self,
        text: str | None = None,
        *,
        reasoning: str | None = None,
        tool_calls: Sequence[Any] = (),
        usage: TokenUsage | dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """Record the whole answer of any SDK, given by its parts; `answer` then returns it.

        Args:
            text: The model's text; by default the pieces passed to `delta`.
            reasoning: The model's reasoning; the same default.
            tool_calls: The model's tool calls: ``{"name", "arguments", "id"}``, or a provider's
                own objects.
            usage: The token counts, as providers report them:
                ``{"prompt_tokens", "completion_tokens"}``.
            finish_reason: Why the answer ended.

        Raises:
            UnknownResponse: An argument has an unknown format; nothing is recorded.
            InvalidEvent: The call was fed a provider's chunks.
        """
        self._taking("call.message")
        with self._stalls.lock:
            events = self._script.tell(
                time.monotonic(),
                content=text,
                reasoning=reasoning,
                tool_calls=tool_calls,
                usage=usage,
                finish_reason=finish_reason,
            )
            self._write(events)

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Write the message or the error."""
        self._state = "over"
        self._end(error)

    def cancel(self, why: str = CLOSED) -> None:
        """Record that the rest of the stream is not wanted; a complete answer is unaffected."""
        self._end(None, cancelled=why)

    def _end(self, error: BaseException | None, *, cancelled: str | None = None) -> None:
        with self._stalls.lock:
            self._stalls.stop()
            events = self._script.end(time.monotonic(), error, cancelled=cancelled)
            self._count()
            self._write(events)
        if error is None:
            self._stalls.check()

    def _flush(self) -> bool:
        return self._journal.offer(self._script.flush(time.monotonic()), self._script.recorded)

    def _write(self, events: list[NewEvent]) -> None:
        if not events:
            return
        try:
            self._journal.record(events, self._script.recorded)
        except InvalidEvent as error:
            self._journal.record(self._script.refused(error, time.monotonic()))
            raise


class AsyncLlmCall(_CallBase[AsyncJournal]):
    """`LlmCall` for an event loop."""

    _form = "async with turn.llm_call(...) as call:"

    def __init__(self, journal: AsyncJournal, script: CallScript, *options: Any) -> None:
        super().__init__(journal, script, *options)
        script.in_lines = journal.store.store.redact is not None
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._failed: Exception | None = None
        self._again: float | None = None
        self._pause = AGAIN_S
        self._stopped = False

    async def __aenter__(self) -> Self:
        """Write the request, preceded by the tool results that only its messages report."""
        self._enter_once()
        self._inside("turn.llm_call")
        await self._prepare(self._script)
        try:
            done = await self._journal.write(self._script.begin())
        except asyncio.CancelledError as error:
            self._state = "over"
            await self._journal.abandon(self._script.begin(), self._script.abandoned(error))
            raise
        except Exception as error:
            self._script.tracing.fail(error)
            raise
        self._state = "open"
        self._script.started(done, time.monotonic())
        return self

    async def feed(self, chunk: Any) -> None:
        """Record a chunk of the stream; see `LlmCall.feed`."""
        self._taking("call.feed")
        self._check()
        async with self._lock:
            events = self._script.feed(chunk, time.monotonic())
            self._watch()
            if events:
                await finish(self._write(events))

    async def delta(self, text: str = "", *, reasoning: str = "") -> None:
        """Record a piece of an answer as text; see `LlmCall.delta`."""
        self._taking("call.delta")
        self._check()
        async with self._lock:
            events = self._script.say(text, reasoning, time.monotonic())
            self._watch()
            if events:
                await finish(self._write(events))

    async def response(self, response: Any) -> None:
        """Record a whole response that was not streamed; see `LlmCall.response`."""
        self._taking("call.response")
        await finish(self._take(partial(self._script.respond, response, time.monotonic())))

    @property
    def text(self) -> AnswerText[Awaitable[None]]:
        """The text of the successful answer; ``await call.text("...")`` records one."""
        return AnswerText(self._current_text(), self.message)

    async def message(
        self,
        text: str | None = None,
        *,
        reasoning: str | None = None,
        tool_calls: Sequence[Any] = (),
        usage: TokenUsage | dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """Record the whole answer of any SDK, given by its parts; see `LlmCall.message`."""
        self._taking("call.message")
        tell = partial(
            self._script.tell,
            time.monotonic(),
            content=text,
            reasoning=reasoning,
            tool_calls=tool_calls,
            usage=usage,
            finish_reason=finish_reason,
        )
        await finish(self._take(tell))

    async def _take(self, answer: Callable[[], list[NewEvent]]) -> None:
        async with self._lock:
            # In a thread: estimating the tokens of an answer without usage is slow.
            await self._write(await to_thread(answer))

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """Write the message or the error, even if the task has been cancelled."""
        self._state = "over"
        await finish(self._end(error))

    async def cancel(self, why: str = CLOSED) -> None:
        """Record that the rest of the stream is not wanted; see `LlmCall.cancel`."""
        await finish(self._end(None, cancelled=why))

    async def _end(self, error: BaseException | None, *, cancelled: str | None = None) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        async with self._lock:
            now = time.monotonic()
            if self._script.unreported:
                await to_thread(self._script.estimate)
            events = self._script.end(now, error, cancelled=cancelled)
            self._count()
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
        """The earlier of the next batch's due time and the next retry of a failed write."""
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
            # Another task is writing, and may have written the batch that is due: look later.
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
        if not events:
            return
        try:
            await self._journal.record(events, self._script.recorded)
        except InvalidEvent as error:
            await self._journal.record(self._script.refused(error, time.monotonic()))
            raise
