"""Recorded calls of a client, synchronous or not: an answer, a stream, or an SDK's helper."""

from __future__ import annotations

import re
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar

from agent_eventstore.clients.client_requests import (
    GOES_ON,
    UNKNOWN,
    Body,
    ClientRequest,
    Guard,
    remember,
)
from agent_eventstore.current import CallT, dropped, hold, is_over
from agent_eventstore.errors import UnknownResponse
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from agent_eventstore.machines import CLOSED
from agent_eventstore.stops import stopped_or_gone
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncTurn
from eventstore.errors import ErrorType, Traceback

__all__ = [
    "AsyncRecordedManager",
    "AsyncRecordedStream",
    "AsyncTap",
    "EndMark",
    "RecordedManager",
    "RecordedStream",
    "Tap",
    "answer_in",
    "body_of",
    "call",
    "call_async",
]


_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")


_WHOLE = re.compile(rb"(?:\n\r?\n|\r\r)\Z")


_LONGEST_MARK = 20


class _Tapped(Generic[CallT]):
    """The base of both taps: a body and its call."""

    def __init__(self, http: Any, recorded: CallT, turn: Any, guard: Guard) -> None:
        # Weak, since the response refers to the tap: both are freed together.
        self._http = weakref.ref(http)
        self._body = body_of(http)
        self._recorded = recorded
        self._turn = turn
        self._guard = guard
        self._reading = False
        self._ended = False
        hold(turn, recorded, http)

    def _chunks(self, passed: bytes) -> Iterator[Any]:
        """Yield the chunks to record from passing bytes; the call may end in between."""
        if self._ended:  # a cached body is read again
            return
        for chunk in self._body.feed(passed):
            if is_over(self._recorded):
                self._guard.tell(GOES_ON)
                return
            yield chunk


class Tap(_Tapped[LlmCall]):
    """Records a response's body while the caller reads it.

    Args:
        http: The response of the HTTP library, whose body has not been read.
        recorded: The call that it answers.
        turn: The turn of the call.
        guard: Reports chunks that arrive after the turn's end.
    """

    def __init__(self, http: Any, recorded: LlmCall, turn: Turn, guard: Guard) -> None:
        super().__init__(http, recorded, turn, guard)
        http.iter_bytes, http.close = self._iter_bytes, self._close

    def _iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        http: Any = self._http()
        source = type(http).iter_bytes(http, chunk_size)
        try:
            while True:
                self._reading = True
                try:
                    passed = next(source, None)
                finally:
                    self._reading = False
                if passed is None:
                    self._whole()
                    return
                for chunk in self._chunks(passed):
                    self._recorded.feed(chunk)
                yield passed
        except GeneratorExit:
            self._cancel()
            raise
        except BaseException as error:
            self._ended = True
            self._recorded.__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            source.close()

    def _whole(self) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            if not self._body.streamed and not is_over(self._recorded):
                self._recorded.response(self._body.whole())
        except UnknownResponse:
            self._guard.tell(UNKNOWN)
        finally:
            self._recorded.script.closed = self._body.is_whole
            self._recorded.__exit__(None, None, None)

    def _close(self) -> None:
        http: Any = self._http()
        try:
            type(http).close(http)
        finally:
            # The HTTP library itself closes at the end of the body, before the last bytes pass.
            if not self._reading:
                self._cancel()

    def _cancel(self) -> None:
        if not self._ended:
            self._ended = True
            self._recorded.cancel()


