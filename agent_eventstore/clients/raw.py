"""Recorded calls whose caller requests the HTTP response itself, as agent SDKs and LangChain do.

However the caller reads the response (``parse()``, ``iter_lines()``, ``read()``), the SDK reads it
from ``iter_bytes`` of the HTTP library, or from ``aiter_bytes`` in an event loop. A tap on that
method sees all bytes as they pass: the caller gets the SDK's own response, and the tap reads
nothing that the caller does not read.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic

from agent_eventstore.clients.asked import GOES_ON, UNKNOWN, Body, Guard
from agent_eventstore.current import CallT, is_over
from agent_eventstore.errors import UnknownResponse
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncTurn

__all__ = ["AsyncTap", "EndMark", "Tap", "answer_in", "body_of"]

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
        turn.hold(recorded, http)

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
