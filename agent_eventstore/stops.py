"""Exceptions as text: who stopped a block, or what failed in it.

When a client disconnects, the product sees a cancelled task, a closed generator, an exception of
its web framework, or a connection that breaks while it sends. The messages of those exceptions help
neither the model nor the user, so the log records who stopped the block instead. Other exceptions
keep their message, without the server's directories.
"""

from __future__ import annotations

import asyncio

from agent_eventstore.errors import TurnStopped
from projections.providers.failures import _LONGEST, without_directories

__all__ = [
    "BY_SOMEBODY",
    "BY_USER",
    "Stop",
    "error_text",
    "mark_failure",
    "stopped",
    "stopped_or_gone",
    "without_directories",
]


BY_USER = "stopped by the user"


BY_SOMEBODY = "stopped by the user or the program"


"""The most characters kept of an exception's message."""


_USERS = frozenset(
    {"ClientDisconnect", "ClientDisconnected", "KeyboardInterrupt", "WebSocketDisconnect"}
)


"""Ctrl-C, and what Starlette, Werkzeug and uvicorn raise when a client disconnects."""


_ANYBODYS = frozenset({"Cancelled", "CancelledError", "GeneratorExit", "SystemExit"})


_SENDING = frozenset({"Cannot write to closing transport", "Connection lost"})


"""The messages of aiohttp and asyncio when the client they write to has disconnected."""


_FAILED = "_failure_of_a_call"


class Stop(str):
    """Why a turn was stopped; the argument of its task's `CancelledError`."""

    __slots__ = ()

    @classmethod
    def of(cls, reason: str) -> Stop:
        """Return a reason as the log records it."""
        return cls(BY_USER if reason == "user" else f"stopped: {reason}"[:_LONGEST])


def stopped(error: BaseException | None) -> str | None:
    """Return text that says who stopped a block; None after success or another error."""
    if isinstance(error, TurnStopped):
        return error.reason
    if isinstance(error, asyncio.CancelledError) and error.args and isinstance(error.args[0], Stop):
        return str(error.args[0])
    if isinstance(error, BaseExceptionGroup):
        reasons = [stopped(each) for each in error.exceptions]
        return None if None in reasons else (BY_USER if BY_USER in reasons else BY_SOMEBODY)
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _USERS:
        return BY_USER
    return BY_SOMEBODY if names & _ANYBODYS else None


def stopped_or_gone(error: BaseException | None) -> str | None:
    """Return as `stopped` does, also for an error that says that the product's client hung up.

    Tools and model calls have their own connections: an error that was passed to `mark_failure`
    came from one of these, and does not count.
    """
    return stopped(error) or (BY_USER if _hung_up(error) else None)


def mark_failure(error: BaseException) -> None:
    """Mark an exception as the failure of a tool or a model call, not of the client."""
    if _hung_up(error):
        error.__dict__[_FAILED] = True


def _hung_up(error: BaseException | None) -> bool:
    if not isinstance(error, ConnectionError) or _FAILED in error.__dict__:
        return False
    return isinstance(error, BrokenPipeError) or str(error) in _SENDING


def error_text(error: BaseException | str) -> str:
    """Return an error's class and message as text, or who stopped the block."""
    if isinstance(error, str):
        return error
    message = without_directories(str(error))
    name = type(error).__name__
    return stopped(error) or (f"{name}: {message}" if message else name)