class EndMark:
    """Looks for the end of a stream in a response's bytes as an SDK reads them, which hides it.

    Args:
        http: The response of the HTTP library; anything else cannot be looked into.

    Attributes:
        seen: Whether the mark ``[DONE]`` has come.
    """

    def __init__(self, http: Any) -> None:
        self.seen = False
        self._tail = b"\n"
        known = hasattr(http, "iter_bytes") and hasattr(http, "aiter_bytes")
        self._read = False
        if known and body_of(http).streamed:
            # Weak, since the response refers to its own methods then.
            self._http = weakref.ref(http)
            http.iter_bytes, http.aiter_bytes = self._iter_bytes, self._aiter_bytes

    @property
    def closed(self) -> bool:
        """Whether a stream that its reader has read to the end has not ended within an event."""
        return self.seen or not self._read or _WHOLE.search(self._tail) is not None

    def _iter_bytes(self, *args: Any, **options: Any) -> Iterator[bytes]:
        http: Any = self._http()
        for passed in type(http).iter_bytes(http, *args, **options):
            self._look(passed)
            yield passed

    async def _aiter_bytes(self, *args: Any, **options: Any) -> AsyncIterator[bytes]:
        http: Any = self._http()
        async for passed in type(http).aiter_bytes(http, *args, **options):
            self._look(passed)
            yield passed

    def _look(self, passed: bytes) -> None:
        self._read = self._read or bool(passed)
        if not self.seen:
            text = self._tail + passed
            self.seen = _DONE.search(text) is not None
            self._tail = text[-_LONGEST_MARK:]


def body_of(http: Any) -> Body:
    """Return the parser of a response's body."""
    return Body(str(http.headers.get("content-type", "")))


def answer_in(http: Any) -> tuple[list[Any], list[Any]]:
    """Return the chunks of a body that was read before the response was returned, or its answer.

    An HTTP client's hook that logs bodies does this, as does a transport in a product's tests.
    """
    body = body_of(http)
    chunks = body.feed(http.content)
    return chunks, [] if body.streamed else [body.whole()]


class AsyncTap(_Tapped[AsyncLlmCall]):
    """`Tap` for an event loop."""

    def __init__(self, http: Any, recorded: AsyncLlmCall, turn: AsyncTurn, guard: Guard) -> None:
        super().__init__(http, recorded, turn, guard)
        http.aiter_bytes, http.aclose = self._aiter_bytes, self._aclose

    async def _aiter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        http: Any = self._http()
        source = type(http).aiter_bytes(http, chunk_size)
        try:
            while True:
                self._reading = True
                try:
                    passed = await anext(source, None)
                finally:
                    self._reading = False
                if passed is None:
                    await self._whole()
                    return
                for chunk in self._chunks(passed):
                    await self._recorded.feed(chunk)
                yield passed
        except GeneratorExit:
            await self._cancel()
            raise
        except BaseException as error:
            self._ended = True
            await self._recorded.__aexit__(type(error), error, error.__traceback__)
            raise
        finally:
            await source.aclose()

    async def _whole(self) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            if not self._body.streamed and not is_over(self._recorded):
                await self._recorded.response(self._body.whole())
        except UnknownResponse:
            self._guard.tell(UNKNOWN)
        finally:
            self._recorded.script.closed = self._body.is_whole
            await self._recorded.__aexit__(None, None, None)

    async def _aclose(self) -> None:
        http: Any = self._http()
        try:
            await type(http).aclose(http)
        finally:
            # The HTTP library itself closes at the end of the body, before the last bytes pass.
            if not self._reading:
                await self._cancel()

    async def _cancel(self) -> None:
        if not self._ended:
            self._ended = True
            await self._recorded.cancel()


C = TypeVar("C", LlmCall, AsyncLlmCall)


class _Recorded(Generic[C]):
    """The base of both recorded streams; other attributes are those of the SDK's stream."""

    def __init__(self, stream: Any, recorded: C, turn: Any, guard: Guard) -> None:
        self._stream = stream
        self._mark = EndMark(getattr(stream, "response", None))
        self._recorded: C = recorded
        # A strong reference: while the stream lives, its turn must not be garbage-collected.
        self._turn = turn
        self._guard = guard
        hold(turn, recorded, self)
        remember(self, recorded)

    def _ended(self) -> None:
        """Note that the stream has been read to its end; one that breaks raises."""
        script = self._recorded.script
        script.closed, script.marked = self._mark.closed, self._mark.seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Managed:
    """The base of both recorded context managers."""

    _stream: ClassVar[Callable[..., Any]]
    _tap: ClassVar[Callable[..., Any]]

    def __init__(
        self, turn: Any, request: ClientRequest, make: Callable[[], Any], guard: Guard
    ) -> None:
        self._turn = turn
        self._guard = guard
        self._request = request
        self._make = make
        self._recorded: Any = None

    def _watched(self, stream: Any) -> Any:
        """Return the SDK's helper or response, with the chunks that pass through it recorded."""
        arguments = self._recorded, self._turn, self._guard
        if hasattr(stream, "http_response"):
            self._tap(stream.http_response, *arguments)
        elif not hasattr(stream, "_raw_stream"):
            return self._stream(stream, *arguments)
        else:
            # All other ways to read the helper (text_stream, get_final_message, ...) use this.
            stream._raw_stream = self._stream(stream._raw_stream, *arguments)
        remember(stream, self._recorded)
        return stream


