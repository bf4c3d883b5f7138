"""Telemetry: the duration of operations, as log events and as OpenTelemetry spans and metrics.

Log events carry ids, versions, counts and durations, never payloads or error messages.
OpenTelemetry is optional. The library uses its API once the process has set up a provider of traces
or metrics. It checks for one when a store is opened and, until it finds one, at each turn and each
operation; without a provider it imports nothing. Spans and metrics follow the semantic conventions
for database clients, as far as these go.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from sqlalchemy import URL

from eventstore.errors import ErrorType, Traceback
from eventstore.sql.append_requests import Appended
from eventstore.telemetry.gauges import Attributes
from eventstore.telemetry.log import get_logger

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from eventstore.telemetry.otel import Activity, Recorder

__all__ = [
    "activity",
    "appended",
    "database",
    "discover",
    "operation",
    "switch_off",
    "use",
]

SLOW_S = 1.0
"""Seconds above which an append or a conversation's catch-up is logged as slow, at level INFO."""

_APPENDS = logging.getLogger("eventstore")
_recorder: Recorder | None = None
_waiting = False  # a store was opened before the process had set up a provider


def use(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Start sending spans and metrics, by default to the process's own providers.

    Opening a store does this if the process has set up a provider.

    Raises:
        ImportError: The extra ``otel`` is not installed.
    """
    global _recorder, _waiting
    from eventstore.telemetry.otel import Recorder

    _recorder, _waiting = Recorder(tracer_provider, meter_provider), False


def switch_off() -> None:
    """Stop sending spans and metrics."""
    global _recorder, _waiting
    _recorder, _waiting = None, False


def discover() -> None:
    """Use OpenTelemetry if this process has set up a provider of traces or metrics.

    If it has not, turns and operations check again, until `switch_off`.
    """
    global _waiting
    _waiting = _recorder is None
    if _waiting and sys.modules.get("opentelemetry"):
        from opentelemetry import metrics, trace

        providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
        # Until one is set, the API returns proxies; the class of the metrics proxy is private.
        if any("Proxy" not in type(provider).__name__ for provider in providers):
            use()


def activity(
    name: str, parent: tuple[str, str] | None, attributes: Mapping[str, Any]
) -> Activity | None:
    """Begin a span for something that a recorder records; None if tracing is off.

    Args:
        name: By the conventions for GenAI: ``chat <model>``, ``execute_tool <name>``, ...
        parent: Trace id and span id of its parent, in hexadecimal; by default the current span.
        attributes: The span's attributes; never content of the conversation.
    """
    if _waiting and parent is None:
        discover()
    return None if _recorder is None else _recorder.activity(name, parent, attributes)


def database(url: URL) -> dict[str, str | int]:
    """Return the attributes that identify a database, without user and password."""
    found = {
        "db.system.name": url.get_backend_name(),
        "db.namespace": url.database,
        "server.address": url.host,
        "server.port": url.port,
    }
    return {name: value for name, value in found.items() if value}


def appended(
    where: Attributes,
    conversation_id: UUID | str,
    events: int,
    outcome: Appended | Exception,
    started: float,
) -> None:
    """Record an append of ``events`` events that has just ended.

    ``where`` is the result of `database`, ``started`` the `time.perf_counter` when it began.
    """
    seconds = time.perf_counter() - started
    if _recorder is not None:
        _recorder.appended(where, conversation_id, events, outcome, seconds)
    slow = seconds >= SLOW_S
    if slow or _APPENDS.isEnabledFor(logging.DEBUG):
        facts: dict[str, Any] = {"conversation_id": str(conversation_id), "events": events}
        error = outcome if isinstance(outcome, Exception) else None
        if not isinstance(outcome, Exception):
            facts["version"] = outcome.version
        name, level = ("slow append", logging.INFO) if slow else ("append", logging.DEBUG)
        _tell("eventstore", name, level, facts, error, seconds)


class operation:
    """One operation, as a context manager: a log event when it ends, and a span around it.

    Args:
        component: The logger's name.
        name: The operation's name; also the name of the log event and of the span.
        level: The log event's level.
        tell_slow: Whether to log ``slow <name>`` at level INFO if it takes `SLOW_S` or longer.
        facts: Ids, versions, counts; `note` adds more before the end.
    """

    __slots__ = ("_component", "_entered", "_level", "_name", "_slow_s", "_started", "facts")

    def __init__(
        self,
        component: str,
        name: str,
        *,
        level: int = logging.DEBUG,
        tell_slow: bool = False,
        **facts: Any,
    ) -> None:
        self._component = component
        self._name = name
        self._level = level
        self._slow_s = SLOW_S if tell_slow else math.inf
        self.facts = facts

    def note(self, **facts: Any) -> None:
        """Add facts."""
        self.facts.update(facts)

    def __enter__(self) -> Self:
        """Begin."""
        if _waiting:
            discover()
        self._entered = None if _recorder is None else _recorder.begin(self._name)
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End the span and log the operation."""
        seconds = time.perf_counter() - self._started
        if self._entered is not None:
            self._entered(self.facts, error)
        name, level = self._name, self._level
        if seconds >= self._slow_s:
            name, level = f"slow {name}", logging.INFO
        _tell(self._component, name, level, self.facts, error, seconds)


def _tell(
    component: str,
    name: str,
    level: int,
    facts: Mapping[str, Any],
    error: BaseException | None,
    seconds: float,
) -> None:
    if not logging.getLogger(component).isEnabledFor(level):
        return
    logged = {key: str(value) if isinstance(value, UUID) else value for key, value in facts.items()}
    if error is not None:
        # The error's message may quote a payload.
        logged["error"] = type(error).__name__
    _logger(component).log(level, name, **logged, duration_ms=round(1000 * seconds, 1))


@cache
def _logger(component: str) -> Any:
    return get_logger(component)
