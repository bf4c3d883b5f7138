"""OpenTelemetry spans of turns, model calls and tool calls, begun and ended with their events.

Spans follow OpenTelemetry's conventions for GenAI, without message contents, which the log has. The
events' metadata holds the ids of trace and span, so log and trace can be found from each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eventstore.events import Meta
from eventstore.telemetry import operations

if TYPE_CHECKING:
    from eventstore.telemetry.otel import Activity

__all__ = ["Tracing", "in_span"]


def in_span(meta: Meta, other: Meta) -> Meta:
    """Return metadata with the trace and span ids of other metadata."""
    if meta.span_id == other.span_id:
        return meta
    return meta.model_copy(update={"trace_id": other.trace_id, "span_id": other.span_id})


@dataclass(slots=True)
class Tracing:
    """One span; does nothing if tracing is off."""

    _open: Activity | None = None
    _pending: tuple[Meta, str, Mapping[str, Any]] | None = None
    _failed: bool = False

    def begin(self, meta: Meta, name: str, attributes: Mapping[str, Any]) -> Meta:
        """Begin a span as a child of the metadata's; return metadata with the new span's ids."""
        self._pending = meta, name, attributes
        trace, span = meta.trace_id, meta.span_id
        parent = None if trace is None or span is None else (trace, span)
        self._open = operations.activity(name, parent, attributes)
        if self._open is None:
            return meta
        ids = {"trace_id": self._open.trace_id, "span_id": self._open.span_id}
        return meta.model_copy(update=ids)

    def fail(self, error: BaseException) -> None:
        """End the span because its block could not be entered; it may be entered again."""
        self.end({}, type(error).__name__)
        self._failed = self._pending is not None

    def begin_again(self, meta: Meta) -> Meta:
        """Return the metadata, with the ids of a new span if the last entry of the block failed."""
        if self._pending is None or not self._failed:
            return meta
        self._failed = False
        return in_span(meta, self.begin(*self._pending))

    @property
    def is_open(self) -> bool:
        """Whether the span has begun and not ended."""
        return self._open is not None

    def end(self, attributes: Mapping[str, Any], error_type: str | None = None) -> None:
        """End the span, if there is one."""
        ended, self._open = self._open, None
        if ended is not None:
            ended.end(attributes, error_type)
