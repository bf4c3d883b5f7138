"""The library's own threads, in which its asynchronous classes wait for the database.

An event loop's default executor has few threads: four more than cores. A product's tools may keep
all of them busy for minutes, and the library's writes must not wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

__all__ = ["Outcome", "begin_in_thread", "to_thread"]

P = ParamSpec("P")
T = TypeVar("T")
Outcome = tuple[T | None, BaseException | None]
"""The result of a call, or the exception that it raised."""

_MOST = 32


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST, thread_name_prefix="eventstore")


if hasattr(os, "register_at_fork"):  # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_threads.cache_clear)


def begin_in_thread(
    function: Callable[P, T], /, *args: P.args, **options: P.kwargs
) -> tuple[asyncio.Future[T], Future[Outcome[T]]]:
    """Begin a call in one of the threads, with the caller's context variables.

    Returns:
        A future for the event loop to await, and the future of the call itself. If the first is
        cancelled, the call continues; the second then holds its result or exception.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    call = partial(copy_context().run, function, *args, **options)
    return done, _threads().submit(_called, loop, done, call)


async def to_thread(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Call a function in one of the threads and return its result, like `asyncio.to_thread`."""
    done, running = begin_in_thread(function, *args, **options)
    try:
        return await done
    except asyncio.CancelledError:
        running.cancel()
        raise


def _called(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], call: Callable[[], T]
) -> Outcome[T]:
    """Call the function and notify the event loop; asyncio's own way takes forty more calls."""
    outcome = _outcome_of(call)
    with suppress(RuntimeError):  # The loop was closed in the meantime.
        loop.call_soon_threadsafe(_settle, done, *outcome)
    return outcome


def _outcome_of(call: Callable[[], T]) -> Outcome[T]:
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _settle(done: asyncio.Future[T], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
