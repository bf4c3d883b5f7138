"""Threads of the library's own, in which its asynchronous classes wait for a database.

An event loop's own threads are few: four more than there are cores. A product's tools may keep all
of them busy for minutes, and nothing that is written meanwhile must wait for them.
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
"""What a call has returned, or what it has raised."""

_MOST = 32


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST, thread_name_prefix="eventstore")


if hasattr(os, "register_at_fork"):  # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_threads.cache_clear)


def begin_in_thread(
    function: Callable[P, T], /, *args: P.args, **options: P.kwargs
) -> tuple[asyncio.Future[T], Future[Outcome[T]]]:
    """Begin a call in one of the threads, with the context variables of the caller's.

    Returns:
        What the event loop awaits, and the call itself. It goes on where the first is cancelled,
        and ends with what it has returned, or has raised.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    call = partial(copy_context().run, function, *args, **options)
    return done, _threads().submit(_called, loop, done, call)


async def to_thread(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Call a function in one of the threads, and return what it does; as `asyncio.to_thread`."""
    done, running = begin_in_thread(function, *args, **options)
    try:
        return await done
    except asyncio.CancelledError:
        running.cancel()
        raise


def _called(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], call: Callable[[], T]
) -> Outcome[T]:
    """Call, and tell the event loop; asyncio's own way does so by forty calls more."""
    outcome = _outcome_of(call)
    with suppress(RuntimeError):  # It was closed meanwhile.
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
