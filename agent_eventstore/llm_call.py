"""A model call as it is recorded: the request before it is sent, its stream, what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, Self

from agent_eventstore.batching import AGAIN_S, BATCH_S, SELDOM_S, Stalls
from agent_eventstore.current import CallBlock
from agent_eventstore.journal import INTERRUPTIONS, Journal
from agent_eventstore.journal_aio import AsyncJournal, finish
from agent_eventstore.machines import CLOSED, AnswerText, CallScript
from agent_eventstore.session import JournalT
from eventstore import NewEvent
from eventstore.errors import ErrorType, Trace
from eventstore.events import TokenUsage
from eventstore.threads import to_thread

__all__ = ["AsyncLlmCall", "LlmCall"]


class _Call(CallBlock, Generic[JournalT]):
    """What both recorders' model calls share."""

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
        """Tell the turn what the call has used, once."""
        if not self._counted:
            self._counted = True
            self._ended(self._script.usage)


class LlmCall(_Call[Journal]):
    """A call of a model: its request, what streams back, its message or its error.

    Entering writes the request. Leaving writes the message, or the error with all that had
    arrived: an exception is classified and goes on to the caller, and a stream that ended before
    the provider said so is a ``network`` error.
    """

    form = "with turn.llm_call(...) as call:"

    def __init__(self, journal: Journal, script: CallScript, *told: Any) -> None:
        super().__init__(journal, script, *told)
        script.in_lines = journal.store.redact is not None
        self._stalls = Stalls(self._flush)

    def __enter__(self) -> Self:
        """Write the request, and ahead of it the results of tools that it is the first to tell."""
        self._enter_once()
        self._inside("turn.llm_call")
        self._prepare(self._script)
        try:
            done = self._journal.write(self._script.begin())
            self._script.begun(done, time.monotonic())
            self._state = "open"
            return self
        except INTERRUPTIONS as error:
            self._state = "over"
            self._journal.abandon(self._script.begin(), self._script.abandoned(error))
            raise

    def feed(self, chunk: Any) -> None:
        """Take a chunk of the stream, as the provider's SDK yields it or as a dict.

        Most chunks cost no write: see `agent_eventstore.batching`. A stream of a shape that nobody
        knows is warned about (`UnknownChunk`), and ends as an error.

        Raises:
            WriterFenced: A newer writer has opened the conversation.
        """
        self._taking("call.feed")
        with self._stalls.lock:
            self._stalls.check()
            self._write(self._script.feed(chunk, time.monotonic()))
            self._stalls.watch(self._script.due_at)

    def delta(self, text: str = "", *, reasoning: str = "") -> None:
        """Take a piece of an answer of any SDK, in words; leaving the block ends the answer.

        Raises:
            UnknownResponse: It is not text.
            InvalidEvent: The call was fed a provider's chunks.
        """
        self._taking("call.delta")
        with self._stalls.lock:
            self._stalls.check()
            self._write(self._script.say(text, reasoning, time.monotonic()))
            self._stalls.watch(self._script.due_at)

    def response(self, response: Any) -> None:
        """Take a whole response that was not streamed, an SDK's object or a dict.

        Raises:
            UnknownResponse: Nobody knows its shape, or it holds no answer; nothing is recorded.
        """
        self._taking("call.response")
        with self._stalls.lock:
            self._write(self._script.respond(response, time.monotonic()))

    @property
    def text(self) -> AnswerText[None]:
        """The message's text, once the call has ended well; ``call.text("...")`` tells it."""
        return AnswerText(self._said(), self.message)

    def message(
        self,
        text: str | None = None,
        *,
        reasoning: str | None = None,
        tool_calls: Sequence[Any] = (),
        usage: TokenUsage | dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """Take the whole answer of any SDK, in words; `answer` then is what was recorded.

        Args:
            text: What the model said; by default what `delta` has brought.
            reasoning: What it thought; likewise.
            tool_calls: The calls that it asks for: ``{"name", "arguments", "id"}``, or a provider's
                own objects.
            usage: The tokens, as a provider tells them: ``{"prompt_tokens", "completion_tokens"}``.
            finish_reason: Why the answer ended.

        Raises:
            UnknownResponse: One of them is not what it should be; nothing is recorded.
            InvalidEvent: The call was fed a provider's chunks.
        """
        self._taking("call.message")
        with self._stalls.lock:
            events = self._script.tell(
                time.monotonic(),
                said=text,
                reasoning=reasoning,
                tool_calls=tool_calls,
                usage=usage,
                finish_reason=finish_reason,
            )
            self._write(events)

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
        """Write the message or the error."""
        self._state = "over"
        self._end(error)

    def cancel(self, why: str = CLOSED) -> None:
        """Record that no more of the stream is wanted; an answer that is whole stands as it is."""
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
        if events:
            self._journal.record(events, self._script.recorded)


class AsyncLlmCall(_Call[AsyncJournal]):
    """`LlmCall` for an event loop."""

    form = "async with turn.llm_call(...) as call:"

    def __init__(self, journal: AsyncJournal, script: CallScript, *told: Any) -> None:
        super().__init__(journal, script, *told)
        script.in_lines = journal.store.store.redact is not None
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._failed: Exception | None = None
        self._again: float | None = None
        self._pause = AGAIN_S
        self._stopped = False

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
            await self._write(await to_thread(answer))

    async def __aexit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
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
