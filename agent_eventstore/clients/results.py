"""Which recorded call an answer or a stream came from."""

from __future__ import annotations

import weakref
from typing import Any

from agent_eventstore.recorder import LlmCall
from agent_eventstore.recorder_aio import AsyncLlmCall

__all__ = ["recorded", "remember"]

_calls: dict[int, LlmCall | AsyncLlmCall] = {}


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
