"""How long a journal waits for a server that is away, or for a lock that somebody else holds."""

from __future__ import annotations

import time
from typing import Any

from tenacity import RetryCallState, retry_if_exception_type, stop_after_delay, wait_exponential

from eventstore.errors import CannotConnect, DatabaseBusy
from eventstore.log import get_logger

__all__ = ["PASSING", "PATIENCE_S", "in_vain", "policy"]

PATIENCE_S = 5.0
"""A restart takes a second or two."""

PASSING = (CannotConnect, DatabaseBusy)
"""Errors that pass by themselves, and are waited for."""

_log = get_logger("agent_eventstore")


def policy() -> dict[str, Any]:
    """Return how an append is tried again."""
    return {
        "retry": retry_if_exception_type(PASSING),
        "stop": stop_after_delay(PATIENCE_S),
        "wait": wait_exponential(multiplier=0.05, max=1.0),
        "before_sleep": _warn,
        "reraise": True,
    }


def in_vain(error: Exception, started: float) -> bool:
    """Whether a lock was waited for since then, for as long as anything is."""
    return isinstance(error, DatabaseBusy) and time.monotonic() - started >= PATIENCE_S


def _warn(state: RetryCallState) -> None:
    _log.warning("append repeated", attempt=state.attempt_number)