def call(turn: Turn, request: ClientRequest, send: Callable[[], Any], guard: Guard) -> Any:
    """Send a request; return the SDK's result: a recorded answer, or a stream to be recorded."""
    recorded = begin(turn, request)
    try:
        result = send()
    except BaseException as error:
        recorded.__exit__(type(error), error, error.__traceback__)
        raise
    if hasattr(type(result), "__next__"):
        return RecordedStream(result, recorded, turn, guard)
    remember(result, recorded)
    http = getattr(result, "http_response", None)
    if http is not None and not http.is_closed:
        Tap(http, recorded, turn, guard)
        return result
    there = answer_in(http) if http is not None else ([], [result])
    answered(recorded, *there, guard)
    return result


def answered(recorded: LlmCall, chunks: list[Any], answers: list[Any], guard: Guard) -> None:
    """Record an answer that has already arrived, and end its call."""
    try:
        for chunk in chunks:
            recorded.feed(chunk)
        for answer in answers:
            recorded.response(answer)
    except UnknownResponse:
        guard.tell(UNKNOWN)
    finally:
        recorded.__exit__(None, None, None)


def begin(turn: Turn, request: ClientRequest) -> LlmCall:
    """Record a request, after ending the calls whose streams were garbage-collected."""
    for call in dropped(turn):
        call.cancel()
    return turn.llm_call(**request.facts).__enter__()


class RecordedStream(_Recorded[LlmCall]):
    """An SDK's stream whose chunks are recorded as they pass; otherwise it is unchanged."""

    def __iter__(self) -> Self:
        """Return the stream itself: a second loop continues where the first one stopped."""
        return self

    def __next__(self) -> Any:
        """Return the next chunk, unchanged."""
        try:
            chunk = next(self._stream)
        except StopIteration:
            self._ended()
            self._recorded.__exit__(None, None, None)
            raise
        except BaseException as error:
            self._recorded.__exit__(type(error), error, error.__traceback__)
            raise
        if is_over(self._recorded):
            self._guard.tell(GOES_ON)
        else:
            self._recorded.feed(chunk)
        return chunk

    def close(self) -> None:
        """Close the response; an incomplete answer is recorded as cancelled."""
        try:
            self._stream.close()
        finally:
            self._recorded.cancel()

    def __enter__(self) -> Self:
        """Return the stream itself."""
        self._stream.__enter__()
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Close the response."""
        try:
            self._stream.__exit__(kind, error, trace)
        finally:
            self._recorded.cancel(stopped_or_gone(error) or CLOSED)


class RecordedManager(_Managed):
    """The context manager that ``stream()`` or ``with_streaming_response`` of an SDK returns."""

    _stream, _tap = RecordedStream, Tap

    def __enter__(self) -> Any:
        """Send the request and return the SDK's own helper, or its response."""
        self._recorded = begin(self._turn, self._request)
        try:
            self._manager = self._make()
            stream = self._manager.__enter__()
        except BaseException as error:
            self._recorded.__exit__(type(error), error, error.__traceback__)
            raise
        http = getattr(stream, "http_response", None)
        if http is None or not http.is_closed:
            return self._watched(stream)
        remember(stream, self._recorded)
        answered(self._recorded, *answer_in(http), self._guard)
        return stream

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Close the response; an incomplete answer is recorded as cancelled."""
        try:
            self._manager.__exit__(kind, error, trace)
        finally:
            self._recorded.cancel(stopped_or_gone(error) or CLOSED)


async def call_async(
    turn: AsyncTurn, request: ClientRequest, send: Callable[[], Any], guard: Guard
) -> Any:
    """Send a request; return the SDK's result: a recorded answer, or a stream to be recorded."""
    recorded = await begin_async(turn, request)
    try:
        result = await send()
    except BaseException as error:
        await recorded.__aexit__(type(error), error, error.__traceback__)
        raise
    if hasattr(type(result), "__anext__"):
        return AsyncRecordedStream(result, recorded, turn, guard)
    remember(result, recorded)
    http = getattr(result, "http_response", None)
    if http is not None and not http.is_closed:
        AsyncTap(http, recorded, turn, guard)
        return result
    there = answer_in(http) if http is not None else ([], [result])
    await answered_async(recorded, *there, guard)
    return result


