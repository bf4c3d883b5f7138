"""A tap on the HTTP responses of an asynchronous client; see `agent_eventstore.clients.raw`."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from typing import Any

from agent_eventstore.clients.raw import body_of
from agent_eventstore.clients.unrecorded import GOES_ON, UNKNOWN, Guard
from agent_eventstore.current import is_over
from agent_eventstore.recorder_aio import AsyncLlmCall, AsyncTurn
from eventstore.errors import UnknownResponse

__all__ = ["AsyncTap"]


class AsyncTap:
    """`Tap` for an event loop."""

    def __init__(self, http: Any, recorded: AsyncLlmCall, turn: AsyncTurn, guard: Guard) -> None:
        # Weakly, since it is the response that holds the tap: who drops it drops both.
        self._http = weakref.ref(http)
        self._body = body_of(http)
        self._recorded = recorded
        self._turn = turn
        self._guard = guard
        self._reading = False
        self._ended = False
        turn.hold(recorded, http)
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
                await self._take(passed)
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

    async def _take(self, passed: bytes) -> None:
        if self._ended:  # a body that has been kept is read once more
            return
        for chunk in self._body.feed(passed):
            if is_over(self._recorded):
                self._guard.tell(GOES_ON)
                return
            await self._recorded.feed(chunk)

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
            await self._recorded.__aexit__(None, None, None)

    async def _aclose(self) -> None:
        http: Any = self._http()
        try:
            await type(http).aclose(http)
        finally:
            # The HTTP library closes by itself at the end of the body, before its last bytes pass.
            if not self._reading:
                await self._cancel()

    async def _cancel(self) -> None:
        if not self._ended:
            self._ended = True
            await self._recorded.cancel()
