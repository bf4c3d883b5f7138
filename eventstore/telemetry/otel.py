"""Spans and metrics for OpenTelemetry; `operations` imports this only if it is in use.

Names and attributes follow the semantic conventions for database client calls (version 1.29), if
these define one: ``db.client.operation.duration``, ``db.system.name``, ``db.operation.name``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any, get_args
from uuid import UUID

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
)

from eventstore.sql.append_requests import Appended
from eventstore.telemetry.gauges import Attributes, GaugeName, Measurement, observed

__all__ = ["Activity", "Recorder"]

_BOUNDARIES_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_GAUGES: Mapping[str, tuple[str, str]] = {
    "eventstore.projection.lag": (
        "{event}",
        "Committed events that the live generation has not folded.",
    ),
    "eventstore.projection.lag.duration": ("s", "Age of the oldest event that is not folded."),
    "eventstore.feed.held_back": ("{event}", "Committed events that the feed does not return."),
    "eventstore.feed.held_back.duration": ("s", "Age of the oldest event that is held back."),
}
assert set(_GAUGES) == set(get_args(GaugeName))  # noqa: S101


class Recorder:
    """Records spans and measurements with the given providers, by default the process's own."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._tracer = trace.get_tracer("eventstore", _version(), tracer_provider)
        meter = metrics.get_meter("eventstore", _version(), meter_provider)
        self._duration = meter.create_histogram(
            "db.client.operation.duration",
            unit="s",
            description="Duration of database client operations.",
            explicit_bucket_boundaries_advisory=_BOUNDARIES_S,
        )
        self._events = meter.create_counter(
            "eventstore.events.appended",
            unit="{event}",
            description="Events of appends that succeeded.",
        )
        for name, (unit, description) in _GAUGES.items():
            meter.create_observable_gauge(
                name, [partial(self._observe, name)], unit=unit, description=description
            )
        self._lock = Lock()
        self._read: list[Measurement] = []
        self._observed: set[str] = set()

    def appended(
        self,
        where: Attributes,
        conversation_id: UUID | str,
        events: int,
        outcome: Appended | Exception,
        seconds: float,
    ) -> None:
        """Record an append that has just ended."""
        about: dict[str, str | int] = {
            **where,
            "db.operation.name": "append",
            "db.collection.name": "events",
        }
        if isinstance(outcome, Exception):
            about["error.type"] = type(outcome).__qualname__
        else:
            self._events.add(events, where)
        self._duration.record(seconds, about)
        about["eventstore.conversation_id"] = str(conversation_id)
        about["eventstore.events"] = events
        ended = time.time_ns()
        span = self._tracer.start_span(
            "append events",
            kind=SpanKind.CLIENT,
            attributes=about,
            start_time=ended - int(seconds * 1e9),
        )
        if isinstance(outcome, Exception):
            span.set_status(Status(StatusCode.ERROR))
        else:
            span.set_attribute("eventstore.version", outcome.version)
        span.end(ended)

    def begin(self, name: str) -> Callable[[Mapping[str, Any], BaseException | None], None]:
        """Begin a span that is the current one until the returned function is called."""
        span = self._tracer.start_span(name)
        return partial(_end, span, context.attach(trace.set_span_in_context(span)))

    def activity(
        self, name: str, parent: tuple[str, str] | None, attributes: Mapping[str, Any]
    ) -> Activity | None:
        """Begin a span that does not become the current one; return None if it is not recorded.

        Args:
            name: The span's name.
            parent: Trace id and span id of its parent, in hexadecimal; by default the current span.
            attributes: The span's attributes.
        """
        around = None
        if parent is not None:
            trace_id, span_id = (int(each, 16) for each in parent)
            known = SpanContext(trace_id, span_id, False, TraceFlags(TraceFlags.SAMPLED))
            around = trace.set_span_in_context(NonRecordingSpan(known))
        kind = SpanKind.CLIENT if name.startswith("chat") else SpanKind.INTERNAL
        span_attributes = dict(_plain(attributes))
        span = self._tracer.start_span(name, context=around, kind=kind, attributes=span_attributes)
        return Activity(span) if span.is_recording() else None

    def _observe(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            # Sources are read once per collection: a gauge that is asked again begins a new one.
            if not self._observed or name in self._observed:
                self._read, self._observed = observed(), set()
            self._observed.add(name)
            return [
                Observation(each.value, each.attributes)
                for each in self._read
                if each.gauge == name
            ]


class Activity:
    """An open span that is not the current one.

    Attributes:
        trace_id: The trace's id, in hexadecimal.
        span_id: The span's id, in hexadecimal.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        about = span.get_span_context()
        self.trace_id, self.span_id = f"{about.trace_id:032x}", f"{about.span_id:016x}"

    def end(self, attributes: Mapping[str, Any], error_type: str | None = None) -> None:
        """Add attributes and end the span."""
        self._span.set_attributes(dict(_plain(attributes)))
        if error_type is not None:
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def _end(span: Span, token: Any, facts: Mapping[str, Any], error: BaseException | None) -> None:
    context.detach(token)
    span.set_attributes({f"eventstore.{name}": value for name, value in _plain(facts)})
    if error is not None:
        # Not the error's message, which may quote a payload.
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def _plain(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if value is not None:
            known = isinstance(value, str | bool | int | float | tuple | list)
            yield name, value if known else str(value)


def _version() -> str:
    try:
        return version("agent-eventstore")
    except PackageNotFoundError:  # run from its source
        return "0"
