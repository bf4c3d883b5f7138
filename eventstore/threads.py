"""Threads of the library's own, in which its asynchronous classes wait for a database.

An event loop's own threads are few: four more than there are cores. A product's tools may keep all
of them busy for minutes, and nothing that is written meanwhile must wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import ParamSpec, TypeVar

__all__ = ["begin_in_thread", "to_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_MOST = 32


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST, thread_name_prefix="eventstore")


if hasattr(os, "register_at_fork"):  # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_threads.cache_clear)


def begin_in_thread(
    function: Callable[P, T], /, *args: P.args, **options: P.kwargs
) -> asyncio.Future[T]:
    """Begin a call in one of the threads, with the context variables of the caller's."""
    call = partial(copy_context().run, function, *args, **options)
    return asyncio.get_running_loop().run_in_executor(_threads(), call)


async def to_thread(function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Call a function in one of the threads, and return what it does; as `asyncio.to_thread`."""
    return await begin_in_thread(function, *args, **options)
