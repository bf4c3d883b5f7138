"""Which recorded call an answer came from, and a warning for each call that cannot be recorded.

A web framework runs what was one loop in several threads and tasks, and the turn of the first is
unknown to the others. What is lost then is named once for each place where such a call is made, as
a warning of Python's (which a test turns into an error) and in the log (which a server's operator
reads).
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from dataclasses import dataclass
from typing import Any, Literal, get_args

from agent_eventstore.errors import CallNotRecorded
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from eventstore.log import get_logger

__all__ = [
    "ENDED",
    "GOES_ON",
    "NOT_SEEN",
    "NO_TURN",
    "UNKNOWN",
    "Guard",
    "Unrecorded",
    "UnrecordedCall",
    "recorded",
    "remember",
]


Unrecorded = Literal["warn", "raise", "ignore"]

NO_TURN = "no turn is open in this thread or task"
ENDED = "its turn has ended, or has not begun"
GOES_ON = "its turn has ended while the answer was streaming, and what follows is not recorded"
UNKNOWN = "its answer has a shape that nobody knows"
NOT_SEEN = "the recorder does not see what this method sends and receives"

_ADVICE = {
    NO_TURN: "call it within `with conversation.turn(...)`, or through `turn.client(client)`, "
    "which knows its turn in every thread and task",
    ENDED: "hold the turn open until the last call has been made",
    GOES_ON: "hold the turn open until the stream has been read or closed",
    UNKNOWN: "the log has it as an `llm_error` of kind invalid, as it came; record it with "
    "`turn.llm_call()` and `call.message(text=...)`",
    NOT_SEEN: "use create, parse or stream, or record it with `turn.llm_call()`",
}

_log = get_logger("agent_eventstore")
_told: set[tuple[str, str, str]] = set()
_telling = threading.Lock()

_calls: dict[int, LlmCall | AsyncLlmCall] = {}


class UnrecordedCall(UserWarning):
    """A recorded client was called, or a stream of it read, and nothing is recorded of that."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What is done about calls of one method that cannot be recorded."""

    method: str
    policy: Unrecorded

    def __post_init__(self) -> None:
        """Refuse a policy that does not exist.

        Raises:
            ValueError: It is not one of the three.
        """
        if self.policy not in get_args(Unrecorded):
            known = ", ".join(repr(name) for name in get_args(Unrecorded))
            raise ValueError(f"unrecorded={self.policy!r}: it is one of {known}")

    def tell(self, why: str) -> None:
        """Warn once for each place, or raise, or pass over it, as the product wants it.

        Raises:
            CallNotRecorded: The product wants that.
        """
        if self.policy == "ignore":
            return
        message = f"{self.method} is not recorded: {why}; {_ADVICE[why]}"
        if self.policy == "raise":
            raise CallNotRecorded(self.method, message)
        level, place = _caller()
        with _telling:
            known = (self.method, why, place) in _told
            _told.add((self.method, why, place))
        if not known:
            _log.warning("model call not recorded", method=self.method, why=why, place=place)
            warnings.warn(message, UnrecordedCall, stacklevel=level)


def _caller() -> tuple[int, str]:
    """Return how far up whoever called the client is, and where that is in words."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    return level, f"{frame.f_code.co_filename}:{frame.f_lineno}"


def recorded(result: object) -> Any:
    """Return the `LlmCall` of a stream or an answer that a wrapped client returned.

    For products that make several calls at once; otherwise `Turn.last_call` says the same. None if
    it was not recorded. The call is known for as long as the result lives.
    """
    return _calls.get(id(result))


def remember(result: object, call: LlmCall | AsyncLlmCall) -> None:
    """Have `recorded` know the call of a result."""
    try:
        gone = weakref.finalize(result, _calls.pop, id(result), None)
    except TypeError:  # what cannot be watched cannot be told from its successor at that address
        return
    gone.atexit = False
    _calls[id(result)] = call
