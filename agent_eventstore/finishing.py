"""Work that is done to its end though its caller is cancelled, without spinning meanwhile.

Cancelling an asyncio task wakes it once. A cancelled scope of anyio, and so of the web frameworks
built on it, cancels its tasks anew in every round of the event loop until they have left: whoever
waits for a commit then keeps a processor busy. A shielded scope ends that, for as long as it lasts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from eventstore.log import get_logger

__all__ = ["finish"]

T = TypeVar("T")

_log = get_logger("agent_eventstore")


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end, and pass on a cancellation of the caller only then.

    Raises:
        CancelledError: The caller was cancelled meanwhile. What the work raised is the cause.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with _shield():
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        failed = None if task.cancelled() else task.exception()
        if failed is not None:  # whoever swallows the cancellation would never hear of it
            _log.warning("not written by a cancelled task", why=str(failed))
        raise cancelled from failed
    result = task.result()
    await _leave_cancelled_scope()
    return result


def _shield() -> AbstractContextManager[object]:
    """Return what keeps the scopes of anyio around the task from cancelling it."""
    anyio = _anyio()
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


async def _leave_cancelled_scope() -> None:
    """Raise the cancellation that a shield has held off."""
    if (anyio := _anyio()) is not None:
        await anyio.lowlevel.checkpoint_if_cancelled()


def _anyio() -> Any:
    """Return anyio if somebody uses it: it is no dependency of this project."""
    found = sys.modules.get("anyio")
    return found if sys.modules.get("anyio.lowlevel") is not None else None
