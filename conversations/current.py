"""The turn that is open where a model is called, so that a product need not hand it around.

Entering a turn makes it the current one of this thread or task, and of the tasks begun within. One
that is over is never current, whichever context still refers to it; nor is one that was abandoned
without being left, once nobody has it any more.
"""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from conversations.scripts import CallFacts

__all__ = ["OpenTurn", "current_turn"]

CallT = TypeVar("CallT", bound=CallFacts)

_current: ContextVar[weakref.ref[OpenTurn[Any]] | None] = ContextVar("turn", default=None)


class OpenTurn(Generic[CallT]):
    """What both recorders' turns share: being current, and the calls whose streams they hold.

    ``last_call`` is the model call that was begun last, if any.
    """

    def __init__(self) -> None:
        self.last_call: CallT | None = None
        self._before: weakref.ref[OpenTurn[Any]] | None = None
        self._is_open = False
        self._held: list[tuple[CallT, weakref.ref[object]]] = []
        self._holding = threading.Lock()

    def hold(self, call: CallT, stream: object) -> None:
        """Have the call ended with the turn, or once nobody has the stream any more."""
        with self._holding:
            self._held.append((call, weakref.ref(stream)))

    def dropped(self) -> list[CallT]:
        """Return the calls whose streams were dropped before their end, once."""
        with self._holding:
            waiting = [(call, stream) for call, stream in self._held if not _is_over(call)]
            self._held = [(call, stream) for call, stream in waiting if stream() is not None]
            return [call for call, stream in waiting if stream() is None]

    def unfinished(self) -> list[CallT]:
        """Return the calls whose streams have not come to an end, once."""
        with self._holding:
            held, self._held = self._held, []
        return [call for call, _ in held if not _is_over(call)]

    def _become_current(self) -> None:
        self._before, self._is_open = _current.get(), True
        _current.set(weakref.ref(self))

    def _step_back(self) -> None:
        self._is_open = False
        current = _current.get()
        if current is not None and current() is self:
            _current.set(self._before)


def current_turn() -> OpenTurn[Any] | None:
    """Return the innermost turn that is open in this context."""
    current = _current.get()
    while current is not None:
        turn = current()
        if turn is None or turn._is_open:
            return turn
        current = turn._before
    return None


def _is_over(call: CallFacts) -> bool:
    return call.message is not None or call.error is not None
