"""Exceptions in words: who stopped a block, or what went wrong in it.

A client that goes away reaches the product as a cancelled task, as a generator that is closed, as
an exception of its web framework, or as a connection that breaks while the product sends. What
those exceptions say helps neither the model nor the user, so none of it is kept: the log says who
stopped what was going on. Other exceptions keep their words, without the server's directories.
"""

from __future__ import annotations

import asyncio
import re

from agent_eventstore.errors import TurnStopped

__all__ = [
    "BY_SOMEBODY",
    "BY_USER",
    "Stop",
    "failed",
    "left",
    "stopped",
    "told",
    "without_directories",
]

BY_USER = "stopped by the user"
BY_SOMEBODY = "stopped by the user or the program"

_LONGEST = 4_000
"""Characters of an exception that are kept."""

_USERS = frozenset(
    {"ClientDisconnect", "ClientDisconnected", "KeyboardInterrupt", "WebSocketDisconnect"}
)
"""Ctrl-C, and what Starlette, Werkzeug and uvicorn raise when a client has gone away."""

_ANYBODYS = frozenset({"Cancelled", "CancelledError", "GeneratorExit", "SystemExit"})

_SENDING = frozenset({"Cannot write to closing transport", "Connection lost"})
"""What aiohttp and asyncio say when they have nobody left to write to."""

_FAILED = "_failure_of_a_call"

_ROOT = r"(?:(?:file|sqlite[+\w]*)://+(?=/)|~|[A-Za-z]:)?"
_QUOTED = re.compile(rf"(['\"]){_ROOT}[\\/][^'\"\n]*?([^\\/'\"\n]+)[\\/]*\1")
_PATH = re.compile(rf"(?<![\w.:/\\~-]){_ROOT}(?:[\\/]+[^\s\\/:'\"()\[\],;]+){{2,}}")


class Stop(str):
    """Why a turn was stopped, as the cancellation of its task brings it."""

    __slots__ = ()

    @classmethod
    def of(cls, reason: str) -> Stop:
        """Return a reason in words."""
        return cls(BY_USER if reason == "user" else f"stopped: {reason}"[:_LONGEST])


def stopped(error: BaseException | None) -> str | None:
    """Return who stopped a block, in words; None if it was left well, or by an error."""
    if isinstance(error, TurnStopped):
        return error.reason
    if isinstance(error, asyncio.CancelledError) and error.args and isinstance(error.args[0], Stop):
        return str(error.args[0])
    if isinstance(error, BaseExceptionGroup):
        told = [stopped(each) for each in error.exceptions]
        return None if None in told else (BY_USER if BY_USER in told else BY_SOMEBODY)
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _USERS:
        return BY_USER
    return BY_SOMEBODY if names & _ANYBODYS else None


def left(error: BaseException | None) -> str | None:
    """Return the same of an exception that may also say that nobody takes what the product sends.

    Tools and requests to providers have connections of their own: what has passed through `failed`
    is none of that kind.
    """
    return stopped(error) or (BY_USER if _hung_up(error) else None)


def failed(error: BaseException) -> None:
    """Remember that a tool or a model call had an exception as its failure, and nobody has left."""
    if _hung_up(error):
        error.__dict__[_FAILED] = True


def _hung_up(error: BaseException | None) -> bool:
    if not isinstance(error, ConnectionError) or _FAILED in error.__dict__:
        return False
    return isinstance(error, BrokenPipeError) or str(error) in _SENDING


def told(error: BaseException | str) -> str:
    """Return an error as its class and its message, or who stopped the block."""
    if isinstance(error, str):
        return error
    message = without_directories(str(error))
    name = type(error).__name__
    return stopped(error) or (f"{name}: {message}" if message else name)


def without_directories(text: str) -> str:
    """Return the start of a text, with only the last name of each absolute path.

    >>> without_directories("[Errno 2] No such file or directory: '/srv/app/keys.json'")
    "[Errno 2] No such file or directory: 'keys.json'"
    """
    text = _QUOTED.sub(r"\1\2\1", text[:_LONGEST])
    return _PATH.sub(lambda found: re.split(r"[\\/]+", found[0].rstrip("\\/"))[-1], text)
