"""`AsyncAgentSession`: `AgentSession` for event loops.

The session runs in a thread, one turn at a time. Awaitables (the model's stream, tools that are
coroutines) are awaited in the event loop. The agent loop therefore exists once, not twice.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Self, Unpack, cast
from uuid import UUID

from agent_eventstore.agents.agent_options import AgentOptions
from agent_eventstore.agents.agent_session import AgentSession
from agent_eventstore.agents.turn_results import TurnResult
from agent_eventstore.inputs import UserInput
from agent_eventstore.stops import BY_SOMEBODY
from eventstore import AsyncEventStore, EventStore
from eventstore.errors import ErrorType, Traceback
from eventstore.events import JsonObject, TokenUsage
from eventstore.ids import StreamId
from eventstore.threads import finish, made_in_thread, to_thread

__all__ = ["AsyncAgentSession"]


class _Run:
    """A call that runs in a thread: whether it should stop, and what it waits for."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.waiting: Future[Any] | None = None

    def stop(self) -> None:
        """Stop the call at its next check, or now if it waits for an awaitable."""
        self.stopped.set()
        if self.waiting is not None:
            self.waiting.cancel()


class _Bridge:
    """Lets threads wait for awaitables in the event loop, until they are told to stop.

    A second turn is refused while one runs, and may be cancelled: so each thread has its own run.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._here = threading.local()

    def options(self, options: AgentOptions) -> AgentOptions:
        """Return the options with this bridge; the listener is called in the event loop."""
        bridged: AgentOptions = {**options, "settle": self.settle, "check": self.check}
        if (listener := options.get("listener")) is not None:
            bridged["listener"] = lambda kind, text: cast(
                None, self._loop.call_soon_threadsafe(listener, kind, text)
            )
        return bridged

    @property
    def stopped(self) -> bool:
        """Whether this thread's turn should stop."""
        return self._run.stopped.is_set()

    @property
    def _run(self) -> _Run:
        run: _Run = self._here.run
        return run

    def check(self) -> None:
        """Raise if this thread's turn should stop."""
        if self.stopped:
            raise asyncio.CancelledError

    def settle(self, value: Any) -> Any:
        """Return the awaited value, or the pieces of an asynchronous stream."""
        if inspect.isawaitable(value):
            value = self._wait(value)
        return _Pieces(self, value) if hasattr(value, "__anext__") else value

    def _wait(self, value: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await value

        run = self._run
        run.waiting = waiting = self.begin(awaited())
        if run.stopped.is_set():
            waiting.cancel()
        try:
            return waiting.result()
        except CancelledError:  # the futures' error, which is an ordinary exception
            self._loop.call_soon_threadsafe(_close_unstarted, value)
            raise asyncio.CancelledError from None

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Begin work in the event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run in a thread; if the task is cancelled, stop the thread first and wait for it."""
        run = _Run()

        def running() -> Any:
            self._here.run = run
            return work()

        thread = asyncio.ensure_future(asyncio.to_thread(running))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            run.stop()
            await finish(asyncio.wait({thread}))  # also if the task is cancelled again meanwhile
            raise


def _close_unstarted(value: Awaitable[Any]) -> None:
    """Close a coroutine that was cancelled before it began; Python would warn about it."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        value.close()


class _Pieces:
    """The pieces of an asynchronous stream, for a thread."""

    def __init__(self, bridge: _Bridge, stream: Any) -> None:
        self._bridge, self._stream = bridge, stream

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            # A separate end marker: a coroutine cannot raise StopIteration.
            return await anext(self._stream, _END)

        piece = self._bridge.settle(following())
        if piece is _END:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Close the stream, if it can be closed; a turn that should stop does not wait for it."""
        close = getattr(self._stream, "close", None) or getattr(self._stream, "aclose", None)
        if close is None:
            return
        if self._bridge.stopped:
            self._bridge.begin(_closed(close))
        else:
            self._bridge.settle(close())


async def _closed(close: Callable[[], Any]) -> None:
    with suppress(Exception):  # such as that of a generator that its cancellation is closing
        if inspect.isawaitable(closing := close()):
            await closing


_END = object()


class AsyncAgentSession:
    """An agent in a conversation, with the names and arguments of `AgentSession`.

    It has no `abort`, `close_call`, `result_of` and `fork`: use a synchronous session for these.
    Model clients may be asynchronous, and tools may be coroutines. Cancelling a task stops its
    turn: the text so far is kept, and the turn is ``cancelled`` in the log.
    """

    def __init__(self, session: AgentSession, bridge: _Bridge) -> None:
        self._session, self._bridge = session, bridge

    @classmethod
    async def create(
        cls,
        store: EventStore | AsyncEventStore,
        *,
        model: Any,
        config: JsonObject | None = None,
        conversation: dict[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> Self:
        """Begin a conversation and its first session; see `AgentSession.create`."""
        bridge = _Bridge()
        bridged = bridge.options(options)
        session = await made_in_thread(
            AgentSession.create,
            _close_unused,
            _plain(store),
            model=model,
            config=config,
            conversation=conversation,
            **bridged,
        )
        return cls(session, bridge)

    @classmethod
    async def open(
        cls,
        store: EventStore | AsyncEventStore,
        conversation_id: StreamId,
        *,
        model: Any,
        config: JsonObject | None = None,
        conversation: dict[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> Self:
        """Open a conversation again; see `AgentSession.open`."""
        bridge = _Bridge()
        bridged = bridge.options(options)
        session = await made_in_thread(
            AgentSession.open,
            _close_unused,
            _plain(store),
            conversation_id,
            model=model,
            config=config,
            conversation=conversation,
            **bridged,
        )
        return cls(session, bridge)

    @property
    def id(self) -> UUID:
        """The conversation's id, with which it can be opened again."""
        return self._session.id

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.session_id

    @property
    def tokens(self) -> TokenUsage | None:
        """The tokens of the session's turns so far; not ``reported`` if some are estimates."""
        return self._session.tokens

    async def run_turn(self, message: UserInput, *, message_id: str | None = None) -> TurnResult:
        """Answer an input; see `AgentSession.run_turn`."""
        result: TurnResult = await self._bridge.run(
            lambda: self._session.run_turn(message, message_id=message_id)
        )
        return result

    async def go_on(self) -> TurnResult | None:
        """Resume the last turn; see `AgentSession.go_on`."""
        result: TurnResult | None = await self._bridge.run(self._session.go_on)
        return result

    async def close(self, reason: str | None = None) -> None:
        """End the session; closing again does nothing."""
        await finish(to_thread(self._session.close, reason))

    async def __aenter__(self) -> Self:
        """Return the session itself."""
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """End the session."""
        await finish(to_thread(self._session.__exit__, kind, error, trace))


def _close_unused(session: AgentSession) -> None:
    """Close a session whose opening was cancelled meanwhile."""
    session.close(BY_SOMEBODY)


def _plain(store: EventStore | AsyncEventStore) -> EventStore:
    return store if isinstance(store, EventStore) else store.store
