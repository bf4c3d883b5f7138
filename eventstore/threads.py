"""The library's own threads, in which its asynchronous classes wait for the database.

An event loop's default executor has few threads: four more than cores. A product's tools may keep
all of them busy for minutes, and the library's writes must not wait for them.

A step that must not be left half done is awaited with `finish`, which a cancellation does not
interrupt. Cancelling an asyncio task wakes it once. A cancelled scope of anyio, which many web
frameworks use, cancels its tasks again in every iteration of the event loop until they have left
it: a task that waits for a commit would then busy-loop. A shielded scope prevents this while it is
open.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import copy_context
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from eventstore.telemetry.log import get_logger

__all__ = ["Outcome", "begin_in_thread", "finish", "in_thread", "made_in_thread", "to_thread"]

P = ParamSpec("P")
T = TypeVar("T")
Outcome = tuple[T | None, BaseException | None]
"""The result of a call, or the exception that it raised."""

_MOST = 32
_log = get_logger("eventstore")


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


class _Unceasing(asyncio.Task[T]):
    """A task that cannot be cancelled: a closing event loop cancels all tasks, and awaits them."""

    def cancel(self, msg: Any = None) -> bool:
        """Refuse; the task that awaits the work is cancelled instead."""
        return False


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end; raise a cancellation of the caller only then.

    Raises:
        CancelledError: The caller was cancelled meanwhile. The work's error is the ``__cause__``.
    """
    task = _Unceasing(work, loop=asyncio.get_running_loop())
    cancelled: asyncio.CancelledError | None = None
    with _shield():
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        failed = None if task.cancelled() else task.exception()
        if failed is not None:  # code that suppresses the cancellation would hide this error
            _log.warning("not written by a cancelled task", why=str(failed))
        raise cancelled from failed
    result = task.result()
    await _leave_cancelled_scope()
    return result


async def in_thread(work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Do work in a thread, to its end; raise a cancellation of the caller only then.

    Raises:
        CancelledError: The caller was cancelled meanwhile.
    """
    done, running = begin_in_thread(work, *args, **options)
    try:
        return await done
    except asyncio.CancelledError:
        await finish(_ended(running))
        raise


async def _ended(running: Future[Outcome[Any]]) -> None:
    """Await work whose caller was cancelled, and log its error."""
    _, error = await asyncio.wrap_future(running)
    if error is not None:  # the caller only sees its cancellation
        _log.warning("not done for a cancelled task", why=str(error))


def _shield() -> AbstractContextManager[object]:
    """Return a context manager in which enclosing anyio scopes do not cancel the task."""
    anyio = _anyio()
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


async def _leave_cancelled_scope() -> None:
    """Raise a cancellation that the shield has delayed."""
    if (anyio := _anyio()) is not None:
        await anyio.lowlevel.checkpoint_if_cancelled()


def _anyio() -> Any:
    """Return anyio if the program has imported it: it is not a dependency of this project."""
    found = sys.modules.get("anyio")
    return found if sys.modules.get("anyio.lowlevel") is not None else None


async def made_in_thread(
    make: Callable[P, T], undo: Callable[[T], Any], /, *args: P.args, **options: P.kwargs
) -> T:
    """Make something in a thread that must be closed; close it if the caller was cancelled.

    Raises:
        CancelledError: The caller was cancelled meanwhile: nothing was made, or ``undo`` was called
            with what was.
    """
    done, running = begin_in_thread(make, *args, **options)
    try:
        return await done
    except asyncio.CancelledError:
        if not running.cancel():
            await finish(_undone(running, undo))
        raise


async def _undone(running: Future[Outcome[T]], undo: Callable[[T], Any]) -> None:
    made, error = await asyncio.wrap_future(running)
    if error is not None:
        _log.info("not done for a cancelled task", why=str(error))
        return
    try:
        await to_thread(undo, made)  # type: ignore[arg-type]
    except Exception as failed:
        _log.warning("not undone for a cancelled task", why=str(failed))