async def answered_async(
    recorded: AsyncLlmCall, chunks: list[Any], answers: list[Any], guard: Guard
) -> None:
    """Record an answer that has already arrived, and end its call."""
    try:
        for chunk in chunks:
            await recorded.feed(chunk)
        for answer in answers:
            await recorded.response(answer)
    except UnknownResponse:
        guard.tell(UNKNOWN)
    finally:
        await recorded.__aexit__(None, None, None)


async def begin_async(turn: AsyncTurn, request: ClientRequest) -> AsyncLlmCall:
    """Record a request, after ending the calls whose streams were garbage-collected."""
    for call in dropped(turn):
        await call.cancel()
    return await turn.llm_call(**request.facts).__aenter__()


class AsyncRecordedStream(_Recorded[AsyncLlmCall]):
    """An SDK's stream whose chunks are recorded as they pass; otherwise it is unchanged."""

    def __aiter__(self) -> Self:
        """Return the stream itself: a second loop continues where the first one stopped."""
        return self

    async def __anext__(self) -> Any:
        """Return the next chunk, unchanged."""
        try:
            chunk = await anext(self._stream)
        except StopAsyncIteration:
            self._ended()
            await self._recorded.__aexit__(None, None, None)
            raise
        except BaseException as error:
            await self._recorded.__aexit__(type(error), error, error.__traceback__)
            raise
        if is_over(self._recorded):
            self._guard.tell(GOES_ON)
        else:
            await self._recorded.feed(chunk)
        return chunk

    async def close(self) -> None:
        """Close the response; an incomplete answer is recorded as cancelled."""
        try:
            await self._stream.close()
        finally:
            await self._recorded.cancel()

    async def aclose(self) -> None:
        """Close the response; the same as `close`."""
        await self.close()

    async def __aenter__(self) -> Self:
        """Return the stream itself."""
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """Close the response."""
        try:
            await self._stream.__aexit__(kind, error, trace)
        finally:
            await self._recorded.cancel(stopped_or_gone(error) or CLOSED)


class AsyncRecordedManager(_Managed):
    """The context manager that ``stream()`` or ``with_streaming_response`` of an SDK returns."""

    _stream, _tap = AsyncRecordedStream, AsyncTap

    async def __aenter__(self) -> Any:
        """Send the request and return the SDK's own helper, or its response."""
        self._recorded = await begin_async(self._turn, self._request)
        try:
            self._manager = self._make()
            stream = await self._manager.__aenter__()
        except BaseException as error:
            await self._recorded.__aexit__(type(error), error, error.__traceback__)
            raise
        http = getattr(stream, "http_response", None)
        if http is None or not http.is_closed:
            return self._watched(stream)
        remember(stream, self._recorded)
        await answered_async(self._recorded, *answer_in(http), self._guard)
        return stream

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """Close the response; an incomplete answer is recorded as cancelled."""
        try:
            await self._manager.__aexit__(kind, error, trace)
        finally:
            await self._recorded.cancel(stopped_or_gone(error) or CLOSED)
