"""The saver's asynchronous methods: each runs the method without the ``a`` in a thread.

Each has the same signature as the synchronous method: LangGraph inspects it to see which arguments
it may pass.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from eventstore.threads import to_thread

__all__ = ["iterated", "threaded"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def threaded(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """Return a coroutine method that runs the method without the ``a`` in a thread."""

    @wraps(method)
    async def done(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        found: _T = await to_thread(getattr(self, method.__name__), *args, **named)
        return found

    done.__name__, done.__doc__ = f"a{method.__name__}", f"Run `{method.__name__}` in a thread."
    return done


def iterated(
    method: Callable[Concatenate[Any, _P], Iterator[_T]],
) -> Callable[Concatenate[Any, _P], AsyncIterator[_T]]:
    """Return an asynchronous generator method that runs each step of a method in a thread."""

    @wraps(method)
    async def done(self: Any, /, *args: _P.args, **named: _P.kwargs) -> AsyncIterator[_T]:
        found: Iterator[_T] = getattr(self, method.__name__)(*args, **named)
        nothing: Any = object()
        while (one := await to_thread(next, found, nothing)) is not nothing:
            yield one

    done.__name__, done.__doc__ = f"a{method.__name__}", f"Run `{method.__name__}` in a thread."
    return done
